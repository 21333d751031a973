//! Any graph or symmetric positive semi-definite matrix from a file; the basis is its eigenvectors, found once.
//!
//! A square table is the matrix itself (a Laplacian, a precision). A table of two or three columns is a list of edges
//! `i,j[,weight]`, sites counted from 0, and stands for the Laplacian of its graph.

use super::dense::Dense;
use super::{Basis, Direction};
use crate::data::{memory, read};
use crate::error::{Error, Result, setting};
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::eigen::{Eigen, symmetric_eigen};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Differences and negative eigenvalues up to this share of the largest are taken for rounding.
const ROUNDING: f64 = 1e-10;

/// The largest number whose squares can still be added up.
const LARGEST: f64 = 1e140;

/// The format of stored decompositions.
const FORMAT: u32 = 2;

/// A graph's file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// Where it was.
    pub path: PathBuf,
    /// Of its bytes.
    pub checksum: String,
    /// Rows of the matrix.
    pub n_sites: usize,
}

/// The eigenvectors of a matrix, with its eigenvalues in ascending order.
#[derive(Clone, Debug)]
pub struct Graph {
    file: GraphFile,
    decomposition: Arc<Decomposition>,
}

#[derive(Debug)]
struct Decomposition {
    eigenvalues: Vec<f64>,
    vectors: Dense,
}

/// Where decompositions are found again, and who hears of slow ones.
pub struct Shelf<'a> {
    /// Folders that may hold decompositions.
    folders: Vec<PathBuf>,
    /// Files of a run that exists: its decomposition is taken even where the file has changed or gone.
    known: Vec<GraphFile>,
    tell: &'a (dyn Fn(&str) + Sync),
    /// What was opened since the shelf was made: a graph that is asked for again is not decomposed again.
    opened: Mutex<Vec<Graph>>,
}

impl Shelf<'_> {
    fn new<'a>(folders: Vec<PathBuf>, known: &[GraphFile], tell: &'a (dyn Fn(&str) + Sync)) -> Shelf<'a> {
        Shelf { folders, known: known.to_vec(), tell, opened: Mutex::default() }
    }

    /// No shelf: everything is computed, quietly.
    pub fn none() -> Shelf<'static> {
        Shelf::new(Vec::new(), &[], &|_| {})
    }

    /// The shelf of a run or simulation that exists.
    pub fn of(folder: &Path, known: &[GraphFile]) -> Shelf<'static> {
        Shelf::new(vec![Shelf::inside(folder)], known, &|_| {})
    }

    /// The folder of decompositions within a run or simulation.
    pub fn inside(folder: &Path) -> PathBuf {
        folder.join("structure")
    }

    /// The shelves of all folders beside `folder`, its own included.
    pub fn beside<'a>(folder: &Path, tell: &'a (dyn Fn(&str) + Sync)) -> Shelf<'a> {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let entries = absolute.parent().and_then(|parent| fs::read_dir(parent).ok());
        let mut folders: Vec<PathBuf> =
            entries.into_iter().flatten().flatten().map(|entry| Shelf::inside(&entry.path())).collect();
        folders.retain(|folder| folder.is_dir());
        folders.sort();
        Shelf::new(folders, &[], tell)
    }

    fn find(&self, file: &GraphFile) -> Option<Graph> {
        let opened = self.opened.lock().expect("nobody panics while holding the list");
        if let Some(graph) = opened.iter().find(|graph| graph.file == *file) {
            return Some(graph.clone());
        }
        self.folders.iter().find_map(|folder| Graph::load(&folder.join(file.stored_name()), file).ok())
    }
}

impl GraphFile {
    fn stored_name(&self) -> String {
        format!("graph-{}-{}.safetensors", self.checksum, self.n_sites)
    }
}

impl Graph {
    /// Reads the file, or finds what was made from it before. `n_from_grid` may exceed the sites that edges name.
    pub fn open(path: &Path, n_from_grid: Option<usize>, shelf: &Shelf) -> Result<Graph> {
        let graph = Graph::find_or_decompose(path, n_from_grid, shelf)?;
        shelf.opened.lock().expect("nobody panics while holding the list").push(graph.clone());
        Ok(graph)
    }

