//! Who is who: features of draws and of chains are matched by how alike their images are \[M18\].

use crate::numeric::workers::share;

/// The least absolute cosine of two images of one feature.
pub const ALIKE: f64 = 0.7;
/// The same for the draw of a feature and its mean, or where a feature of the chain lives on: draws scatter about their mean.
pub const STILL_ALIKE: f64 = 0.5;

/// Lanes of a sum: it vectorises on every machine, and its bits depend on none.
const LANES: usize = 16;

/// For every image its reference, one to one, the most alike first. Pairs with an absolute cosine of at least
/// `least(image, reference)` are one feature.
pub fn assign(images: &[&[f32]], references: &[&[f32]], least: impl Fn(usize, usize) -> f64) -> Vec<Option<usize>> {
    let cosines = cosines(images, references);
    let n = references.len();
    let mut pairs: Vec<usize> = (0..cosines.len()).filter(|&at| cosines[at] >= least(at / n, at % n)).collect();
    pairs.sort_by(|&a, &b| cosines[b].total_cmp(&cosines[a]).then(a.cmp(&b)));
    let (mut found, mut taken) = (vec![None; images.len()], vec![false; n]);
    for at in pairs {
        let (image, reference) = (at / n, at % n);
        if found[image].is_none() && !taken[reference] {
            found[image] = Some(reference);
            taken[reference] = true;
        }
    }
    found
}

/// Absolute cosines, images x references; 0 where an image is 0.
fn cosines(images: &[&[f32]], references: &[&[f32]]) -> Vec<f64> {
    let norm = |image: &&[f32]| dot(image, image).sqrt();
    let (own, other): (Vec<f64>, Vec<f64>) = (images.iter().map(norm).collect(), references.iter().map(norm).collect());
    let mut cosines = vec![0.0; images.len() * references.len()];
    if !cosines.is_empty() {
        let rows = cosines.chunks_exact_mut(references.len()).zip(images.iter().zip(&own));
        share(
            rows,
            || (),
            |_, (row, (image, norm))| {
                for ((cosine, reference), other) in row.iter_mut().zip(references).zip(&other) {
                    let norms = norm * other;
                    *cosine = if norms > 0.0 { dot(image, reference).abs() / norms } else { 0.0 };
                }
            },
        );
    }
    cosines
}

/// The sum of products.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| f64::from(x * y)).sum();
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    lanes.iter().map(|&x| f64::from(x)).sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_are_matched_first_and_once() {
        let references: [&[f32]; 3] = [&[2.0, 0.0, 0.0], &[0.0, 3.0, 0.0], &[0.0, 0.0, 0.0]];
        let images: [&[f32]; 4] = [&[0.9, 0.1, 0.0], &[-1.0, 0.0, 0.0], &[0.0, 0.6, 0.8], &[0.0, 0.0, 0.0]];
        assert_eq!(assign(&images, &references, |_, _| 0.7), [None, Some(0), None, None]);
        assert_eq!(assign(&images, &references, |_, _| 0.5), [None, Some(0), Some(1), None]);
        let only_own = |image: usize, reference: usize| if image == reference { 0.5 } else { 2.0 };
        assert_eq!(assign(&images, &references, only_own), [Some(0), None, None, None]);
        assert_eq!(assign(&images, &[], |_, _| 0.0), [None; 4]);
        assert!(assign(&[], &references, |_, _| 0.0).is_empty());
    }

    #[test]
    fn sums_are_those_of_all_sites() {
        for n in [0, 1, 15, 16, 17, 100] {
            let (a, b): (Vec<f32>, Vec<f32>) = ((0..n).map(|i| i as f32).collect(), vec![0.5; n]);
            assert_eq!(dot(&a, &b), 0.25 * (n * n.max(1) - n) as f64);
        }
    }
}
