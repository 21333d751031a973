//! Where features of images stand out: clusters of voxels, their peaks in millimetres, and maps of them alone.

use super::features::PersistentFeatures;
use crate::data::nifti::Header;
use crate::error::{Error, Result};
use crate::numeric::files::write_atomically;
use serde::Serialize;
use std::path::Path;

/// The table's name in a run folder.
pub const FILE: &str = "peaks.tsv";

/// Voxels of the least cluster in it.
pub const USUAL_SIZE: usize = 10;

/// What a voxel has to reach to stand out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// The size of thresholded maps: so many mean absolute values of the feature, as the run has it.
    OfRun,
    /// So many posterior standard deviations.
    Z(f64),
}

/// The largest value of a cluster: voxels of one sign that stand out and touch, by a face, an edge or a corner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Id of the feature.
    pub feature: u64,
    /// From 1, the largest cluster of the feature first.
    pub cluster: usize,
    /// Where the peak lies, in mm, by the image's affine.
    pub x: f64,
    /// To the front.
    pub y: f64,
    /// Upwards.
    pub z: f64,
    /// Of the unit-norm feature.
    pub value: f64,
    /// Posterior mean over posterior standard deviation there.
    pub z_score: f64,
    /// Size of the cluster.
    pub n_voxels: usize,
    /// Its volume.
    pub volume_mm3: f64,
}

/// Peaks of all features, and maps that are 0 outside of their clusters, by column of the mask.
pub struct StandingOut {
    /// Feature by feature.
    pub peaks: Vec<Peak>,
    /// One a feature.
    pub maps: Vec<Vec<f32>>,
}

/// Finds the clusters of at least so many voxels.
pub fn find(features: &PersistentFeatures, space: &Header, threshold: Threshold, least: usize) -> Result<StandingOut> {
    if let Threshold::Z(z) = threshold
        && !(z > 0.0 && z.is_finite())
    {
        return Err(Error::setting("z", z, "must be positive, 3.1 say"));
    }
    let (mut peaks, mut maps) = (Vec::new(), Vec::new());
    let of_run = features.thresholded();
    for (k, mean) in features.means.iter().enumerate() {
        let z_scores = z_scores(mean, &features.sds[k]);
        let map: Vec<f32> = match threshold {
            Threshold::OfRun => of_run[k].clone(),
            Threshold::Z(z) => {
                mean.iter().zip(&z_scores).map(|(x, score)| if score.abs() >= z { *x } else { 0.0 }).collect()
            }
        };
        let mut image = features.mask.scatter(&map, 0.0);
        let scores = features.mask.scatter(&z_scores, 0.0);
        for (at, cluster) in clusters(&mut image, space.grid, least).iter().enumerate() {
            peaks.push(peak(features.table[k].id, at + 1, cluster, &image, &scores, space));
        }
        maps.push(features.mask.gather(&image));
    }
    Ok(StandingOut { peaks, maps })
}

fn z_scores(mean: &[f32], sd: &[f32]) -> Vec<f64> {
    let score = |(mean, sd): (&f32, &f32)| if *sd > 0.0 { f64::from(*mean) / f64::from(*sd) } else { 0.0 };
    mean.iter().zip(sd).map(score).collect()
}

fn peak(feature: u64, cluster: usize, sites: &[usize], image: &[f32], scores: &[f64], space: &Header) -> Peak {
    let larger = |a: &&usize, b: &&usize| image[**a].abs().total_cmp(&image[**b].abs()).then(b.cmp(a));
    let site = *sites.iter().max_by(larger).expect("a cluster has a voxel");
    let [_, ny, nz] = space.grid;
    let voxel = [site / (ny * nz), site / nz % ny, site % nz].map(|index| index as f64);
    let affine = space.affine();
    let [x, y, z] = [0, 1, 2].map(|axis| {
        let row: &[f64; 4] = &affine[axis];
        row[0] * voxel[0] + row[1] * voxel[1] + row[2] * voxel[2] + row[3]
    });
    let volume = space.space.voxel_sizes().iter().product::<f64>();
    Peak {
        feature,
        cluster,
        x,
        y,
        z,
        value: f64::from(image[site]),
        z_score: scores[site],
        n_voxels: sites.len(),
        volume_mm3: sites.len() as f64 * volume,
    }
}

/// Voxels of one sign that touch, the largest cluster first; those of smaller clusters become 0.
fn clusters(image: &mut [f32], grid: [usize; 3], least: usize) -> Vec<Vec<usize>> {
    let mut is_seen = vec![false; image.len()];
    let mut found = Vec::new();
    for start in 0..image.len() {
        if image[start] == 0.0 || is_seen[start] {
            continue;
        }
        let mut cluster = vec![start];
        is_seen[start] = true;
        let mut next = 0;
        while next < cluster.len() {
            let site = cluster[next];
            next += 1;
            for neighbour in neighbours(site, grid) {
                if !is_seen[neighbour] && image[neighbour] * image[start] > 0.0 {
                    is_seen[neighbour] = true;
                    cluster.push(neighbour);
                }
            }
        }
        found.push(cluster);
    }
    let (large, small): (Vec<_>, Vec<_>) = found.into_iter().partition(|cluster| cluster.len() >= least);
    small.iter().flatten().for_each(|&site| image[site] = 0.0);
    let mut large = large;
    large.sort_by_key(|cluster| std::cmp::Reverse(cluster.len()));
    large
}

