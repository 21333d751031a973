"""At home among scikit-learn's estimators."""

import copy
import io
import json
import pickle
import re
import threading
import warnings

import issfa
import joblib
import numpy as np
import pytest
from conftest import GRID, assert_same_bits, simulated, smooth_features
from issfa import _engine
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

KINDS = [
    {},
    {"noise": "white"},
    {"missing": "impute"},
    {"chains": 2, "noise": "white", "structure": "iid"},
    # An impatient noise prior: many features are found in the small random data of the checks.
    {"noise": "white", "center": "none", "noise_prior": (1000, 10.0)},
]


@pytest.mark.parametrize("parameters", KINDS, ids=str)
def test_all_of_the_checks_of_scikit_learn_pass(parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(issfa.ISSFA(sweeps=20, **parameters), on_fail=None)
    others = {result["check_name"]: str(result["exception"]) for result in results if result["status"] != "passed"}
    # Skipped by scikit-learn itself, unless SCIPY_ARRAY_API is set before SciPy is imported.
    others.pop("check_array_api_input", None)
    assert not others
    assert len(results) >= 46
    print(len(results), "checks")


@pytest.fixture(scope="module")
def fitted(rows):
    return issfa.ISSFA(sweeps=60, random_state=1).fit(rows)


def test_what_was_found_has_the_shapes_that_are_documented(fitted, rows):
    n, k, v = len(rows), fitted.n_components_, np.prod(GRID)
    assert k == 3
    truth = smooth_features().reshape(3, -1)
    cosines = np.abs(fitted.components_ @ truth.T) / np.linalg.norm(truth, axis=1)
    assert (cosines.max(0) > 0.9).all(), cosines
    assert fitted.components_.shape == fitted.components_sd_.shape == fitted.components_z_.shape == (k, v)
    assert fitted.weights_.shape == fitted.activation_.shape == (n, k)
    assert fitted.presence_.shape == fitted.explained_variance_ratio_.shape == (k,)
    assert fitted.mean_.shape == fitted.noise_variance_.shape == (v,)
    np.testing.assert_allclose(np.linalg.norm(fitted.components_, axis=1), 1, atol=0.02)
    np.testing.assert_allclose(fitted.mean_, rows.reshape(n, -1).mean(0), atol=1e-6)
    white = issfa.ISSFA(sweeps=60, random_state=1, noise="white").fit(rows)
    np.testing.assert_allclose(white.noise_variance_, 1, atol=0.1)
    assert len(fitted.trace_) == fitted.n_iter_ == 60
    assert fitted.trace_["n_features"].iloc[-1] >= k
    assert list(fitted.features_["presence"]) == list(fitted.presence_)
    summary = fitted.summary()
    assert summary["n_persistent"] == k and "Verdict" in str(summary)


def test_features_are_those_that_made_the_rows(fitted):
    rng = simulated(1)
    assert rng.shape == (1, *GRID)
    x, y = np.meshgrid(*[np.linspace(0, 1, n) for n in GRID], indexing="ij")
    for k in range(3):
        truth = (np.sin(np.pi * (k + 1) * x) * np.cos(np.pi * k * y + k)).ravel()
        assert np.abs(fitted.components_ @ truth / np.linalg.norm(truth)).max() > 0.95


def test_new_rows_one_by_one_together_and_in_any_order(fitted, rows):
    together = fitted.transform(rows)
    order = np.random.default_rng(3).permutation(len(rows))
    np.testing.assert_array_equal(fitted.transform(rows[order]), together[order])
    for at in (0, 17, 119):
        np.testing.assert_array_equal(fitted.transform(rows[at : at + 1])[0], together[at])
    np.testing.assert_array_equal(fitted.reconstruct(rows[5:40]), fitted.reconstruct(rows)[5:40])
    np.testing.assert_array_equal(fitted.transform(rows.reshape(len(rows), -1)), together)


def test_a_trend_does_not_tie_new_rows_together(rows):
    model = issfa.ISSFA(sweeps=30, random_state=1, detrend="linear").fit(rows + np.linspace(0, 3, len(rows))[:, None, None])
    np.testing.assert_array_equal(model.transform(rows[::-1]), model.transform(rows)[::-1])


def test_rows_with_holes_do_not_matter_to_whole_ones(rows):
    model = issfa.ISSFA(sweeps=30, random_state=1, missing="impute").fit(rows)
    some = rows[:20].copy()
    some[3, 2, 2] = some[7, 1, :5] = np.nan
    found = model.transform(some)
    assert np.isfinite(found).all()
    whole = [at for at in range(20) if at not in (3, 7)]
    np.testing.assert_array_equal(found[whole], model.transform(rows[:20])[whole])
    np.testing.assert_array_equal(found[[7, 3]], model.transform(some[[7, 3]]))


def test_weights_go_there_and_back(fitted, rows):
    weights = fitted.transform(rows)
    assert np.corrcoef(weights.ravel(), fitted.weights_.ravel())[0, 1] > 0.98
    flat = rows.reshape(len(rows), -1)
    back = fitted.inverse_transform(weights)
    assert back.shape == flat.shape
    denoised = fitted.reconstruct(flat)
    assert np.corrcoef(back.ravel(), denoised.ravel())[0, 1] > 0.97
    assert fitted.reconstruct(rows).shape == rows.shape
    without = fitted.reconstruct(flat, drop=[fitted.features_["id"][0]])
    assert np.abs(without - denoised).max() > 1


def test_score_is_the_r2_of_hidden_cells(fitted):
    new = simulated(60, seed=9)
    score = fitted.score(new)
    assert 0.3 < score < 1 and fitted.score(new) == score
    noise = np.random.default_rng(0).normal(size=new.shape)
    assert fitted.score(noise) < 0.1
    with pytest.raises(ValueError, match="hide = 1.5"):
        fitted.score(new, hide=1.5)


def test_score_is_what_the_command_evaluates(tmp_path, command, rows):
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "new.npy", simulated(60, seed=9))
    model = issfa.ISSFA(sweeps=40, random_state=2).fit(str(tmp_path / "x.npy"), out=tmp_path / "run")
    words = ("evaluate", tmp_path / "run", "--data", tmp_path / "new.npy", "--hide", 0.2, "--seed", 0, "--json")
    assert json.loads(command(*words))["r2"] == model.score(np.load(tmp_path / "new.npy"))


