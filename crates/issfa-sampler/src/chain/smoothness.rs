//! How smooth an image is along an axis.

/// The full width at half maximum of a Gaussian smoother with this image's lag-one correlation r along an axis:
/// `sqrt(-2 ln 2 / ln r)`, over neighbours that are not NaN; 0 where r is not positive, infinite where it is 1, NaN where
/// there are no neighbours.
pub fn full_width(image: &[f64], grid: &[usize], axis: usize) -> f64 {
    if grid[axis] == 1 {
        return f64::NAN;
    }
    let inner: usize = grid[axis + 1..].iter().product();
    let (mut products, mut squares) = (0.0, 0.0);
    for block in image.chunks_exact(inner * grid[axis]) {
        for (x, next) in block.iter().zip(&block[inner..]).filter(|(x, next)| !x.is_nan() && !next.is_nan()) {
            products += x * next;
            squares += 0.5 * (x * x + next * next);
        }
    }
    let correlation = if squares > 0.0 { products / squares } else { 0.0 };
    if correlation <= 0.0 {
        0.0
    } else if correlation >= 1.0 {
        f64::INFINITY
    } else {
        (-2.0 * std::f64::consts::LN_2 / correlation.ln()).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_of_a_smooth_bump_is_near_its_kernel() {
        // White noise smoothed by a Gaussian of sd s has lag-one correlation exp(-1/(4 s^2)), that is FWHM 2.355 s.
        // A lone bump exp(-x^2/(4 s^2))-like image has the same correlation when its own sd is s.
        let s: f64 = 3.0;
        let image: Vec<f64> = (0..101).map(|i| (-(f64::from(i) - 50.0).powi(2) / (2.0 * s * s)).exp()).collect();
        let width = full_width(&image, &[101], 0);
        assert!((width - 2.0 * (2.0 * std::f64::consts::LN_2).sqrt() * s).abs() < 0.1, "{width}");
        let columns: Vec<f64> = (0..20).flat_map(|_| [1.0, -1.0, 1.0]).collect();
        assert_eq!(full_width(&columns, &[20, 3], 0), f64::INFINITY);
        assert_eq!(full_width(&columns, &[20, 3], 1), 0.0);
    }
}
