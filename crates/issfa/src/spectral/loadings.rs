//! Activations and weights together: which features each row uses, how strongly, and the counts that follow.

/// One active feature of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The place of the feature.
    pub feature: usize,
    /// Its weight.
    pub weight: f64,
}

/// The sparse matrix `W = A o Z`, by rows; entries of a row are sorted by feature.
#[derive(Clone, Debug, PartialEq)]
pub struct Loadings {
    rows: Vec<Vec<Entry>>,
    /// m_k: how many rows use each feature.
    counts: Vec<usize>,
}

impl Loadings {
    /// `n_rows` rows without any feature.
    pub fn empty(n_rows: usize) -> Loadings {
        Loadings { rows: vec![Vec::new(); n_rows], counts: Vec::new() }
    }

    /// Rows of entries over `n_features` features.
    pub fn from_rows(mut rows: Vec<Vec<Entry>>, n_features: usize) -> Loadings {
        rows.iter_mut().for_each(|row| row.sort_unstable_by_key(|entry| entry.feature));
        let counts = count(&rows, n_features);
        Loadings { rows, counts }
    }

    /// T.
    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    /// K.
    pub fn n_features(&self) -> usize {
        self.counts.len()
    }

    /// The active features of a row.
    pub fn row(&self, row: usize) -> &[Entry] {
        &self.rows[row]
    }

    /// All rows in order.
    pub fn rows(&self) -> &[Vec<Entry>] {
        &self.rows
    }

