//! Fits that Python waits for: they run on threads of their own, other threads of Python go on, and signals and exceptions
//! of a callback stop them after the sweep.

use crate::fitted::PyFitted;
use crate::given::Given;
use crate::settings;
use crate::words::{self, to_python};
use issfa::fit::{Ending, Observer, Request, Session, Stop};
use issfa::run::folder::Output;
use issfa::run::held::Held;
use issfa::run::inputs;
use issfa::run::settings::parse_duration;
use issfa::run::trace::TraceRow;
use issfa::{Error, Fitted, Rows, Settings};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often signals are looked for.
const SLICE: Duration = Duration::from_millis(100);

/// A sweep that is done, as a callback sees it.
#[pyclass(frozen, get_all, module = "issfa")]
pub struct Sweep {
    /// From 1.
    chain: u32,
    /// From 1.
    sweep: u64,
    /// Sweeps of each chain.
    sweeps: u64,
    n_features: usize,
    n_shared: usize,
    n_activations: usize,
    noise_variance: f64,
    theta: Vec<f64>,
    ibp_strength: f64,
    ibp_repulsion: f64,
    ln_likelihood: f64,
    heldout_residual: Option<f64>,
    /// What it took.
    seconds: f64,
    /// Until the end of the last chain, about.
    seconds_left: f64,
}

#[pymethods]
impl Sweep {
    fn __repr__(&self) -> String {
        let Sweep { chain, sweep, sweeps, n_features, noise_variance, .. } = self;
        format!("<sweep {sweep} of {sweeps}, chain {chain}: {n_features} features, noise {noise_variance:.4}>")
    }
}

impl Sweep {
    fn new(row: &TraceRow, sweeps: u64, left: Duration) -> Sweep {
        Sweep {
            chain: row.chain,
            sweep: row.sweep,
            sweeps,
            n_features: row.n_features,
            n_shared: row.n_shared,
            n_activations: row.n_activations,
            noise_variance: row.noise_variance,
            theta: row.theta.clone(),
            ibp_strength: row.ibp_strength,
            ibp_repulsion: row.ibp_repulsion,
            ln_likelihood: row.ln_likelihood,
            heldout_residual: row.heldout_residual,
            seconds: row.seconds,
            seconds_left: left.as_secs_f64(),
        }
    }
}

enum Message {
    Sweep(Box<Sweep>),
    Note(String),
}

/// Tells the thread of Python what happens, and waits until it has been seen.
struct Reporter {
    messages: Sender<Message>,
    /// Answers to sweeps; none where nobody wants to see them.
    answers: Option<Receiver<()>>,
    stop: Stop,
}

impl Observer for Reporter {
    fn sweep(&mut self, row: &TraceRow, total: u64, left: Duration) {
        let Some(answers) = &self.answers else { return };
        if self.messages.send(Message::Sweep(Box::new(Sweep::new(row, total, left)))).is_ok() {
            // Nobody is there any more: the fit is being given up.
            answers.recv().unwrap_or_default();
        }
    }

    fn wants_stop(&self) -> bool {
        self.stop.wants_stop()
    }

    fn note(&mut self, text: &str) {
        // A note that nobody takes is none.
        self.messages.send(Message::Note(words::text(text))).unwrap_or_default();
    }
}

/// What Python is told: the fit as far as it came, whether all sweeps are done, and what stopped it.
type Told = (Option<PyFitted>, bool, Option<PyErr>);

/// Who sees each sweep, where somebody wants to, and who hears the notes.
#[derive(FromPyObject)]
pub struct Listeners(Option<Py<PyAny>>, Py<PyAny>);

/// Threads to work with; 0 for as many as there are cores. Each call has its own, so that a process may be forked.
pub fn pool(n_threads: usize) -> PyResult<rayon::ThreadPool> {
    let built = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
    built.map_err(|error| to_python(Error::setting("threads", n_threads, error.to_string())))
}

