//! Activations and weights together: which features each row uses, how strongly, and the counts that follow.

use super::Sharing;
use crate::numeric::bytes::Element;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// One active feature of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The place of the feature.
    pub feature: usize,
    /// Its weight.
    pub weight: f64,
}

/// The sparse matrix `W = A o Z`, by rows; entries of a row are sorted by feature. Where ranks hold other rows, each knows the
/// loadings of its own alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Loadings {
    /// Of all ranks.
    n_rows: usize,
    /// The first row that is here.
    first: usize,
    rows: Vec<Vec<Entry>>,
    /// m_k: how many rows use each feature, wherever they are.
    counts: Vec<usize>,
}

impl Loadings {
    /// `n_rows` rows without any feature.
    pub fn empty(n_rows: usize) -> Loadings {
        Loadings { n_rows, first: 0, rows: vec![Vec::new(); n_rows], counts: Vec::new() }
    }

    /// Rows of entries over `n_features` features.
    pub fn from_rows(mut rows: Vec<Vec<Entry>>, n_features: usize) -> Loadings {
        rows.iter_mut().for_each(|row| row.sort_unstable_by_key(|entry| entry.feature));
        let counts = count(&rows, n_features);
        Loadings { n_rows: rows.len(), first: 0, rows, counts }
    }

    /// Those of some rows, out of all.
    pub fn part(self, rows: Range<usize>) -> Loadings {
        assert_eq!(self.rows.len(), self.n_rows, "a part is taken of all rows");
        if rows.len() == self.n_rows {
            return self;
        }
        let n_here = rows.len();
        Loadings { first: rows.start, rows: self.rows.into_iter().skip(rows.start).take(n_here).collect(), ..self }
    }

    /// Those of all rows, on every rank.
    pub fn everywhere(&self, sharing: &Sharing) -> Loadings {
        if self.rows.len() == self.n_rows && !sharing.layout().cuts_rows() {
            return self.clone();
        }
        self.joined(&sharing.bytes_from_lines(self.to_bytes()))
    }

    /// Those of all rows, on rank 0 alone; elsewhere `None`.
    pub fn gathered(&self, sharing: &Sharing) -> Option<Loadings> {
        if !sharing.layout().cuts_rows() {
            return (sharing.all().rank() == 0).then(|| self.clone());
        }
        let lines = sharing.bytes_from_lines_to_rank_0(self.to_bytes());
        (sharing.all().rank() == 0).then(|| self.joined(&lines))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in &self.rows {
            u32::append(&[row.len() as u32], &mut bytes);
            for entry in row {
                u32::append(&[entry.feature as u32], &mut bytes);
                f64::append(&[entry.weight], &mut bytes);
            }
        }
        bytes
    }

    /// Of all rows, from what lines know of theirs.
    fn joined(&self, lines: &[Vec<u8>]) -> Loadings {
        let mut rows = Vec::with_capacity(self.n_rows);
        for mut bytes in lines.iter().map(|line| &line[..]) {
            while let Some((n, rest)) = bytes.split_first_chunk() {
                let (entries, rest) = rest.split_at(12 * u32::from_le_bytes(*n) as usize);
                let entry = |bytes: &[u8]| {
                    let (feature, weight) = bytes.split_at(4);
                    Entry { feature: u32::read(feature)[0] as usize, weight: f64::read(weight)[0] }
                };
                rows.push(entries.chunks_exact(12).map(entry).collect());
                bytes = rest;
            }
        }
        assert_eq!(rows.len(), self.n_rows, "lines know all rows between them");
        Loadings { n_rows: self.n_rows, first: 0, rows, counts: self.counts.clone() }
    }

    /// A checksum of the rows that are here.
    pub fn digest(&self) -> u64 {
        xxh3_64(&self.to_bytes())
    }

    /// T, wherever the rows are.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// The rows that are here.
    pub fn here(&self) -> Range<usize> {
        self.first..self.first + self.rows.len()
    }

    /// K.
    pub fn n_features(&self) -> usize {
        self.counts.len()
    }

    /// The active features of a row that is here.
    pub fn row(&self, row: usize) -> &[Entry] {
        &self.rows[row - self.first]
    }

    /// All rows that are here, in order.
    pub fn rows(&self) -> &[Vec<Entry>] {
        &self.rows
    }

    /// Some of the rows that are here.
    pub fn some(&self, rows: Range<usize>) -> &[Vec<Entry>] {
        &self.rows[rows.start - self.first..rows.end - self.first]
    }

