//! Chooses what of a grid can be shown on paper: a curve, or the plane with the most energy.

/// The part of a field that is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    pub shape: Shape,
    /// Row-major.
    pub values: Vec<f64>,
    /// Which slice it is, as `[:, :, 12]` counting from 0; none where the whole field is shown.
    pub name: Option<String>,
}

/// A slice's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Curve,
    Plane { n_down: usize, n_right: usize },
}

impl Slice {
    /// The slice of a row-major field on a grid. Axes of length 1 do not count. Of more than two axes all but the two
    /// longest are fixed (of equal ones the later), each where the sum of squares is largest.
    pub fn choose(grid: &[usize], values: &[f64]) -> Slice {
        assert_eq!(grid.iter().product::<usize>(), values.len(), "a field has one value for each site of its grid");
        let long: Vec<usize> = (0..grid.len()).filter(|&axis| grid[axis] > 1).collect();
        let mut by_length = long.clone();
        by_length.sort_by_key(|&axis| (grid[axis], std::cmp::Reverse(axis)));
        let n_fixed = long.len().saturating_sub(2);
        let mut fixed: Vec<Option<usize>> = vec![None; grid.len()];
        for &axis in &by_length[..n_fixed] {
            fixed[axis] = Some(strongest(grid, values, &fixed, axis));
        }
        let kept: Vec<f64> = sites(grid, &fixed).map(|site| values[site]).collect();
        let shown: Vec<usize> = long.iter().filter(|&&axis| fixed[axis].is_none()).map(|&axis| grid[axis]).collect();
        let shape = match shown[..] {
            [n_down, n_right] => Shape::Plane { n_down, n_right },
            _ => Shape::Curve,
        };
        Slice { shape, values: kept, name: (n_fixed > 0).then(|| name(grid, &fixed)) }
    }
}

/// The sites on the fixed axes' indices, in order.
fn sites<'a>(grid: &'a [usize], fixed: &'a [Option<usize>]) -> impl Iterator<Item = usize> + 'a {
    let is_on =
        move |site: &usize| (0..grid.len()).all(|axis| fixed[axis].is_none_or(|at| at == index(grid, *site, axis)));
    (0..grid.iter().product()).filter(is_on)
}

/// A site's index along an axis.
fn index(grid: &[usize], site: usize, axis: usize) -> usize {
    site / grid[axis + 1..].iter().product::<usize>() % grid[axis]
}

/// The index along an axis with the largest sum of squares; the middle one where all are equal.
fn strongest(grid: &[usize], values: &[f64], fixed: &[Option<usize>], axis: usize) -> usize {
    let mut energy = vec![0.0; grid[axis]];
    for site in sites(grid, fixed).filter(|&site| values[site].is_finite()) {
        energy[index(grid, site, axis)] += values[site] * values[site];
    }
    let middle = grid[axis] / 2;
    (0..grid[axis]).fold(middle, |best, index| if energy[index] > energy[best] { index } else { best })
}

fn name(grid: &[usize], fixed: &[Option<usize>]) -> String {
    let part = |(&length, fixed): (&usize, &Option<usize>)| match fixed {
        Some(index) => index.to_string(),
        None if length == 1 => "0".into(),
        None => ":".into(),
    };
    format!("[{}]", grid.iter().zip(fixed).map(part).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_and_planes_are_whole() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        for grid in [&[6][..], &[1, 6], &[6, 1, 1]] {
            assert_eq!(Slice::choose(grid, &values), Slice { shape: Shape::Curve, values: values.into(), name: None });
        }
        let plane = Slice::choose(&[2, 3, 1], &values);
        assert_eq!((plane.shape, plane.name), (Shape::Plane { n_down: 2, n_right: 3 }, None));
    }

    #[test]
    fn the_strongest_slice_is_taken() {
        let grid = [2, 3, 4, 5];
        let mut values = vec![0.1; 120];
        let site = (3 + 2) * 4 * 5 + 3;
        values[site] = -9.0;
        values[7] = f64::NAN;
        let slice = Slice::choose(&grid, &values);
        assert_eq!(slice.name.as_deref(), Some("[1, 2, :, :]"));
        assert_eq!(slice.shape, Shape::Plane { n_down: 4, n_right: 5 });
        assert_eq!(slice.values[3], -9.0);
        assert_eq!(Slice::choose(&[2, 2, 5], &[0.0; 20]).name.as_deref(), Some("[:, 1, :]"));
        assert_eq!(Slice::choose(&[3, 3, 3], &[0.0; 27]).name.as_deref(), Some("[:, :, 1]"));
    }
}
