"""Stopping, callbacks, errors in Python's words, and other threads that go on."""

import os
import pickle
import signal
import threading
import time

import issfa
import numpy as np
import pytest
from conftest import GRID, assert_same_bits, simulated


class Odd(Exception):
    pass


def stop_after(n, error):
    def callback(sweep):
        if sweep.sweep == n:
            raise error

    return callback


def test_a_callback_sees_each_sweep_and_cannot_change_it(rows):
    seen = []
    # On one thread chains run one after the other.
    issfa.ISSFA(sweeps=9, chains=2, random_state=0, n_jobs=1).fit(rows, callback=seen.append)
    assert [(sweep.chain, sweep.sweep) for sweep in seen] == [(chain, at) for chain in (1, 2) for at in range(1, 10)]
    last = seen[-1]
    assert isinstance(last, issfa.Sweep) and last.sweeps == 9 and last.n_features > 0 and last.seconds_left == 0
    assert "sweep 9 of 9, chain 2" in repr(last)
    with pytest.raises(AttributeError):
        last.n_features = 3


def test_a_callback_runs_in_the_thread_that_fits(rows):
    threads = set()
    issfa.ISSFA(sweeps=3, random_state=0).fit(rows, callback=lambda sweep: threads.add(threading.get_ident()))
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("at", [1, 17, 40])
@pytest.mark.parametrize("has_folder", [False, True])
def test_an_exception_of_a_callback_ends_the_fit_and_it_can_go_on(rows, tmp_path, at, has_folder):
    whole = issfa.ISSFA(sweeps=40, random_state=3).fit(rows)
    model = issfa.ISSFA(sweeps=40, random_state=3)
    out = tmp_path / "run" if has_folder else None
    error = Odd("enough")
    with pytest.raises(Odd) as raised:
        model.fit(rows, out=out, callback=stop_after(at, error))
    assert raised.value is error
    assert model.n_iter_ == at and len(model._fitted.trace()["sweep"]) == at
    assert model.transform(rows).shape[0] == len(rows) if at > 26 else True
    if has_folder:
        model = issfa.open(out)
        assert model.n_iter_ == at
    else:
        model = pickle.loads(pickle.dumps(model))
    assert_same_bits(model.resume(rows), whole)


@pytest.mark.parametrize("has_folder", [False, True])
def test_ctrl_c_leaves_a_fit_that_can_go_on(rows, tmp_path, has_folder):
    settings = dict(burn_in=20, thin=1, random_state=3)
    model = issfa.ISSFA(sweeps=10**6, **settings)
    out = tmp_path / "run" if has_folder else None
    threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows, out=out)
    done = model.n_iter_
    assert 0 < done < 10**6
    # Nothing of it lingers: the next fit is whole.
    assert issfa.ISSFA(sweeps=5, random_state=3).fit(rows).n_iter_ == 5
    twin = issfa.open(out) if has_folder else model
    assert twin.n_iter_ == done
    if done > 21:
        assert_same_bits(twin, issfa.ISSFA(sweeps=done, **settings).fit(rows))


def test_ctrl_c_while_rows_are_prepared(rows, tmp_path):
    """Long before the first sweep: nothing was fitted, nothing was written."""
    many = np.tile(rows, (40, 4, 4))
    model = issfa.ISSFA(sweeps=10**6, random_state=0, missing="impute")
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        model.fit(many, out=tmp_path / "run")
    assert time.monotonic() - start < 60
    if not hasattr(model, "components_"):
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("what", ["transform", "score", "reconstruct"])
def test_ctrl_c_ends_what_is_done_with_new_rows(what):
    """Long before its end: the rows are many."""
    rows = simulated(100, (20, 20))
    model = issfa.ISSFA(sweeps=60, keep_draws=20, random_state=3).fit(rows)
    few = np.tile(rows, (4, 1, 1))
    start = time.monotonic()
    getattr(model, what)(few)
    # As many as would take half a minute or more.
    n_times = int(30 / max(time.monotonic() - start, 0.02)) + 1
    many = np.broadcast_to(few, (min(n_times, 200), *few.shape)).reshape(-1, *few.shape[1:])
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        getattr(model, what)(many)
    assert time.monotonic() - start < 10
    # Nothing of it lingers.
    assert model.transform(rows[:3]).shape == (3, model.n_components_)