@pytest.mark.parametrize("dump", ["pickle", "joblib", "deepcopy"])
def test_pickles_hold_all_of_it(fitted, rows, dump, tmp_path):
    if dump == "pickle":
        again = pickle.loads(pickle.dumps(fitted))
    elif dump == "joblib":
        joblib.dump(fitted, tmp_path / "model")
        again = joblib.load(tmp_path / "model")
    else:
        again = copy.deepcopy(fitted)
    assert_same_bits(again, fitted)
    np.testing.assert_array_equal(again.transform(rows), fitted.transform(rows))
    assert_same_bits(again.resume(rows, sweeps=70), copy.deepcopy(fitted).resume(rows, sweeps=70))


def test_a_fit_in_a_folder_is_pickled_without_it(rows, tmp_path):
    model = issfa.ISSFA(sweeps=30, random_state=1, reconstruction=True, chains=2).fit(rows, out=tmp_path / "run")
    stored = pickle.dumps(model)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    again = pickle.loads(stored)
    assert_same_bits(again, issfa.open(tmp_path / "elsewhere"))
    assert again.reconstruction_.shape == rows.shape
    again.save(tmp_path / "saved")
    assert_same_bits(issfa.open(tmp_path / "saved"), again)


def test_clones_are_not_fitted_and_have_the_parameters(fitted):
    twin = clone(issfa.ISSFA(grid=(8, 12), mask=np.ones(96, bool), priors={"ibp_strength": [2, 1]}))
    assert twin.grid == (8, 12) and twin.priors == {"ibp_strength": [2, 1]}
    with pytest.raises(NotFittedError):
        twin.transform(np.zeros((2, 96)))
    assert "sweeps=60" in repr(fitted)


def test_pipelines_grid_search_and_frames(rows):
    pandas = pytest.importorskip("pandas")
    flat = rows.reshape(len(rows), -1)
    pipeline = make_pipeline(StandardScaler(), issfa.ISSFA(grid=GRID, sweeps=15, random_state=0), PCA(2))
    assert pipeline.fit_transform(flat).shape == (len(rows), 2)
    search = GridSearchCV(
        issfa.ISSFA(sweeps=15, grid=GRID, random_state=0, noise="white"), {"structure": ["path x path", "iid x iid"]}, cv=2
    )
    # With so little noise as the rows have, any structure does.
    search.fit(flat + 4 * np.random.default_rng(0).normal(size=flat.shape))
    assert search.best_params_ == {"structure": "path x path"}, "the rows are smooth"
    model = issfa.ISSFA(grid=GRID, sweeps=15, random_state=0).set_output(transform="pandas").fit(flat)
    frame = model.transform(flat)
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(model.get_feature_names_out()) == [f"issfa{k}" for k in range(model.n_components_)]


def test_any_layout_gives_the_same_bits(rows):
    def found(x):
        return issfa.ISSFA(sweeps=20, random_state=5).fit(x)

    for dtype in (np.float64, np.float32):
        plain = rows.astype(dtype)
        wide = np.zeros((2 * len(rows), GRID[0], 2 * GRID[1]), dtype)
        wide[::2, :, ::2] = plain
        turned = np.ascontiguousarray(plain[::-1, :, ::-1])
        layouts = [np.asfortranarray(plain), wide[::2, :, ::2], turned[::-1, :, ::-1]]
        layouts.append(np.moveaxis(np.ascontiguousarray(np.moveaxis(plain, 0, -1)), -1, 0))
        expected = found(plain)
        for layout in layouts:
            before = layout.copy()
            assert_same_bits(found(layout), expected)
            np.testing.assert_array_equal(layout, before)
    whole = np.round(20 * rows)
    expected = found(whole)
    for other in (whole.astype(np.int16), whole.astype(">f8"), whole.tolist()):
        assert_same_bits(found(np.asarray(other)), expected)


