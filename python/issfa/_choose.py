"""Which settings: short fits judged by cells that they did not see."""

import json
import numbers
import os
from importlib.util import find_spec

from . import _engine
from ._errors import UseError, need
from ._estimator import ISSFA, NOTES, _to_json

# Of the short fits, of where they are shown or written; the fit to be made has its own.
NOT_OF_A_FIT = {"sweeps", "burn_in", "thin", "time_budget", "structure", "target_r2", "out", "overwrite", "progress", "n_jobs"}


class Choice:
    """What ``issfa.choose`` found. It prints as ``issfa choose`` does.

    Attributes
    ----------
    settings : dict
        Parameters for the fit to be made: ``issfa.ISSFA(**choice.settings).fit(X)``. What was given to ``choose``, with the
        structure and the share of noise that are recommended; ``sweeps`` and other lengths of the short fits are left out.
    reason : str
        Why these are recommended.
    trials : list of dict
        What was tried, in order: ``structure``, ``target_r2``, ``r2`` of hidden cells with its standard error ``r2_se``,
        ``behind`` the best with ``behind_se``, ``n_features``, ``share_of_noise``, ``seconds``, ``is_recommended``.
    table : DataFrame
        The same; the list where pandas is not installed.
    best, recommended : dict
        The trial with the largest R2, and the one to be used.
    r2_of_choice : float
        R2 where the cells of every block of rows are predicted by what the other blocks recommend.
    is_complete : bool
        False where the time was over, or a stop was asked for, before all was tried.
    n_rows, n_held, n_blocks, hide, sweeps : numbers
        Rows that took part; those held out, and the blocks that they are in; the share of cells hidden; sweeps of each fit.
    """

    def __init__(self, found, given):
        at = found["recommended"]
        self.trials = [{**trial, "is_recommended": n == at} for n, trial in enumerate(found["trials"])]
        self.best, self.recommended = self.trials[found["best"]], self.trials[at]
        self.settings = {name: value for name, value in given.items() if name not in NOT_OF_A_FIT}
        target = self.recommended["target_r2"]
        target = given.get("target_r2") if target is None else target
        chosen = {"structure": self.recommended["structure"] or None, "target_r2": target}
        self.settings.update({name: value for name, value in chosen.items() if value is not None})
        self.reason = found["reason"]
        self.r2_of_choice, self.is_complete = found["r2_of_choice"], found["is_complete"]
        self.n_rows, self.n_held, self.n_blocks = found["n_rows"], found["n_held"], found["n_blocks"]
        self.hide, self.sweeps = found["hide"], found["sweeps"]

    @property
    def table(self):
        return need("pandas", "all", "a table").DataFrame(self.trials) if find_spec("pandas") else self.trials

    def __repr__(self):
        return f"<Choice of {len(self.trials)} settings: {_shown(self.recommended)}>"

    def __str__(self):
        names = [_shown(trial) for trial in self.trials]
        width = max(len(name) for name in [*names, "setting"])
        lines = [
            f"{self.n_held} of {self.n_rows} rows were held out, in {self.n_blocks} blocks; {100 * self.hide:.0f}% of their cells "
            f"were hidden; fits of {self.sweeps} sweeps",
            "",
            f"  {'setting':{width}}  {'R2':>8} {'+-':>8}  {'behind best':>17}  {'features':>8}  {'noise':>6}  {'time':>7}",
        ]
        for name, trial in zip(names, self.trials):
            behind = "best" if trial is self.best else f"{trial['behind']:.4f} +- {trial['behind_se']:.4f}"
            lines.append(
                f"{'*' if trial['is_recommended'] else ' '} {name:{width}}  {trial['r2']:8.4f} {trial['r2_se']:8.4f}  {behind:>17}  "
                f"{trial['n_features']:8.1f}  {100 * trial['share_of_noise']:5.1f}%  {trial['seconds']:5.1f} s"
            )
        so_far = "" if self.is_complete else " so far: it was stopped before all was tried"
        return "\n".join(
            [
                *lines,
                "",
                f"recommended{so_far}: {_shown(self.recommended)}",
                f"  {self.reason}",
                f"  R2 {self.r2_of_choice:.4f} where each block is predicted by what the other blocks recommend",
                "next: issfa.ISSFA(**choice.settings).fit(X)",
            ]
        )

    def _repr_pretty_(self, printer, cycle):
        printer.text(str(self))