def test_other_threads_go_on_meanwhile(rows):
    n_ticks, done = 0, threading.Event()

    def tick():
        nonlocal n_ticks
        while not done.is_set():
            n_ticks += 1
            time.sleep(0.005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.monotonic()
    issfa.ISSFA(sweeps=200, random_state=0, n_jobs=1).fit(simulated(400, (20, 20)))
    seconds = time.monotonic() - start
    done.set()
    ticker.join()
    assert n_ticks > 0.3 * seconds / 0.005, (n_ticks, seconds)


def test_results_do_not_depend_on_threads(rows):
    models = [issfa.ISSFA(sweeps=20, random_state=0, n_jobs=n).fit(rows) for n in (1, 2, -1, None)]
    for model in models[1:]:
        assert_same_bits(model, models[0])


def test_a_time_budget_ends_a_fit_that_can_go_on(rows):
    settings = dict(burn_in=20, thin=1, random_state=0)
    model = issfa.ISSFA(sweeps=10**6, time_budget=0.3, **settings).fit(rows)
    done = model.n_iter_
    assert 1 <= done < 10**6
    assert model.resume(rows, time_budget="0.3s").n_iter_ > done


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"burn_in": 50, "sweeps": 50}, "^burn_in = 50: .* fewer than sweeps"),
        ({"sweeps": 0}, "^sweeps = 0: must be at least 1"),
        ({"sweeps": "many"}, '^sweeps = "many": invalid type'),
        ({"sweeps": 10.5}, "^sweeps = 10.5: invalid type"),
        ({"random_state": -1}, "^random_state = -1"),
        ({"grid": (5, 5)}, "5x5 has 25 sites, but a row of X has 96; give grid with a product of 96"),
        ({"structure": "road x path"}, "road"),
        ({"center": "middle"}, "^center = .*middle.*unknown variant"),
        ({"noise_prior": (1, -1)}, "^noise_prior = "),
        ({"noise_prior": 3}, "^noise_prior = 3: give two numbers"),
        ({"noise_prior": (1, 1), "target_r2": 0.5}, "both target_r2 and noise_prior"),
        ({"priors": {"ibp_strength": [0, 1]}}, r'^priors\["ibp_strength"\] = '),
        ({"priors": {"weight_tails": 4}}, r'^priors\["weight_tails"\] = 4: is for weights="student"'),
        ({"priors": {"weight_tails": -1}, "weights": "student"}, r'^priors\["weight_tails"\] = -1: degrees of freedom'),
        ({"priors": {"nothing": 1}}, "^priors = .*unknown field"),
        ({"sweep": {"kernels": ["noise"]}}, r'^sweep\["kernels"\] = features'),
        ({"exceed": float("nan")}, "^exceed = nan"),
        ({"n_jobs": 0}, "^n_jobs = 0"),
        ({"mask": np.ones(5)}, "^mask has 5 values, but X has 96 sites"),
        ({"mask": np.zeros(96)}, "the mask is empty"),
        ({"mask": "nowhere.npy"}, "nowhere.npy"),
        ({"checkpoint_every": "soon"}, "^checkpoint_every = soon"),
        ({"chains": 0}, "^chains = 0"),
        ({"confound_columns": ["a"]}, "^confound_columns = a: there are no confounds="),
    ],
    ids=str,
)
def test_wrong_parameters_are_named(rows, parameters, words):
    flat = rows.reshape(len(rows), -1)
    with pytest.raises(issfa.UseError, match=words) as raised:
        issfa.ISSFA(**{"sweeps": 10, **parameters}).fit(flat)
    assert isinstance(raised.value, (issfa.Error, ValueError))
    assert "--" not in str(raised.value)


def test_wrong_rows_are_named(rows):
    x = rows.copy()
    x[3, 1, 2] = np.nan
    with pytest.raises(issfa.UseError, match=r'X: row 3, site 14.* is NaN.*missing="impute"'):
        issfa.ISSFA(sweeps=5).fit(x)
    model = issfa.ISSFA(sweeps=5).fit(rows)
    with pytest.raises(issfa.UseError, match='row 3, site 14 is NaN.*missing="impute"'):
        model.transform(x)
    x[3, 1, 2] = np.inf
    for method in (issfa.ISSFA(sweeps=5, missing="impute").fit, model.transform):
        with pytest.raises(issfa.UseError, match="row 3, site 14.* is inf"):
            method(x)
    with pytest.raises(ValueError, match="expecting 96 features"):
        model.transform(np.zeros((3, 5, 5)))
    with pytest.raises(issfa.UseError, match="runs = 3 rows"):
        issfa.ISSFA(sweeps=5).fit(rows, runs=[("a", 3)])
    with pytest.raises(issfa.UseError, match="runs has 2 labels"):
        issfa.ISSFA(sweeps=5).fit(rows, runs=["a", "b"])
    with pytest.raises(issfa.UseError, match="nowhere.npy"):
        issfa.ISSFA(sweeps=5).fit("nowhere.npy")
    with pytest.raises(issfa.UseError, match=r"no kept draw yet.*resume\(X\)"):
        unfinished = issfa.ISSFA(sweeps=20, random_state=0)
        with pytest.raises(Odd):
            unfinished.fit(rows, callback=stop_after(2, Odd))
        unfinished.transform(rows)


def test_sites_without_any_value_are_left_out(rows):
    x = rows.copy()
    x[:, 0, :2] = np.nan
    model = issfa.ISSFA(sweeps=30, random_state=0).fit(x)
    assert np.isnan(model.components_.reshape(-1, *GRID)[:, 0, :2]).all()
    assert model.transform(x).shape == model.weights_.shape


def test_a_forked_process_can_fit(rows):
    import multiprocessing

    expected = issfa.ISSFA(sweeps=10, random_state=0).fit(rows).components_
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply_async(_components, (rows,)).get(timeout=60)
    np.testing.assert_array_equal(found, expected)


def _components(rows):
    return issfa.ISSFA(sweeps=10, random_state=0).fit(rows).components_