/// Voxels that share a face, an edge or a corner; z is fastest.
fn neighbours(site: usize, [nx, ny, nz]: [usize; 3]) -> impl Iterator<Item = usize> {
    let (x, y, z) = (site / (ny * nz), site / nz % ny, site % nz);
    let near = |at: usize, n: usize| at.saturating_sub(1)..(at + 2).min(n);
    let all =
        near(x, nx).flat_map(move |x| near(y, ny).flat_map(move |y| near(z, nz).map(move |z| (x * ny + y) * nz + z)));
    all.filter(move |other| *other != site)
}

/// The table as text, a line a peak, with as many digits as tell voxels of this space apart.
pub fn table(peaks: &[Peak], space: &Header) -> String {
    let header = "feature\tcluster\tx\ty\tz\tvalue\tz_score\tn_voxels\tvolume_mm3\n";
    let sizes = space.space.voxel_sizes();
    let digits = decimals(sizes.iter().copied().fold(f64::INFINITY, f64::min)).max(1);
    let of_volume = decimals(sizes.iter().product());
    let line = |peak: &Peak| {
        let Peak { feature, cluster, x, y, z, value, z_score, n_voxels, volume_mm3 } = peak;
        format!(
            "{feature}\t{cluster}\t{x:.digits$}\t{y:.digits$}\t{z:.digits$}\t{value:.4}\t{z_score:.2}\t{n_voxels}\t\
             {volume_mm3:.of_volume$}\n"
        )
    };
    header.to_string() + &peaks.iter().map(line).collect::<String>()
}

/// Digits after the point that show a tenth of a size below 1; none for larger ones.
fn decimals(size: f64) -> usize {
    let is_small = size > 0.0 && size < 1.0;
    if is_small { (1.0 - size.log10()).ceil() as usize } else { 0 }
}

/// Writes the table of a run.
pub fn write(features: &PersistentFeatures, space: &Header, folder: &Path) -> Result<()> {
    let found = find(features, space, Threshold::OfRun, USUAL_SIZE)?;
    write_atomically(&folder.join(FILE), table(&found.peaks, space).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By flooding from every voxel over and over: slow and obvious.
    fn labels(image: &[f32], grid: [usize; 3]) -> Vec<usize> {
        let mut label: Vec<usize> =
            (0..image.len()).map(|site| if image[site] == 0.0 { 0 } else { site + 1 }).collect();
        let places = |site: usize| [site / (grid[1] * grid[2]), site / grid[2] % grid[1], site % grid[2]];
        loop {
            let before = label.clone();
            for a in 0..image.len() {
                for b in 0..image.len() {
                    let touch = places(a).iter().zip(places(b)).all(|(i, j)| i.abs_diff(j) <= 1);
                    if touch && image[a] * image[b] > 0.0 {
                        label[a] = label[a].min(label[b]);
                    }
                }
            }
            if label == before {
                return label;
            }
        }
    }

    #[test]
    fn small_voxels_have_more_digits() {
        for (size, digits) in [(3.0, 0), (1.0, 0), (0.5, 2), (0.1, 2), (0.005, 4), (1.25e-7, 8), (0.0, 0)] {
            assert_eq!(decimals(size), digits, "{size}");
        }
    }

    #[test]
    fn clusters_are_those_of_a_flood() {
        let grid = [4, 3, 5];
        for seed in 0..20_usize {
            let value = |site: usize| ((site * 7919 + seed * 104_729) % 11) as f32 - 5.0;
            let image: Vec<f32> = (0..60).map(|site| if value(site).abs() < 3.0 { 0.0 } else { value(site) }).collect();
            let expected = labels(&image, grid);
            let mut kept = image.clone();
            let found = clusters(&mut kept, grid, 1);
            assert_eq!(kept, image);
            for cluster in &found {
                let label = expected[cluster[0]];
                assert_eq!(cluster.len(), expected.iter().filter(|other| **other == label).count());
                assert!(label > 0 && cluster.iter().all(|site| expected[*site] == label));
            }
            assert_eq!(found.iter().map(Vec::len).sum::<usize>(), image.iter().filter(|x| **x != 0.0).count());
            assert!(found.windows(2).all(|pair| pair[0].len() >= pair[1].len()));
            let large = clusters(&mut kept, grid, 4);
            assert_eq!(large.iter().map(Vec::len).sum::<usize>(), kept.iter().filter(|x| **x != 0.0).count());
            assert!(large.iter().all(|cluster| cluster.len() >= 4));
        }
    }
}