/// Works on threads of its own, and waits in slices, after which signals are looked for; the first asks for a stop and is
/// returned beside what came of the work.
pub fn on_own_threads<T: Send + 'static>(
    py: Python,
    n_threads: usize,
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<(T, Option<PyErr>)> {
    let pool = pool(n_threads)?;
    let (done, mut end) = channel();
    let worker = std::thread::Builder::new().name("issfa".into()).spawn(move || {
        let result = pool.install(work);
        // Whoever waits hears of the end by this, or by its end of the channel being gone.
        done.send(()).unwrap_or_default();
        result
    });
    let worker = worker.map_err(|error| to_python(Error::setting("threads", n_threads, error.to_string())))?;
    let mut stopped_by = None;
    loop {
        let channel = &mut end;
        let is_over = py.detach(move || channel.recv_timeout(SLICE)) != Err(RecvTimeoutError::Timeout);
        if stopped_by.is_none() {
            stopped_by = py.check_signals().err();
            stopped_by.iter().for_each(|_| stop.stop());
        }
        if is_over {
            break;
        }
    }
    let result = py.detach(|| worker.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok((result, stopped_by))
}

/// Works on threads of its own and shows what happens, in the thread of Python, as it comes. What a listener raises asks for
/// a stop, as a signal does, and is returned beside what came of the work.
pub fn show_and_wait<T: Send + 'static>(
    py: Python,
    n_threads: usize,
    listeners: &Listeners,
    work: impl FnOnce(&mut dyn Observer, &Stop) -> T + Send + 'static,
) -> PyResult<(T, Option<PyErr>)> {
    let (pool, stop) = (pool(n_threads)?, Stop::default());
    let (messages, mut incoming) = channel();
    let (answer, answers) = channel();
    let wants_sweeps = listeners.0.is_some();
    let mut reporter = Reporter { messages, answers: wants_sweeps.then_some(answers), stop: stop.clone() };
    let asked = stop.clone();
    let work = move || work(&mut reporter, &asked);
    let worker = std::thread::Builder::new().name("issfa".into()).spawn(move || pool.install(work));
    let worker = worker.map_err(|error| to_python(Error::setting("threads", n_threads, error.to_string())))?;
    let mut stopped_by = None;
    // Until the worker is done, and its end of the channel gone.
    loop {
        let channel = &mut incoming;
        let message = py.detach(move || channel.recv_timeout(SLICE));
        if stopped_by.is_none() {
            stopped_by = message.as_ref().ok().and_then(|message| listeners.hear(py, message).err());
        }
        if stopped_by.is_none() {
            stopped_by = py.check_signals().err();
        }
        if stopped_by.is_some() {
            stop.stop();
        }
        match message {
            Ok(Message::Sweep(_)) => answer.send(()).unwrap_or_default(),
            Ok(Message::Note(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let result = py.detach(|| worker.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok((result, stopped_by))
}

impl Listeners {
    fn hear(&self, py: Python, message: &Message) -> PyResult<()> {
        let Listeners(callback, tell) = self;
        match (message, callback) {
            (Message::Sweep(sweep), Some(callback)) => {
                let theta = sweep.theta.clone();
                callback.call1(py, (Sweep { theta, ..**sweep },)).map(drop)
            }
            (Message::Sweep(_), None) => Ok(()),
            (Message::Note(note), _) => tell.call1(py, (note,)).map(drop),
        }
    }
}

/// Runs a fit on threads of its own and waits for it.
fn run_and_wait(
    py: Python,
    n_threads: usize,
    listeners: &Listeners,
    begin: impl FnOnce(&Stop) -> Result<Session, Error> + Send + 'static,
) -> PyResult<Told> {
    let work = move |observer: &mut dyn Observer, stop: &Stop| -> Result<(Option<Fitted>, Ending), Error> {
        let mut session = begin(stop)?;
        let ending = session.run(observer)?;
        Ok((session.fitted()?, ending))
    };
    match show_and_wait(py, n_threads, listeners, work)? {
        (Ok((fitted, ending)), stopped_by) => Ok((fitted.map(PyFitted::new), ending == Ending::Finished, stopped_by)),
        // Rows were still being read.
        (Err(Error::Stopped), Some(by)) => Ok((None, false, Some(by))),
        (Err(error), _) => Err(to_python(error)),
    }
}

/// Fits rows, in memory or into a run folder.
#[pyfunction]
#[pyo3(signature = (given, settings, out, overwrite, n_threads, listeners))]
pub fn fit(
    py: Python,
    given: Given,
    settings: &str,
    out: Option<PathBuf>,
    overwrite: bool,
    n_threads: usize,
    listeners: Listeners,
) -> PyResult<Told> {
    let settings = settings::read(settings).map_err(to_python)?;
    let rows = given.rows(&settings)?;
    run_and_wait(py, n_threads, &listeners, move |stop| begin(rows, settings, out, overwrite, stop))
}

fn begin(rows: Rows, settings: Settings, out: Option<PathBuf>, overwrite: bool, stop: &Stop) -> Result<Session, Error> {
    let mut request = Request::new(rows, settings.check()?);
    request.watch = Some(stop.watch());
    let Some(folder) = out else { return Session::new(request, None) };
    let files = inputs::files(request.rows.paths(), &request.checked.settings);
    let held = Held::for_new(&folder, Output::Run, overwrite, &files)?;
    Session::in_folder(request, held)
}

/// Goes on with a fit until it has done `sweeps` in all, or until it has settled. Rows that came from files are read again.
#[pyfunction]
#[pyo3(signature = (fitted, given, sweeps, until, time_budget, n_threads, listeners))]
#[expect(clippy::too_many_arguments, reason = "they are those of a call of Python")]
pub fn resume(
    py: Python,
    fitted: &PyFitted,
    given: Option<Given>,
    sweeps: Option<u64>,
    until: Option<&str>,
    time_budget: Option<String>,
    n_threads: usize,
    listeners: Listeners,
) -> PyResult<Told> {
    let fitted = fitted.inner();
    let rows = match given {
        Some(given) => given.rows(fitted.settings())?,
        None => fitted.own_rows().map_err(to_python)?,
    };
    let budget = time_budget.map(|text| parse_duration("time-budget", &text)).transpose().map_err(to_python)?;
    let until = until.map(settings::read_until).transpose().map_err(to_python)?;
    run_and_wait(py, n_threads, &listeners, move |stop| {
        Session::go_on_with(&fitted, rows, (sweeps, until), |request| {
            request.watch = Some(stop.watch());
            request.checked.time_budget = budget;
        })
    })
}
