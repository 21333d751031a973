"""The estimator."""

import json
import logging
import numbers
import os
import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from . import _engine, _inputs
from ._errors import UseError, need

NOTES = logging.getLogger("issfa")

# Parameters that are called otherwise than the setting, or that are no setting of the engine.
RENAMED = {"random_state": "seed", "reconstruction": "reconstruct"}
OWN = {"n_jobs", "out", "overwrite", "progress", "random_state", "noise_prior", "row_noise", "mask"}


class Summary(dict):
    """Numbers by name; it prints as ``issfa summary`` does."""

    def __init__(self, text, values):
        super().__init__(values)
        self._text = text

    def __str__(self):
        return self._text

    def _repr_pretty_(self, printer, cycle):
        printer.text(self._text)


class ISSFA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Infinite structured sparse factor analysis.

    Rows of ``X`` lie on a grid of sites. They are explained by smooth features, few of them used by each row, whose number
    is learned. Every option of ``issfa fit`` is a parameter of the same name, but ``random_state`` (``--seed``), ``n_jobs``
    (``--threads``) and ``reconstruction`` (``--reconstruct``).

    Parameters
    ----------
    grid : tuple of int or str, optional
        Sites along each axis, such as ``(64, 64)``. Left out: the axes of ``X`` after the first.
    structure : str, optional
        One structure an axis, such as ``"cycle x path"``; left out: ``path`` on every axis.
    sweeps, burn_in, thin, chains : int
        Iterations in all; those left out at the start (500, or two thirds of a short run); every so many kept; chains.
    until : str
        ``"sweeps"`` does all of them; ``"settled"`` ends as soon as the chains have settled (R-hat of 1.05 and 100 independent
        draws, looked at after 1000, 2000, 4000 .. sweeps), with ``sweeps`` as the most there may be.
    noise : str
        ``"reference"`` measures it on differences of rows that follow each other, ``"white"``, or the file of a reference.
    row_noise : bool
        Whether the noise of every row of a series is measured too, where rows differ by more than chance.
    weights : str
        ``"normal"``, or ``"student"`` with heavier tails (degrees of freedom ``priors={"weight_tails": 4}``): it tells features
        apart that most rows use, with weights that are not Gaussian.
    mask : array, path or "auto", optional
        Which sites take part.
    missing : str
        ``"error"`` refuses NaN, ``"impute"`` takes it for cells that were not observed. Sites that are NaN in all rows are
        left out in either case.
    random_state : int, RandomState or None
        An integer is the seed: same bits as the command line.
    n_jobs : int or None
        Threads; None and -1: as many as cores. Results do not depend on it.
    out : path, optional
        A run folder to write as the fit goes; ``overwrite=True`` replaces one.
    progress : bool
        A bar (needs tqdm).

    Attributes
    ----------
    components_ : (K, V) posterior means of the persistent features, of unit norm, by variance explained
    components_sd_ : (K, V) their posterior standard deviations
    n_components_ : their number
    presence_ : (K,) in which share of kept sweeps each was there
    weights_, activation_ : (T, K) how strongly and how probably each training row uses them
    noise_variance_ : (V,) posterior mean of the variance of the noise, in the units of X squared
    explained_variance_ratio_ : (K,) share of the sum of squares
    mean_ : (V,) what was taken off the sites
    trace_ : one entry a sweep: a DataFrame where pandas is installed, else a dictionary of arrays
    n_iter_ : sweeps done
    """

    def __init__(
        self,
        grid=None,
        structure=None,
        sweeps=1000,
        burn_in=None,
        thin=None,
        chains=1,
        noise="reference",
        random_state=None,
        n_jobs=None,
        out=None,
        *,
        until="sweeps",
        overwrite=False,
        progress=False,
        curve="q",
        preset=None,
        init="kmeans:15",
        start="coarse",
        max_features=None,
        noise_prior=None,
        row_noise=False,
        target_r2=None,
        weights="normal",
        theta_step="mh",
        center="site",
        scale=False,
        detrend="none",
        confound_columns=None,
        drop_volumes=0,
        mask=None,
        missing="error",
        precision="f32",
        spill=None,
        memory=None,
        keep_draws=20,
        reconstruction=False,
        exceed=2.0,
        melodic=False,
        background=None,
        axes=None,
        report="auto",
        rows_axis="first",
        columns=None,
        time_budget=None,
        checkpoint_every="60s",
        noise_reference=None,
        priors=None,
        sweep=None,
    ):
        self.grid = grid
        self.structure = structure
        self.sweeps = sweeps
        self.burn_in = burn_in
        self.until = until
        self.thin = thin
        self.chains = chains
        self.noise = noise
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.out = out
        self.overwrite = overwrite
        self.progress = progress
        self.curve = curve
        self.preset = preset
        self.init = init
        self.start = start
        self.max_features = max_features
        self.noise_prior = noise_prior
        self.row_noise = row_noise
        self.target_r2 = target_r2
        self.weights = weights
        self.theta_step = theta_step
        self.center = center
        self.scale = scale
        self.detrend = detrend
        self.confound_columns = confound_columns
        self.drop_volumes = drop_volumes
        self.mask = mask
        self.missing = missing
        self.precision = precision
        self.spill = spill
        self.memory = memory
        self.keep_draws = keep_draws
        self.reconstruction = reconstruction
        self.exceed = exceed
        self.melodic = melodic
        self.background = background
        self.axes = axes
        self.report = report
        self.rows_axis = rows_axis
        self.columns = columns
        self.time_budget = time_budget
        self.checkpoint_every = checkpoint_every
        self.noise_reference = noise_reference
        self.priors = priors
        self.sweep = sweep

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # Fitting

    def fit(self, X, y=None, *, out=None, callback=None, runs=None, confounds=None, heldout=None):
        """Fits the model.

        Parameters
        ----------
        X : array (n_samples, n_features) or (n_samples, *grid), a list of such arrays, or files
            A list has one array a run. Arrays of float32 and float64 are read where they are, in any order and as views; others are converted, which
            takes a copy. A path or a list of paths (``.npy``, ``.csv``, ``.tsv``, ``.nii``, ``.nii.gz``) is read as
            ``issfa fit`` does.
        y : ignored
        out : path, optional
            A run folder; before ``self.out``.
        callback : callable, optional
            Called after each sweep with an ``issfa.Sweep``. An exception ends the fit after the sweep and is raised; the
            object is fitted as far as it came.
        runs : a label a row, (name, rows) pairs, a dictionary, or a file
            Which rows were measured together. Files are runs by themselves.
        confounds : array, frame or file, or a list with one a run
            Regressed out of every site.
        heldout : rows, optional
            Left out of the fit; their residual is traced.
        """
        rows, settings = self._rows_to_fit(X), self._settings()
        self._accompany(rows, settings, runs, confounds, heldout)
        self._add_mask(rows)
        settings["seed"] = self._seed()
        out = self.out if out is None else out
        out = None if out is None else os.fspath(out)
        with self._watched(callback) as watched:
            told = _engine.fit(rows, _to_json(settings), out, bool(self.overwrite), self._n_threads(), (watched, NOTES.info))
        self._take_up(told)
        self._add_page()
        return self

    def resume(self, X=None, *, sweeps=None, until=None, time_budget=None, callback=None, runs=None, confounds=None, heldout=None):
        """Goes on with a fit that was stopped, or makes it longer, with the bits of one that never stopped.

        ``X`` (and ``runs``, ``confounds``, ``heldout``) are those of the fit, and may be left out where they were files.
        ``sweeps`` is the number in all, or ``"+500"`` to add; ``until="settled"`` goes on until the chains have settled, and
        ``until="sweeps"`` ends that.
        """
        self._check_fitted()
        rows = None
        if X is not None:
            rows = self._rows_to_fit(X, reset=False)
            self._accompany(rows, {}, self._runs_again(rows) if runs is None else runs, confounds, heldout)
        total, adds = _sweeps_in_all(sweeps, self._fitted.planned_sweeps)
        # So many more are so many more, whether chains have settled or not.
        until = "sweeps" if until is None and adds else until
        budget = None if time_budget is None else _as_time(time_budget)
        with self._watched(callback) as watched:
            told = _engine.resume(self._fitted, rows, total, until, budget, self._n_threads(), (watched, NOTES.info))
        self._take_up(told)
        self._add_page()
        return self

    def _rows_to_fit(self, X, reset=True):
        if _inputs.are_paths(X):
            return _inputs.given(paths=_inputs.paths_of(X))
        if _inputs.are_runs(X):
            runs = [self._validated(run, reset and at == 0) for at, run in enumerate(X)]
            return _inputs.given(arrays=[(f"run{at}", run) for at, run in enumerate(runs, 1)])
        return _inputs.given(arrays=[("X", self._validated(X, reset))])

    def _accompany(self, rows, settings, runs, confounds, heldout):
        """Adds what came along with the rows: files to the settings, all else to the rows."""
        if runs is not None and _inputs.is_path(runs):
            settings["runs"] = os.fspath(runs)
        elif runs is not None:
            rows["runs"] = _inputs.as_runs(runs, sum(len(array) for _, array in rows["arrays"]))
        if confounds is not None and _inputs.are_paths(confounds):
            settings["confounds"] = _inputs.paths_of(confounds)
        else:
            rows["confounds"] = _inputs.as_tables(confounds)
        if heldout is not None and _inputs.is_path(heldout):
            settings["heldout"] = os.fspath(heldout)
        elif heldout is not None:
            rows["heldout"] = _inputs.rows_given(heldout, "heldout")

    def _add_mask(self, rows):
        """Adds a mask that is an array; one that is a file is a setting."""
        if self.mask is None or _inputs.is_path(self.mask):
            return
        if not rows["arrays"]:
            raise UseError("mask: give the path of a mask where X are files")
        rows["mask"] = _inputs.as_mask(self.mask, int(np.prod(rows["arrays"][0][1].shape[1:])))

    def _runs_again(self, rows):
        """The runs of the fit, where a single array had several."""
        known = self._fitted.runs
        is_split = len(rows["arrays"]) == 1 and [name for name, _ in known] != ["X"]
        dropped = json.loads(self._fitted.settings_json())["drop-volumes"]
        return [(name, n + dropped) for name, n in known] if is_split else None

    def _settings(self):
        """The parameters as settings of the engine, by their keys."""
        settings = {}
        for name, value in self.get_params(deep=False).items():
            if name in OWN or value is None:
                continue
            settings[RENAMED.get(name, name.replace("_", "-"))] = _as_setting(name, value)
        if "noise-reference" in settings:
            settings["noise_reference"] = settings.pop("noise-reference")
        if self.row_noise:
            settings["noise_reference"] = {**settings.get("noise_reference", {}), "row_levels": True}
        if self.mask is not None and _inputs.is_path(self.mask):
            settings["mask"] = os.fspath(self.mask)
        if self.noise_prior is not None:
            settings["priors"] = {**settings.get("priors", {}), "noise": _as_pair("noise_prior", self.noise_prior)}
        return settings

    def _seed(self):
        state = self.random_state
        if isinstance(state, numbers.Integral):
            if not 0 <= state < 2**63:
                raise UseError(f"random_state = {state}: give a number from 0 to {2**63 - 1}")
            return int(state)
        if isinstance(state, np.random.Generator):
            return int(state.integers(2**31))
        return int(check_random_state(state).randint(2**31 - 1))

    def _n_threads(self):
        n = self.n_jobs
        if n is None or n == -1:
            return 0
        if not isinstance(n, numbers.Integral) or n == 0:
            raise UseError(f"n_jobs = {n!r}: give a number of threads, or -1 for as many as there are cores")
        return int(n) if n > 0 else max(1, (os.cpu_count() or 1) + 1 + int(n))

    def _watched(self, callback):
        return _Watched(callback, bool(self.progress), self.chains)

    def _take_up(self, told):
        """Takes up what the engine gave, then raises what stopped it."""
        fitted, _, stopped_by = told
        if fitted is not None:
            self._take(fitted)
        if stopped_by is not None:
            raise stopped_by

    def _add_page(self):
        """The page of a fit in a folder, unless ``report="none"``."""
        if self._fitted.folder is not None and self._wants_page():
            self.write_report()

    def _wants_page(self):
        return json.loads(self._fitted.settings_json()).get("report") != "none"

    def _take(self, fitted):
        self._fitted = fitted
        table = fitted.table()
        features = fitted.features()
        self.grid_ = tuple(fitted.grid)
        self.components_ = self._flat(features)
        self.components_sd_ = self._flat(fitted.features_sd())
        self.n_components_ = len(features)
        self.presence_ = table["presence"]
        self.explained_variance_ratio_ = table["variance_explained"]
        self.weights_ = fitted.weights()
        self.activation_ = fitted.activation()
        self.mean_ = fitted.means().ravel()
        self.noise_variance_ = fitted.noise_variances().ravel()
        self.n_iter_ = self.summary()["sweeps_done"]
        self.seed_ = json.loads(fitted.settings_json())["seed"]
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = int(np.prod(self.grid_))

    def _flat(self, images):
        """Images with their sites along one axis; of no image too."""
        return images.reshape(len(images), int(np.prod(self.grid_)))

    # What was found

    def _check_fitted(self):
        check_is_fitted(self, "components_")

    @property
    def _n_features_out(self):
        return self.n_components_

    @property
    def trace_(self):
        """One entry a sweep, of all chains."""
        self._check_fitted()
        trace = self._fitted.trace()
        try:
            import pandas
        except ImportError:
            return trace
        return pandas.DataFrame(trace)

    @property
    def features_(self):
        """The table of features: ids, presence, activations, variance explained, kurtosis, smoothness and so on."""
        self._check_fitted()
        table = self._fitted.table()
        try:
            import pandas
        except ImportError:
            return table
        return pandas.DataFrame(table)

    @property
    def components_z_(self):
        """(K, V) features times the root mean square of their weights, in standard deviations of the noise measured."""
        self._check_fitted()
        z = self._fitted.features_z()
        if z is None:
            raise AttributeError('components_z_ is there where the noise was measured (noise="reference")')
        return self._flat(z)

    @property
    def reconstruction_(self):
        """The denoised training rows, on their grid, of a fit with ``reconstruction=True``."""
        self._check_fitted()
        rows = self._fitted.reconstruction()
        if rows is None:
            raise AttributeError("reconstruction_ is there after a fit with reconstruction=True")
        return rows

    def summary(self):
        """Posteriors, mixing, costs and a verdict: a dictionary that prints as ``issfa summary`` does."""
        check_is_fitted(self, "components_")
        return Summary(self._fitted.summary_text(), json.loads(self._fitted.summary_json()))

    # New rows

    def _validated(self, X, reset):
        """Rows as the engine takes them: two axes, or rows x grid."""
        if getattr(X, "ndim", 2) <= 2 or not hasattr(X, "__array__"):
            return validate_data(
                self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=1
            )
        array = _inputs.as_rows(X)
        n_sites = int(np.prod(array.shape[1:]))
        if reset:
            self.n_features_in_ = n_sites
            vars(self).pop("feature_names_in_", None)
        elif n_sites != self.n_features_in_:
            raise UseError(f"X has {n_sites} features, but ISSFA is expecting {self.n_features_in_} features as input")
        return array

    def _new_rows(self, X, runs=None, confounds=None):
        self._check_fitted()
        if _inputs.are_paths(X):
            rows = _inputs.given(paths=_inputs.paths_of(X))
        else:
            array = self._validated(X, reset=False)
            if self.missing != "impute":
                inside = self._fitted.mask()
                _inputs.refuse_nan(array, None if inside is None else np.array(inside))
            rows = _inputs.given(arrays=[("X", array)])
        self._accompany(rows, {}, runs, None if _is_none(confounds) else confounds, None)
        return rows

    def _transformed(self, X, apart=True, center_new="train", runs=None, confounds=None, drop=()):
        rows = self._new_rows(X, runs, confounds)
        how = {"apart": apart, "center_new": center_new, "without_confounds": _is_none(confounds)}
        found = self._fitted.transform(rows, {**how, "drop": [int(one) for one in drop]}, self._n_threads())
        dtype = rows["arrays"][0][1].dtype if rows["arrays"] else np.float32
        return [array.astype(dtype, copy=False) for array in found]

    def transform(self, X, *, confounds=None):
        """How strongly rows use the features: (n_samples, K), in the units of X.

        What is said of a row depends neither on other rows nor on their order: no trend is taken off, and the level of the
        noise is that of the fit. (Confounds, where the fit had some, are centred over the rows given.) ``infer`` takes rows
        for a run, as ``issfa transform`` does.
        """
        return self._transformed(X, confounds=confounds)[0]

    def reconstruct(self, X, *, confounds=None, drop=()):
        """Denoised rows, in the shape of X; ``drop`` leaves features out by their ids (``features_["id"]``)."""
        rows = self._transformed(X, confounds=confounds, drop=drop)[2]
        return rows if getattr(X, "ndim", 2) > 2 else self._flat(rows)

    def infer(self, X, *, runs=None, confounds=None, center_new="train", drop=()):
        """Weights, activation and denoised rows as ``issfa transform`` gives them, bit for bit."""
        return tuple(self._transformed(X, False, center_new, runs, confounds, drop))

    def inverse_transform(self, X):
        """Weights back to rows: ``X @ components_ + mean_``."""
        self._check_fitted()
        weights = check_array(X, dtype=[np.float64, np.float32], ensure_min_features=0)
        if weights.shape[1] != self.n_components_:
            raise UseError(f"X has {weights.shape[1]} columns, but there are {self.n_components_} features")
        return weights @ self.components_.astype(weights.dtype) + self.mean_.astype(weights.dtype)

    def score(self, X, y=None, *, hide=0.2):
        """R2 of hidden cells: a share of the cells of every row is hidden (always the same ones), predicted from the rest,
        and compared. ``issfa evaluate --data`` calls it ``r2``. One minus the squared error over the variance of the
        hidden cells, after centring."""
        return self._fitted_for_score().hidden_r2(self._new_rows(X), float(hide), 0, self._n_threads())

    def _fitted_for_score(self):
        self._check_fitted()
        return self._fitted

    # Folders and pickles

    def save(self, folder):
        """Writes the run folder, which every command takes, and its page; it must not exist yet."""
        self._check_fitted()
        self._fitted.save(os.fspath(folder))
        if self._wants_page():
            self.write_report(Path(folder) / "report.html", name=Path(folder).name)

    def write_report(self, path=None, *, name=None):
        """Writes the page of the fit: one HTML file that needs no network, with maps, courses, traces and verdict.

        Left out, ``path`` is ``report.html`` in the folder of the fit. ``name`` is what the page is called. Returns the path;
        its size goes to the logger ``issfa``. ``report="light"`` of the constructor makes it smaller.
        """
        self._check_fitted()
        path, notes = self._fitted.report(None if path is None else os.fspath(path), name)
        for note in notes:
            NOTES.info(note)
        return Path(path)

    def __getstate__(self):
        state = dict(super().__getstate__())
        fitted = state.pop("_fitted", None)
        if fitted is not None:
            with tempfile.TemporaryDirectory() as scratch:
                run = Path(scratch) / "run"
                fitted.save(str(run))
                state["_run"] = {str(path.relative_to(run)): path.read_bytes() for path in _files(run)}
        return state

    def __setstate__(self, state):
        state = dict(state)
        files = state.pop("_run", None)
        super().__setstate__(state)
        if files is not None:
            with tempfile.TemporaryDirectory() as scratch:
                run = Path(scratch) / "run"
                for name, content in files.items():
                    (run / name).parent.mkdir(parents=True, exist_ok=True)
                    (run / name).write_bytes(content)
                self._fitted = _engine.open(str(run)).in_memory()

    def posterior(self, probes=None):
        """The posterior for ArviZ: InferenceData, or a DataTree with ArviZ 1."""
        self._check_fitted()
        from ._posterior import posterior

        return posterior(self, probes)


def open(folder):
    """The estimator of a run folder, made by the command or by Python, also of one that is still being written."""
    fitted = _engine.open(os.fspath(folder))
    settings = json.loads(fitted.settings_json())
    known = ISSFA().get_params(deep=False)
    names = {RENAMED.get(name, name.replace("_", "-")): name for name in known}
    parameters = {names[key]: value for key, value in settings.items() if key in names}
    estimator = ISSFA(**parameters)
    estimator._take(fitted)
    return estimator


class _Watched:
    """Who is called each sweep: the callback, and a bar that is closed at the end."""

    def __init__(self, callback, has_bar, n_chains):
        self._callback, self._bar, self._n_chains, self._done = callback, None, n_chains, {}
        if has_bar:
            tqdm = need("tqdm.auto", "progress", "progress=True").tqdm
            self._bar = tqdm(unit="sweep", desc="issfa")

    def __enter__(self):
        return self._see if self._callback is not None or self._bar is not None else None

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.close()

    def _see(self, sweep):
        if self._bar is not None:
            # Chains may run side by side.
            self._done[sweep.chain] = sweep.sweep
            self._bar.total = sweep.sweeps * self._n_chains
            self._bar.set_postfix(K=sweep.n_features, refresh=False)
            self._bar.update(sum(self._done.values()) - self._bar.n)
        if self._callback is not None:
            self._callback(sweep)


def _files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _is_none(confounds):
    return isinstance(confounds, str) and confounds == "none"


def _as_setting(name, value):
    """A parameter as the engine's settings have it."""
    if name == "grid" and not isinstance(value, str):
        return "x".join(str(int(n)) for n in np.atleast_1d(value))
    if name in ("time_budget", "checkpoint_every"):
        return _as_time(value)
    if name in ("target_r2", "memory"):
        return str(value)
    if name in ("init", "spill", "background") and isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "confound_columns":
        return [value] if isinstance(value, str) else [str(one) for one in value]
    return value