    fn find_or_decompose(path: &Path, n_from_grid: Option<usize>, shelf: &Shelf) -> Result<Graph> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let known = shelf.known.iter().find(|file| file.path == path);
        if let Some(graph) = known.and_then(|file| shelf.find(file)) {
            return Ok(graph);
        }
        let checksum = read::checksum(&path).map_err(|error| match known {
            Some(file) => {
                let copy = file.stored_name();
                error.with_remedy(format!(
                    "the run's own copy of its eigenvectors, structure/{copy}, is missing or damaged"
                ))
            }
            None => error,
        })?;
        if let Some(known) = known
            && known.checksum != checksum
        {
            let problem = format!(
                "has changed since the run was made (checksum {checksum} now, {} then), and the run's own copy of its \
                 eigenvectors, structure/{}, is missing or damaged; put the old file back, or fit again",
                known.checksum,
                known.stored_name()
            );
            return Err(Error::malformed(&path, problem));
        }
        let matrix = Matrix::read(&path, n_from_grid.or(known.map(|file| file.n_sites)))?;
        let file = GraphFile { path, checksum, n_sites: matrix.n };
        match shelf.find(&file) {
            Some(graph) => Ok(graph),
            None => Graph::decompose(file, &matrix, shelf.tell),
        }
    }

    /// `vectors` is row-major, sites x modes.
    fn new(file: GraphFile, eigenvalues: Vec<f64>, vectors: Vec<f64>) -> Graph {
        let vectors = Dense::new(eigenvalues.len(), vectors);
        Graph { file, decomposition: Arc::new(Decomposition { eigenvalues, vectors }) }
    }

    fn decompose(file: GraphFile, matrix: &Matrix, tell: &(dyn Fn(&str) + Sync)) -> Result<Graph> {
        let Eigen { mut values, vectors } = patiently(matrix, &file.path, tell);
        let largest = values.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        if values[0] < -ROUNDING * largest {
            let hint = if matrix.looks_like_adjacency() {
                "this looks like an adjacency matrix: give its Laplacian (degrees on the diagonal, minus the weights \
                 elsewhere) or a list of edges i,j,weight"
            } else if matrix.n <= 3 {
                "a square table is a matrix; a list of edges of this size needs the header i,j,weight"
            } else {
                "give a Laplacian, a precision matrix, or a list of edges i,j,weight"
            };
            let problem = format!(
                "is not positive semi-definite: its smallest eigenvalue is {:.6e}, its largest {:.6e}; {hint}",
                values[0],
                values[matrix.n - 1]
            );
            return Err(Error::malformed(&file.path, problem));
        }
        let negligible = matrix.n as f64 * f64::EPSILON * largest;
        values.iter_mut().filter(|x| **x <= negligible).for_each(|x| *x = 0.0);
        Ok(Graph::new(file, values, vectors))
    }

    /// What was read, to be recorded.
    pub fn file(&self) -> &GraphFile {
        &self.file
    }

    /// Keeps the decomposition in a folder, under its checksum.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let path = folder.join(self.file.stored_name());
        if Graph::load(&path, &self.file).is_ok() {
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(Error::write(folder))?;
        let n = self.n_sites();
        let mut bundle = Bundle::default();
        bundle.note("format", FORMAT.to_string());
        bundle.note("of", &self.file.checksum);
        bundle.put("eigenvalues", &[n], &self.decomposition.eigenvalues);
        bundle.put("eigenvectors", &[n, n], self.decomposition.vectors.matrix());
        bundle.save(&path)
    }

    fn load(path: &Path, file: &GraphFile) -> Result<Graph> {
        let stored = Stored::open(path)?;
        if stored.text("format")? != FORMAT.to_string() {
            let found = stored.text("format")?.to_string();
            return Err(Error::OtherFormat { path: path.to_path_buf(), found, supported: FORMAT });
        }
        let n = file.n_sites;
        let (eigenvalues, vectors) = (stored.values("eigenvalues", &[n])?, stored.values("eigenvectors", &[n, n])?);
        let is_sound = |x: &f64| (0.0..f64::INFINITY).contains(x);
        let is_of_file = stored.text("of")? == file.checksum;
        if !is_of_file || !eigenvalues.iter().all(is_sound) || !vectors.iter().all(|x: &f64| x.abs() <= 1.5) {
            return Err(stored.damaged("it does not hold eigenvectors of this graph"));
        }
        Ok(Graph::new(file.clone(), eigenvalues, vectors))
    }
}