def test_a_fit_does_not_copy_its_rows():
    """Held against a copy that would show: rows far larger than what the engine needs beside them."""
    import resource

    grid, n_rows = (100, 100), 1500
    x = np.random.default_rng(0).normal(size=(n_rows, *grid))
    issfa.ISSFA(sweeps=2, random_state=0, noise="white", init="empty").fit(x[:50])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    issfa.ISSFA(sweeps=2, random_state=0, noise="white", init="empty").fit(x)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    # The engine has them once, in single precision; chunks of 32 MB come and go.
    assert grown < x.nbytes / 2 + 150e6, (grown, x.nbytes)


def test_two_fits_in_two_threads_at_once(rows):
    apart = [issfa.ISSFA(sweeps=40, random_state=seed).fit(rows) for seed in (1, 2)]
    together = [issfa.ISSFA(sweeps=40, random_state=seed, n_jobs=1) for seed in (1, 2)]
    threads = [threading.Thread(target=model.fit, args=(rows,)) for model in together]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for one, other in zip(apart, together):
        assert_same_bits(one, other)


def test_every_option_of_the_command_is_a_parameter(command):
    import inspect

    options = set(re.findall(r"^ +--([a-z0-9-]+)", command("fit", "--help"), re.MULTILINE))
    renamed = {"seed": "random_state", "threads": "n_jobs", "reconstruct": "reconstruction"}
    names = {renamed.get(name, name.replace("-", "_")) for name in options}
    # A file of settings is a dictionary here, and there are no ranks and no notes.
    names -= {"config", "ranks_per_chain", "quiet", "help"}
    known = set(inspect.signature(issfa.ISSFA.__init__).parameters) | set(inspect.signature(issfa.ISSFA.fit).parameters)
    assert len(names) > 25 and names <= known, names - known
    keys = set(json.loads(_engine.default_settings())) - {"input"}
    assert {renamed.get(key, key.replace("-", "_")) for key in keys} <= known


def test_usual_values_are_those_of_the_engine():
    model = issfa.ISSFA()
    # Left out, sites are centred; these are not written where they are as usual.
    unwritten = {"center": "site", "until": "sweeps", "report": "auto", "rows-axis": "first", "weights": "normal"}
    usual = {**unwritten, **json.loads(_engine.default_settings())}
    for key, value in model._settings().items():
        assert usual[key] == value, key


def test_progress_is_a_bar(rows, monkeypatch):
    from tqdm import auto

    text = io.StringIO()
    monkeypatch.setattr(auto, "tqdm", lambda **words: real(file=text, mininterval=0, **words))
    from tqdm import tqdm as real

    issfa.ISSFA(sweeps=12, chains=2, random_state=0, progress=True).fit(rows)
    assert "24/24" in text.getvalue() and "K=" in text.getvalue()


def test_random_states(rows):
    def seed(state):
        return issfa.ISSFA(sweeps=3, random_state=state).fit(rows).seed_

    assert seed(7) == 7
    assert seed(np.random.RandomState(0)) == seed(np.random.RandomState(0)) != seed(np.random.RandomState(1))
    assert seed(np.random.default_rng(0)) == seed(np.random.default_rng(0))
    np.random.seed(1)
    assert seed(None) != seed(None)


def test_folders_have_a_page(rows, tmp_path, caplog):
    caplog.set_level("INFO", logger="issfa")
    model = issfa.ISSFA(sweeps=12, random_state=0).fit(rows, out=tmp_path / "run")
    page = (tmp_path / "run/report.html").read_text()
    assert "<title>run - issfa</title>" in page and f'"n_persistent":{model.n_components_}' in page
    assert "report.html" in caplog.text and "all maps" in caplog.text
    assert not list(tmp_path.glob("run/.*report*")), "nothing is left over"
    # In memory there is a page where one is asked for.
    model = issfa.ISSFA(sweeps=12, random_state=0).fit(rows)
    with pytest.raises(issfa.UseError, match="has no folder"):
        model.write_report()
    assert model.write_report(tmp_path / "own.html", name="of my own") == tmp_path / "own.html"
    assert "<title>of my own - issfa</title>" in (tmp_path / "own.html").read_text()
    model.save(tmp_path / "saved")
    assert "<title>saved - issfa</title>" in (tmp_path / "saved/report.html").read_text()
    assert issfa.open(tmp_path / "saved").write_report() == tmp_path / "saved/report.html"
    # And none where none is wanted.
    issfa.ISSFA(sweeps=12, random_state=0, report="none").fit(rows, out=tmp_path / "bare").save(tmp_path / "bare-again")
    assert not (tmp_path / "bare/report.html").exists() and not (tmp_path / "bare-again/report.html").exists()
