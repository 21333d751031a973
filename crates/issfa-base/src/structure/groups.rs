//! Fully connected groups: sites of one group are alike, groups know nothing of each other. One group is the complete
//! graph, `L = n I - 1 1'`.

use super::lines::for_each_line;
use super::wavelet::{Filter, transform_line};
use super::{Basis, Direction};

/// Within a group the basis is Haar's on an unbalanced tree: the mean first, then contrasts, in O(n). Eigenvalues: 0 for
/// a mean, the group's size for its contrasts.
#[derive(Debug)]
pub struct Groups {
    sizes: Vec<usize>,
    eigenvalues: Vec<f64>,
}

impl Groups {
    /// Groups of these sizes, side by side.
    pub fn new(sizes: Vec<usize>) -> Groups {
        assert!(!sizes.contains(&0), "a group has at least one site");
        let of_group = |&size: &usize| (0..size).map(move |mode| if mode == 0 { 0.0 } else { size as f64 });
        Groups { eigenvalues: sizes.iter().flat_map(of_group).collect(), sizes }
    }
}

impl Basis for Groups {
    fn n_sites(&self) -> usize {
        self.eigenvalues.len()
    }

    fn word(&self) -> String {
        format!("groups({})", self.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
    }

    fn eigenvalues(&self) -> &[f64] {
        &self.eigenvalues
    }

    fn cost(&self) -> &'static str {
        "n"
    }

    fn neighbours_are_close(&self) -> bool {
        false
    }

    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        let longest = self.sizes.iter().copied().max().unwrap_or(0);
        for_each_line(values, (self.n_sites(), inner), scratch, longest, |line, work| {
            let mut rest = line;
            for &size in &self.sizes {
                let (group, others) = rest.split_at_mut(size);
                transform_line(Filter::Haar, direction, group, work);
                rest = others;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{check_basis, laplacian};
    use super::*;

    #[test]
    fn groups_diagonalise_their_complete_graphs() {
        for sizes in [vec![1], vec![6], vec![8, 8, 5, 11], vec![1, 1, 3], vec![64, 2]] {
            let n = sizes.iter().sum();
            let mut edges = Vec::new();
            let mut first = 0;
            for &size in &sizes {
                let inside = first..first + size;
                edges.extend(inside.clone().flat_map(|i| (i + 1..inside.end).map(move |j| (i, j, 1.0))));
                first += size;
            }
            check_basis(&Groups::new(sizes), &laplacian(n, &edges));
        }
        assert_eq!(Groups::new(vec![2, 1]).word(), "groups(2,1)");
    }
}