/// The decomposition, with word of it where it takes long: the time grows as n^3, measured on a small part.
fn patiently(matrix: &Matrix, path: &Path, tell: &(dyn Fn(&str) + Sync)) -> Eigen {
    const SMALL: usize = 200;
    let n = matrix.n;
    if n <= 2 * SMALL {
        return symmetric_eigen(&matrix.values, n);
    }
    let corner: Vec<f64> = (0..SMALL * SMALL).map(|at| matrix.values[at / SMALL * n + at % SMALL]).collect();
    let start = Instant::now();
    symmetric_eigen(&corner, SMALL);
    let expected = start.elapsed().as_secs_f64() * (n as f64 / SMALL as f64).powi(3);
    if expected < 2.0 {
        return symmetric_eigen(&matrix.values, n);
    }
    tell(&format!("{}: eigenvectors of {n} x {n}, once: about {expected:.0} s", path.display()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (done, waiting) = mpsc::channel();
        scope.spawn(move || done.send(symmetric_eigen(&matrix.values, n)));
        loop {
            match waiting.recv_timeout(Duration::from_secs(5)) {
                Ok(eigen) => return eigen,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let spent = start.elapsed().as_secs_f64();
                    tell(&format!("eigenvectors: {spent:.0} s of about {expected:.0} s"));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => unreachable!("the worker sends before it ends"),
            }
        }
    })
}

impl Basis for Graph {
    fn n_sites(&self) -> usize {
        self.decomposition.eigenvalues.len()
    }

    fn word(&self) -> String {
        super::expression::graph_word(&self.file.path)
    }

    fn eigenvalues(&self) -> &[f64] {
        &self.decomposition.eigenvalues
    }

    fn cost(&self) -> &'static str {
        "n^2 (and n^3 once)"
    }

    fn neighbours_are_close(&self) -> bool {
        false
    }

    fn graph(&self) -> Option<&Graph> {
        Some(self)
    }

    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        self.decomposition.vectors.apply(direction, values, inner, scratch);
    }
}

/// A symmetric matrix, row-major.
#[derive(Debug)]
struct Matrix {
    n: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn read(path: &Path, n_from_grid: Option<usize>) -> Result<Matrix> {
        let source = read::open(path)?;
        let (n_rows, n_columns) = (source.n_rows(), source.n_sites());
        let as_table = source.grid().is_none();
        let is_square = as_table && n_rows == n_columns && !source.has_header();
        if !is_square && !(as_table && (n_columns == 2 || n_columns == 3)) {
            if source.has_header() {
                let problem = format!(
                    "has a header, so it is a list of edges i,j[,weight], but it has {n_columns} columns; leave the \
                     header out of a matrix"
                );
                return Err(Error::malformed(path, problem));
            }
            let problem = format!(
                "is {n_rows} x {n_columns}; a graph is a square symmetric matrix, or a list of edges with 2 or 3 columns \
                 i,j[,weight]"
            );
            return Err(Error::malformed(path, problem));
        }
        let n = if is_square { n_rows } else { n_from_grid.unwrap_or(0) };
        check_memory(path, n)?;
        let mut values = vec![0.0; n_rows * n_columns];
        source.read_rows(0, &mut values)?;
        if let Some(at) = values.iter().position(|x| !x.is_finite()) {
            let (row, column, value) = (at / n_columns, at % n_columns, values[at]);
            let problem =
                format!("row {row}, column {column} is {value} (counting from 0); a graph has finite numbers");
            return Err(Error::malformed(path, problem));
        }
        let matrix = if is_square {
            Matrix::symmetric(path, n_rows, values)?
        } else {
            laplacian(path, &values, n_columns, n_from_grid)?
        };
        match matrix.values.iter().find(|x| x.abs() > LARGEST) {
            Some(x) => Err(Error::malformed(path, format!("holds or adds up to {x:e}; weights may reach {LARGEST:e}"))),
            None => Ok(matrix),
        }
    }

    fn symmetric(path: &Path, n: usize, mut values: Vec<f64>) -> Result<Matrix> {
        let largest = values.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let differ = |&(i, j): &(usize, usize)| (values[i * n + j] - values[j * n + i]).abs() > ROUNDING * largest;
        if let Some((i, j)) = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).find(differ) {
            let problem = format!(
                "is not symmetric: row {i}, column {j} is {}, but row {j}, column {i} is {} (counting from 0){}",
                values[i * n + j],
                values[j * n + i],
                if n <= 3 { "; a list of edges of this size needs the header i,j,weight" } else { "" }
            );
            return Err(Error::malformed(path, problem));
        }
        for i in 0..n {
            for j in 0..i {
                let mean = 0.5 * (values[i * n + j] + values[j * n + i]);
                (values[i * n + j], values[j * n + i]) = (mean, mean);
            }
        }
        Ok(Matrix { n, values })
    }

    fn looks_like_adjacency(&self) -> bool {
        (0..self.n).all(|i| self.values[i * self.n + i] == 0.0) && self.values.iter().all(|&x| x >= 0.0)
    }
}

