"""The paper's simulation with noise that differs between sites: beside factor analysis and MOFA, which have a noise for each site too."""

import contextlib
import io
import resource
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import program
from peers import cosines, load, recovery_error
from sklearn.decomposition import FactorAnalysis

from . import figures, linear
from .measures import measure

NEEDS = []
SIZE = {"rows": 1500, "heldout-rows": 300, "grid": "60x60", "features": 25}
SEED, SWEEPS = 51, 400
TITLE = "The paper's simulation"
ABOUT = """The simulation of docs/study.md at half of its size, {rows} rows on {grid} with {features} features, each used by 5% of the rows, with noise whose standard deviation
differs between sites by a factor of 5 between 5% and 95% of them (variance 1 on average). It has no real data in it: it is here because factor analysis and MOFA model just
this noise. E_r, found and held-out error are as in docs/study.md ({heldout} rows that no method saw). Coverage is of 90% intervals of the noise-free held-out rows: issfa's are `issfa evaluate
--truth`'s, those of peers the normal ones of their weights given their loadings and noise. The peers are told the number of features. Processor seconds
are those of all threads."""
SETTINGS = """`issfa simulate --preset paper --rows {rows} --heldout-rows {heldout} --grid {grid} --features {features} --noise-kind sites --seed {seed}`; `issfa fit sim/observations.npy --grid {grid} --sweeps {sweeps}
--keep-draws 40 --seed 1`, else the defaults (and once with `--center none`); `FactorAnalysis({features}, random_state=0)`, and with `rotation="varimax"`; mofapy2: one view, one group, `factors={features}`, `iter=500`, `seed=1`, else
the defaults (spike and slab on its weights, which are our features). MOFA has no transformation of new rows: their factors have a standard normal prior, given the means of its weights and noise."""
NOTE = """issfa's intervals are honest with `--center none` only, which is how the data were made. With the default, the means of the sites are subtracted and added back as if they were known; in rows that use few
features, it seems, the intervals are then narrower than the error of the means. The peers' intervals take loadings and noise for known, and are too narrow for that reason."""
WHY = {"seconds": "one answer costs less than hundreds of draws from a posterior"}


def mofa(rows, k):
    """Loadings (k x sites), noise variances and seconds."""
    from mofapy2.run.entry_point import entry_point

    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        entry = entry_point()
        entry.set_data_options(scale_views=False)
        entry.set_data_matrix([[rows]], likelihoods=["gaussian"])
        entry.set_model_options(factors=k)
        entry.set_train_options(iter=500, seed=1, quiet=True)
        entry.build()
        entry.run()
    nodes = entry.model.nodes
    loadings = np.asarray(nodes["W"].getExpectation()[0])
    precisions = np.asarray(nodes["Tau"].getExpectation()[0])
    # Factors have no fixed scale: loadings are those of factors of unit mean square.
    scale = np.sqrt((np.asarray(nodes["Z"].getExpectation()) ** 2).mean(0))
    return (loadings * scale).T, 1 / precisions.reshape(-1, rows.shape[1]).mean(0), time.process_time() - start


def denoised(rows, mean, loadings, noise):
    """Noise-free rows given rows, and their standard deviations: factors are standard normal."""
    left = np.linalg.inv(np.eye(len(loadings)) + (loadings / noise) @ loadings.T)
    factors = ((rows - mean) / noise) @ loadings.T @ left
    return mean + factors @ loadings, np.sqrt(np.sum(loadings * (left @ loadings), axis=0))


def score(truth, loadings, restored, deviations, clean):
    inside = np.abs(restored - clean) <= linear.WIDE * deviations
    return {"recovery": recovery_error(truth, loadings), "found": int((np.abs(cosines(truth, loadings)).max(1) >= 0.7).sum()),
            "error": float(np.mean((restored - clean) ** 2)), "coverage": float(inside.mean()), "count": len(loadings)}


def run(_, quick):
    size = {**SIZE, "rows": 300, "heldout-rows": 50} if quick else SIZE
    sweeps, k = 20 if quick else SWEEPS, SIZE["features"]
    with tempfile.TemporaryDirectory() as folder:
        sim, out = Path(folder) / "sim", Path(folder) / "run"
        words = [word for name, value in size.items() for word in (f"--{name}", value)]
        program.call("simulate", "--preset", "paper", *words, "--noise-kind", "sites", "--seed", SEED, "--out", sim, "--quiet")
        reports = {}
        for name, options in (("issfa", []), ("issfa, `--center none`", ["--center", "none"])):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            program.call("fit", sim / "observations.npy", "--grid", SIZE["grid"], "--sweeps", sweeps, "--keep-draws", 40, "--seed", 1, *options, "--out", out, "--overwrite",
                         "--quiet")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            told = program.call_json("evaluate", out, "--truth", sim)
            reports[name] = {"recovery": told["feature_recovery_error"], "found": told["n_found"], "error": told["heldout_error"],
                             "coverage": told["heldout_coverage"], "count": told["n_persistent"],
                             "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
            print(f"  {name}: {reports[name]}", flush=True)
            if name == "issfa":
                features = load(out, "features")
        rows, noisy, clean, truth = (load(sim, name).astype(float) for name in ("observations", "heldout", "truth_heldout", "truth_features"))
    shown = {"true": truth, "issfa": features}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, rotation in (("FactorAnalysis", None), ("FactorAnalysis, varimax", "varimax")):
            start = time.process_time()
            fit = FactorAnalysis(k, rotation=rotation, random_state=0).fit(rows)
            seconds = time.process_time() - start
            found = denoised(noisy, fit.mean_, fit.components_, fit.noise_variance_)
            reports[name] = {**score(truth, fit.components_, *found, clean), "seconds": seconds}
            shown[name] = fit.components_
            print(f"  {name}: {reports[name]}", flush=True)
        loadings, noise, seconds = mofa(rows, k)
    reports["MOFA"] = {**score(truth, loadings, *denoised(noisy, rows.mean(0), loadings, noise), clean), "seconds": seconds}
    shown["MOFA"] = loadings
    grid = tuple(int(n) for n in SIZE["grid"].split("x"))
    figures.matches("simulation", shown, grid, 8, "The first eight true features, and the best match of each method")
    column = lambda what: {name: report[what] for name, report in reports.items() if report[what] is not None}  # noqa: E731
    return {"sweeps": sweeps, "seed": SEED, "rows": size["rows"], "heldout": size["heldout-rows"], "grid": SIZE["grid"], "features": k, "measures": [
        measure("E_r", "lower", column("recovery"), 2, 0.1), measure(f"found of {k}", "higher", column("found"), 0, 0),
        measure("held-out error", "lower", column("error"), 4, 0.0001), measure("coverage of 90% intervals", 0.9, column("coverage"), 3, 0.01),
        measure("components", None, column("count"), 0), measure("processor seconds", "lower", column("seconds"), 0, 0)]}


def figure_words(_):
    return [("simulation", "True features and the best match of each method")]