    /// The entries that are here, row by row.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        (self.first..).zip(&self.rows).flat_map(|(row, entries)| entries.iter().map(move |entry| (row, entry)))
    }

    /// How many rows use each feature, wherever they are.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// How many entries there are, wherever they are.
    pub fn n_active(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Features that two or more rows use.
    pub fn n_shared(&self) -> usize {
        self.counts.iter().filter(|&&count| count > 1).count()
    }

    /// Lets `edit` change the rows that are here (keeping them sorted), then counts again. All ranks together.
    pub fn edit_rows(&mut self, sharing: &Sharing, edit: impl FnOnce(&mut [Vec<Entry>])) {
        edit(&mut self.rows);
        self.counts = count(&self.rows, self.counts.len());
        self.add_up_counts(sharing, &(0..self.counts.len()).collect::<Vec<_>>());
    }

    /// Makes counts of the rows here counts of all rows, for some features.
    fn add_up_counts(&mut self, sharing: &Sharing, features: &[usize]) {
        if sharing.layout().cuts_rows() {
            let mut counts: Vec<i64> = features.iter().map(|&feature| self.counts[feature] as i64).collect();
            sharing.sum_over_lines(&mut counts);
            features.iter().zip(counts).for_each(|(&feature, count)| self.counts[feature] = count as usize);
        }
    }

    /// Appends a feature used by one row only, wherever that is.
    pub fn push_unique(&mut self, row: usize, weight: f64) {
        let feature = self.counts.len();
        if self.here().contains(&row) {
            self.rows[row - self.first].push(Entry { feature, weight });
        }
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

    /// Gives every row that is here new weights of two features, or none. All ranks together.
    pub fn set_pair(&mut self, sharing: &Sharing, pair: [usize; 2], weights: impl Iterator<Item = [Option<f64>; 2]>) {
        pair.iter().for_each(|&feature| self.counts[feature] = 0);
        for (row, weights) in self.rows.iter_mut().zip(weights) {
            for (feature, weight) in pair.into_iter().zip(weights) {
                set(row, feature, weight);
                self.counts[feature] += usize::from(weight.is_some());
            }
        }
        self.add_up_counts(sharing, &pair);
    }

    /// Takes a feature from those that use it and gives it to others; each list has all of them, wherever they are.
    pub fn set_users(&mut self, feature: usize, former: &[usize], users: &[(usize, f64)]) {
        let here = self.here();
        for row in former.iter().filter(|row| here.contains(row)) {
            set(&mut self.rows[row - self.first], feature, None);
        }
        for (row, weight) in users.iter().filter(|(row, _)| here.contains(row)) {
            set(&mut self.rows[row - self.first], feature, Some(*weight));
        }
        self.counts[feature] = users.len();
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
        moves.iter().for_each(|&(from, to)| self.counts[to] = self.counts[from]);
        self.counts.truncate(n_features);
    }

    /// `W W'` of all rows in one place, row-major.
    pub fn row_gram(&self) -> Vec<f64> {
        assert_eq!(self.rows.len(), self.n_rows, "all rows are needed");
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

    /// `W'W` over the rows that are here, row-major.
    pub fn gram(&self) -> Vec<f64> {
        self.gram_of(self.here())
    }

    /// `W'W` over all rows, band by band, on rank 0 alone; elsewhere `None`. All ranks together.
    pub fn gram_on_rank_0(&self, sharing: &Sharing) -> Option<Vec<f64>> {
        let (layout, is_first) = (sharing.layout(), sharing.all().rank() == 0);
        if !layout.cuts_rows() && !is_first {
            return None;
        }
        let bands: Vec<f64> = layout.bands_here().flat_map(|(_, rows)| self.gram_of(rows)).collect();
        let mut sums = vec![0.0; self.counts.len().pow(2)];
        for (at, line) in sharing.bytes_from_lines_to_rank_0(f64::write(&bands)).iter().enumerate() {
            for (band, gram) in f64::read(line).chunks_exact(sums.len().max(1)).enumerate() {
                if (at, band) == (0, 0) {
                    sums.copy_from_slice(gram);
                } else {
                    sums.iter_mut().zip(gram).for_each(|(sum, x)| *sum += x);
                }
            }
        }
        is_first.then_some(sums)
    }

    /// `W'W` over some of the rows that are here.
    pub fn gram_of(&self, rows: Range<usize>) -> Vec<f64> {
        let k = self.counts.len();
        let mut gram = vec![0.0; k * k];
        for row in self.some(rows) {
            for a in row {
                row.iter().for_each(|b| gram[a.feature * k + b.feature] += a.weight * b.weight);
            }
        }
        gram
    }
}

/// Gives a row a new weight of a feature, or none.
fn set(row: &mut Vec<Entry>, feature: usize, weight: Option<f64>) {
    let place = row.binary_search_by_key(&feature, |entry| entry.feature);
    match (place, weight) {
        (Ok(at), Some(weight)) => row[at].weight = weight,
        (Err(at), Some(weight)) => row.insert(at, Entry { feature, weight }),
        (Ok(at), None) => _ = row.remove(at),
        (Err(_), None) => {}
    }
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
        let alone = Sharing::none(3, 1);
        loadings.edit_rows(&alone, |rows| rows[2].push(entry(2, 1.0)));
        assert_eq!((loadings.counts(), loadings.n_shared(), loadings.n_active()), (&[1, 1, 2][..], 1, 4));
        loadings.turn_signs(&[false, true, true]);
        assert_eq!(loadings.row(2), [entry(1, 1.0), entry(2, -1.0)]);
        let weights = [[Some(5.0), None], [None, Some(6.0)], [Some(7.0), Some(8.0)]];
        loadings.set_pair(&alone, [2, 0], weights.into_iter());
        let rows = [vec![entry(2, 5.0)], vec![entry(0, 6.0)], vec![entry(0, 8.0), entry(1, 1.0), entry(2, 7.0)]];
        assert_eq!(loadings, Loadings::from_rows(rows.to_vec(), 3));
        loadings.set_users(0, &[1, 2], &[(0, 4.0)]);
        assert_eq!((loadings.row(0), loadings.counts()), (&[entry(0, 4.0), entry(2, 5.0)][..], &[1, 1, 2][..]));
        let part = loadings.clone().part(1..3);
        assert_eq!((part.here(), part.n_rows(), part.row(2)), (1..3, 3, loadings.row(2)));
        assert_eq!(loadings.joined(&[loadings.to_bytes()]), loadings);
    }
}