/// What a graph of n sites takes at its peak, in matrices: itself, the reflectors and, where two halves of the decomposition are put
/// together, both halves' vectors, their combination and what it is made of.
const MATRICES: u64 = 7;

/// Refuses a graph that memory cannot hold while it is decomposed.
fn check_memory(path: &Path, n: usize) -> Result<()> {
    memory::check(&format!("the graph {}", path.display()), (n as u64).pow(2).saturating_mul(MATRICES * 8))
}

/// An edge as it was first given.
struct Edge {
    weight: f64,
    number: usize,
    direction: (f64, f64),
}

/// The Laplacian of a list of edges. An edge given in both directions with one weight counts once.
fn laplacian(path: &Path, table: &[f64], n_columns: usize, n_from_grid: Option<usize>) -> Result<Matrix> {
    let mut edges: HashMap<(usize, usize), Edge> = HashMap::new();
    let mut n_named = 0;
    for (at, cells) in table.chunks_exact(n_columns).enumerate() {
        let wrong = |problem: String| Error::malformed(path, format!("edge {} ({cells:?}): {problem}", at + 1));
        if let Some(odd) = cells[..2].iter().find(|x| x.fract() != 0.0 || **x < 0.0 || **x > 1e9) {
            return Err(wrong(format!("{odd} is not a site; sites are whole numbers counted from 0")));
        }
        let (i, j, weight) = (cells[0] as usize, cells[1] as usize, *cells.get(2).unwrap_or(&1.0));
        if let Some(n) = n_from_grid
            && i.max(j) >= n
        {
            return Err(wrong(format!("site {} is not on this axis of {n} sites, counted from 0", i.max(j))));
        }
        if i == j {
            return Err(wrong("joins a site with itself; leave it out".into()));
        }
        if weight <= 0.0 {
            return Err(wrong(format!("the weight {weight} is not positive; leave edges without weight out")));
        }
        let direction = (cells[0], cells[1]);
        match edges.get(&(i.min(j), i.max(j))) {
            Some(Edge { weight: other, number: first, direction: before })
                if *other != weight || *before == direction =>
            {
                return Err(wrong(format!("the same sites were joined by edge {first} with weight {other}")));
            }
            _ => edges.insert((i.min(j), i.max(j)), Edge { weight, number: at + 1, direction }),
        };
        n_named = n_named.max(i.max(j) + 1);
    }
    if n_from_grid.is_none() && !edges.keys().any(|ends| ends.0 == 0) {
        let give_grid = format!("if site 0 stands alone, give {}", setting("grid"));
        let problem = format!("no edge names site 0: sites are counted from 0; {give_grid}");
        return Err(Error::malformed(path, problem));
    }
    let n = n_from_grid.unwrap_or(n_named);
    check_memory(path, n)?;
    let mut values = vec![0.0; n * n];
    let mut list: Vec<_> = edges.into_iter().map(|(ends, edge)| (ends, edge.weight)).collect();
    // In order, so that degrees are the same sums every time.
    list.sort_by_key(|(ends, _)| *ends);
    for ((i, j), weight) in list {
        values[i * n + i] += weight;
        values[j * n + j] += weight;
        values[i * n + j] = -weight;
        values[j * n + i] = -weight;
    }
    Ok(Matrix { n, values })
}

#[cfg(test)]
mod tests {
    use super::super::checks::check_basis;
    use super::*;
    use crate::data::write::write_npy_f64;

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.csv");
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn problem(text: &str, n: Option<usize>) -> String {
        let (_folder, path) = written(text);
        Graph::open(&path, n, &Shelf::none()).unwrap_err().to_string()
    }

    #[test]
    fn edges_and_matrices_are_diagonalised() {
        let edges = [(0, 1, 1.0), (1, 2, 0.5), (2, 3, 2.0), (3, 0, 1.0), (1, 3, 3.0)];
        let laplacian = super::super::checks::laplacian(5, &edges);
        let lines: String = edges.iter().map(|(i, j, w)| format!("{i},{j},{w}\n")).collect();
        let (_folder, path) = written(&lines);
        let graph = Graph::open(&path, Some(5), &Shelf::none()).unwrap();
        check_basis(&graph, &laplacian);
        assert_eq!(graph.eigenvalues().iter().filter(|x| **x == 0.0).count(), 2, "the lone site is a part of its own");
        let matrix = path.with_extension("npy");
        write_npy_f64(&matrix, &[5, 5], &laplacian).unwrap();
        check_basis(&Graph::open(&matrix, None, &Shelf::none()).unwrap(), &laplacian);
        let (_folder, both) = written(&format!("i,j,weight\n{lines}1,0,1\n"));
        let graph = Graph::open(&both, Some(5), &Shelf::none()).unwrap();
        check_basis(&graph, &laplacian);
        // Two edges with a header are a list, not a 2 x 2 matrix.
        let (_folder, short) = written("i,j\n0,1\n1,2\n");
        assert_eq!(Graph::open(&short, None, &Shelf::none()).unwrap().n_sites(), 3);
    }