def _as_time(value):
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return f"{value}s" if isinstance(value, numbers.Real) else value


def _as_pair(name, value):
    if isinstance(value, str):
        value = value.split(",")
    try:
        shape, scale = (float(one) for one in value)
    except (TypeError, ValueError):
        raise UseError(f"{name} = {value!r}: give two numbers, such as (3, 2)") from None
    return [shape, scale]


def _sweeps_in_all(sweeps, known):
    """The number of sweeps in all, from a number, or from ``"+500"``, and whether that was meant."""
    if sweeps is None:
        return None, False
    is_more = isinstance(sweeps, str) and sweeps.startswith("+")
    try:
        number = int(sweeps)
    except (TypeError, ValueError):
        raise UseError(f'sweeps = {sweeps!r}: give a number, or "+500" to add') from None
    if number < 0:
        raise UseError(f"sweeps = {sweeps!r}: give a number above 0")
    return (known + number if is_more else number), is_more


def _to_json(settings):
    def plain(value):
        if isinstance(value, (np.generic, np.ndarray)):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise TypeError(value)

    for key, value in settings.items():
        try:
            json.dumps(value, default=plain, allow_nan=False)
        except (TypeError, ValueError):
            name = {key: name for name, key in RENAMED.items()}.get(key, key.replace("-", "_"))
            raise UseError(f"{name} = {value!r}: not a value that this parameter can have") from None
    return json.dumps(settings, default=plain)