    /// How many rows use each feature.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// How many entries there are.
    pub fn n_active(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Features that two or more rows use.
    pub fn n_shared(&self) -> usize {
        self.counts.iter().filter(|&&count| count > 1).count()
    }

    /// Lets `edit` change the rows (keeping them sorted), then counts again.
    pub fn edit_rows(&mut self, edit: impl FnOnce(&mut [Vec<Entry>])) {
        edit(&mut self.rows);
        self.counts = count(&self.rows, self.counts.len());
    }

    /// Appends a feature used by one row only.
    pub fn push_unique(&mut self, row: usize, weight: f64) {
        let feature = self.counts.len();
        self.rows[row].push(Entry { feature, weight });
        self.counts.push(1);
    }

    /// Multiplies every weight by `factor`.
    pub fn scale(&mut self, factor: f64) {
        self.rows.iter_mut().flatten().for_each(|entry| entry.weight *= factor);
    }

    /// Turns the signs of some features' weights.
    pub fn turn_signs(&mut self, turned: &[bool]) {
        let entries = self.rows.iter_mut().flatten().filter(|entry| turned[entry.feature]);
        entries.for_each(|entry| entry.weight = -entry.weight);
    }

    /// Gives every row new weights of two features, or none.
    pub fn set_pair(&mut self, pair: [usize; 2], weights: impl Iterator<Item = [Option<f64>; 2]>) {
        pair.iter().for_each(|&feature| self.counts[feature] = 0);
        for (row, weights) in self.rows.iter_mut().zip(weights) {
            for (feature, weight) in pair.into_iter().zip(weights) {
                set(row, feature, weight);
                self.counts[feature] += usize::from(weight.is_some());
            }
        }
    }

    /// Gives a row a new weight of a feature, or none.
    pub fn set(&mut self, row: usize, feature: usize, weight: Option<f64>) {
        let was_used = set(&mut self.rows[row], feature, weight);
        self.counts[feature] = self.counts[feature] + usize::from(weight.is_some()) - usize::from(was_used);
    }

    /// Drops the entries of `dead` features, moves `from` to `to` for each pair, keeps the first `n_features`.
    pub fn compact(&mut self, dead: &[usize], moves: &[(usize, usize)], n_features: usize) {
        let mut place: Vec<Option<usize>> = (0..self.counts.len()).map(Some).collect();
        dead.iter().for_each(|&feature| place[feature] = None);
        moves.iter().for_each(|&(from, to)| place[from] = Some(to));
        for row in &mut self.rows {
            row.retain_mut(|entry| match place[entry.feature] {
                Some(to) => {
                    entry.feature = to;
                    true
                }
                None => false,
            });
            row.sort_unstable_by_key(|entry| entry.feature);
        }
        self.counts = count(&self.rows, n_features);
    }

    /// `W W'`, row-major.
    pub fn row_gram(&self) -> Vec<f64> {
        let n = self.rows.len();
        let mut columns = vec![Vec::new(); self.counts.len()];
        for (row, entries) in self.rows.iter().enumerate() {
            entries.iter().for_each(|entry| columns[entry.feature].push((row, entry.weight)));
        }
        let mut gram = vec![0.0; n * n];
        for column in &columns {
            for &(a, weight) in column {
                column.iter().for_each(|&(b, other)| gram[a * n + b] += weight * other);
            }
        }
        gram
    }

    /// `W'W`, row-major.
    pub fn gram(&self) -> Vec<f64> {
        let k = self.counts.len();
        let mut gram = vec![0.0; k * k];
        for row in &self.rows {
            for a in row {
                row.iter().for_each(|b| gram[a.feature * k + b.feature] += a.weight * b.weight);
            }
        }
        gram
    }
}

/// Gives a row a new weight of a feature, or none; whether it had one.
fn set(row: &mut Vec<Entry>, feature: usize, weight: Option<f64>) -> bool {
    let place = row.binary_search_by_key(&feature, |entry| entry.feature);
    match (place, weight) {
        (Ok(at), Some(weight)) => row[at].weight = weight,
        (Err(at), Some(weight)) => row.insert(at, Entry { feature, weight }),
        (Ok(at), None) => _ = row.remove(at),
        (Err(_), None) => {}
    }
    place.is_ok()
}

fn count(rows: &[Vec<Entry>], n_features: usize) -> Vec<usize> {
    let mut counts = vec![0; n_features];
    rows.iter().flatten().for_each(|entry| counts[entry.feature] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(feature: usize, weight: f64) -> Entry {
        Entry { feature, weight }
    }

    #[test]
    fn counts_and_gram_follow_every_change() {
        let rows = vec![vec![entry(2, 3.0), entry(0, 1.0)], vec![entry(0, 2.0)], vec![entry(1, -1.0)]];
        let mut loadings = Loadings::from_rows(rows, 3);
        assert_eq!(loadings.counts(), [2, 1, 1]);
        assert_eq!(loadings.gram(), [5.0, 0.0, 3.0, 0.0, 1.0, 0.0, 3.0, 0.0, 9.0]);
        assert_eq!(loadings.row_gram(), [10.0, 2.0, 0.0, 2.0, 4.0, 0.0, 0.0, 0.0, 1.0]);
        loadings.push_unique(1, 7.0);
        assert_eq!(loadings.row(1), [entry(0, 2.0), entry(3, 7.0)]);
        loadings.compact(&[0], &[(3, 0)], 3);
        assert_eq!(loadings.row(1), [entry(0, 7.0)]);
        assert_eq!(loadings.row(0), [entry(2, 3.0)]);
        assert_eq!(loadings.counts(), [1, 1, 1]);
        loadings.edit_rows(|rows| rows[2].push(entry(2, 1.0)));
        assert_eq!((loadings.counts(), loadings.n_shared(), loadings.n_active()), (&[1, 1, 2][..], 1, 4));
        loadings.turn_signs(&[false, true, true]);
        assert_eq!(loadings.row(2), [entry(1, 1.0), entry(2, -1.0)]);
        let weights = [[Some(5.0), None], [None, Some(6.0)], [Some(7.0), Some(8.0)]];
        loadings.set_pair([2, 0], weights.into_iter());
        let rows = [vec![entry(2, 5.0)], vec![entry(0, 6.0)], vec![entry(0, 8.0), entry(1, 1.0), entry(2, 7.0)]];
        assert_eq!(loadings, Loadings::from_rows(rows.to_vec(), 3));
    }
}