    #[test]
    fn larger_matrices_too() {
        let n = 137;
        let half: Vec<f64> = (0..n * n).map(|i| (i as f64 * 0.37).sin()).collect();
        let square: Vec<f64> = (0..n * n)
            .map(|at| (0..n).map(|k| half[at / n * n + k] * half[at % n * n + k]).sum::<f64>() / 9.0)
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.npy");
        write_npy_f64(&path, &[n, n], &square).unwrap();
        check_basis(&Graph::open(&path, None, &Shelf::none()).unwrap(), &square);
    }

    #[test]
    fn what_is_no_graph_is_refused_with_its_values() {
        let skew = problem("1,2,0,0\n2.5,4,0,0\n0,0,1,0\n0,0,0,1\n", None);
        assert!(skew.contains("row 1, column 0 is 2.5") && skew.contains("row 0, column 1 is 2"), "{skew}");
        let adjacency = problem("0,1,0,1\n1,0,1,0\n0,1,0,1\n1,0,1,0\n", None);
        assert!(adjacency.contains("-2.000000e0") && adjacency.contains("adjacency"), "{adjacency}");
        let indefinite = problem("1,2,0,0\n2,1,0,0\n0,0,1,0\n0,0,0,1\n", None);
        assert!(indefinite.contains("-1.000000e0"), "{indefinite}");
        assert!(problem("1,2\n2,1\n", None).contains("header i,j,weight"));
        assert!(problem("1,2,3,4\n1,2,3,4\n", None).contains("2 x 4"));
        assert!(problem("0,1\n1,1\n2,0\n", None).contains("itself"));
        assert!(problem("0,1,1\n1,2,-3\n", None).contains("-3"));
        assert!(problem("0,1,1\n1,0,2\n", None).contains("edge 1"));
        assert!(problem("0,1,1\n0,1,1\n", None).contains("edge 1"));
        assert!(problem("0,1.5\n0,1\n0,2\n", None).contains("1.5"));
        assert!(problem("0,1\n1,4\n0,2\n", Some(4)).contains("site 4"));
        assert!(problem("0,1,nan\n1,2,1\n", None).contains("NaN"));
        assert!(problem("1,2\n2,3\n3,4\n", None).contains("counted from 0"));
        assert!(problem("i,j,w,x\n1,2,1,1\n", None).contains("header"));
        assert!(problem("0,1,1e308\n1,2,1e308\n2,3,1\n0,3,1\n", None).contains("1e140"));
    }

    #[test]
    fn decompositions_are_found_again_by_checksum() {
        let (folder, path) = written("0,1\n1,2\n2,3\n");
        let graph = Graph::open(&path, None, &Shelf::none()).unwrap();
        let run = folder.path().join("run");
        graph.save(&Shelf::inside(&run)).unwrap();
        let shelf = Shelf::none();
        let [once, twice] = [0, 1].map(|_| Graph::open(&path, None, &shelf).unwrap());
        assert!(Arc::ptr_eq(&once.decomposition, &twice.decomposition), "decomposed once for one shelf");
        let known = [graph.file().clone()];
        let shelf = Shelf::of(&run, &known);
        let again = Graph::open(&path, None, &shelf).unwrap();
        assert_eq!(
            (again.eigenvalues(), again.decomposition.vectors.matrix()),
            (graph.eigenvalues(), graph.decomposition.vectors.matrix())
        );
        // A run keeps its own graph when the file changes or goes; without its decomposition the change is refused.
        fs::write(&path, "0,1\n1,2\n2,3\n3,0\n").unwrap();
        assert_eq!(Graph::open(&path, None, &shelf).unwrap().eigenvalues(), graph.eigenvalues());
        fs::remove_dir_all(&run).unwrap();
        let shelf = Shelf::of(&run, &known);
        assert!(Graph::open(&path, None, &shelf).unwrap_err().to_string().contains("has changed"));
        let beside = Shelf::beside(&run, &|_| {});
        assert!(beside.folders.is_empty());
    }
}