def _shown(trial):
    """A trial as parameters."""
    structure = [f'structure="{trial["structure"]}"'] if trial["structure"] else []
    target = [] if trial["target_r2"] is None else [f"target_r2={trial['target_r2']:g}"]
    return ", ".join(structure + target) or "as given"


def choose(
    X,
    *,
    hide=0.2,
    holdout=0.2,
    folds=1,
    sweeps=200,
    callback=None,
    runs=None,
    confounds=None,
    **parameters,
):
    """Which structure, and how much is noise? Short fits to most of the rows, judged by hidden cells of the others.

    Every fifth block of rows that follow each other is held out. Each setting is fitted to the other rows; then a share of the
    cells of the held-out rows is hidden and predicted from the visible ones. Structures are tried first, path at the
    noise that is measured, the others at as much; then, with the best of them, other shares of noise (``target_r2``). What
    ``structure``, ``target_r2`` or ``noise_prior`` say is kept. The same data, settings and seed give the bits of ``issfa choose``.

    Parameters
    ----------
    X, runs, confounds
        As ``ISSFA.fit`` takes them: an array, a list of arrays, or files.
    hide : float
        The share of cells of held-out rows to hide.
    holdout : float
        The share of rows to hold out, in blocks of rows that follow each other.
    folds : int
        How many such parts are held out one after the other, with a fit of every setting for each.
    sweeps : int
        Iterations of each short fit.
    callback : callable, optional
        Called after each sweep of each fit with an ``issfa.Sweep``; its ``seconds_left`` is about all that is sure to come. An
        exception ends the choice and is raised.
    **parameters
        Those of ``issfa.ISSFA``. ``progress=True`` shows a bar for every fit; ``out`` is a folder to make with ``choose.tsv``,
        ``choose.json`` and a figure; ``time_budget`` ends it with what was tried by then.

    Returns
    -------
    Choice
        ``issfa.ISSFA(**choice.settings)`` is the estimator to fit; ``print(choice)`` shows the table and the reason.

    Ctrl-C raises ``KeyboardInterrupt``; where something was tried by then, the exception has it as ``choice``.
    """
    estimator = ISSFA(**{**parameters, "sweeps": sweeps})
    rows, settings = estimator._rows_to_fit(X), estimator._settings()
    estimator._accompany(rows, settings, runs, confounds, None)
    estimator._add_mask(rows)
    settings["seed"] = estimator._seed()
    how = {"hide": _as_number("hide", hide), "holdout": _as_number("holdout", holdout), "folds": _as_count("folds", folds)}
    out = None if estimator.out is None else os.fspath(estimator.out)
    with _Shown(callback, bool(estimator.progress), sweeps) as shown:
        found, stopped_by = _engine.choose(
            rows, _to_json(settings), how, out, bool(estimator.overwrite), estimator._n_threads(), shown.listeners()
        )
    choice = None if found is None else Choice(json.loads(found), parameters)
    if stopped_by is not None:
        stopped_by.choice = choice
        raise stopped_by
    return choice


def _as_number(name, value):
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    raise UseError(f"{name} = {value!r}: give a share, such as 0.2")


def _as_count(name, value):
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and value > 0:
        return int(value)
    raise UseError(f"{name} = {value!r}: give a whole number above 0")


class _Shown:
    """A bar for every fit, which says what is being tried, and the callback."""

    def __init__(self, callback, has_bar, sweeps):
        self._callback, self._sweeps, self._bar, self._what = callback, sweeps, None, ""
        self._tqdm = need("tqdm.auto", "progress", "progress=True").tqdm if has_bar else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._close()

    def listeners(self):
        return self._see if self._callback is not None or self._tqdm is not None else None, self._note

    def _close(self):
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _note(self, text):
        NOTES.info(text)
        if text.startswith("trying "):
            self._what = text.removeprefix("trying ")

    def _see(self, sweep):
        if self._tqdm is not None:
            if sweep.sweep == 1:
                self._close()
                self._bar = self._tqdm(total=self._sweeps, unit="sweep", desc=self._what)
            self._bar.set_postfix(K=sweep.n_features, left=f"{sweep.seconds_left:.0f}s", refresh=False)
            self._bar.update(sweep.sweep - self._bar.n)
        if self._callback is not None:
            self._callback(sweep)
