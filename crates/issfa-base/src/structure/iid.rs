//! No structure: every site on its own (the model of Knowles and Ghahramani).

use super::{Basis, Direction};

/// The identity basis; all eigenvalues are zero.
#[derive(Debug)]
pub struct Iid {
    eigenvalues: Vec<f64>,
}

impl Iid {
    /// `n` unrelated sites.
    pub fn new(n: usize) -> Iid {
        Iid { eigenvalues: vec![0.0; n] }
    }
}

impl Basis for Iid {
    fn n_sites(&self) -> usize {
        self.eigenvalues.len()
    }

    fn word(&self) -> String {
        format!("iid({})", self.n_sites())
    }

    fn eigenvalues(&self) -> &[f64] {
        &self.eigenvalues
    }

    fn cost(&self) -> &'static str {
        "1"
    }

    fn apply(&self, _direction: Direction, _values: &mut [f64], _inner: usize, _scratch: &mut Vec<f64>) {}
}

#[cfg(test)]
mod tests {
    use super::super::checks::check_basis;
    use super::*;

    #[test]
    fn the_identity_diagonalises_zero() {
        for n in [1, 5] {
            check_basis(&Iid::new(n), &vec![0.0; n * n]);
        }
    }
}
