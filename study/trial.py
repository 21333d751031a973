"""One trial: a simulation, and every method on it."""

import shutil
import time
from pathlib import Path

import program
import peers


def fitted(sim, run, grid, seed, options):
    """Fits, evaluates and summarises a run; returns what is kept of it."""
    start = time.perf_counter()
    program.call("fit", f"{sim}/observations.npy", "--noise", "white", "--center", "none", "--grid", grid, "--seed", seed, "--out", run, "--overwrite", "--quiet", *options)
    seconds = time.perf_counter() - start
    program.call("report", run)
    report, summary = program.call_json("evaluate", run, "--truth", sim), program.call_json("summary", run)
    features = summary["quantities"][0]
    return {
        "seconds": seconds,
        "sweeps": summary["sweeps_done"],
        "seconds_per_sweep": summary["seconds_per_sweep"],
        "minka_dimension": summary["minka_dimension"],
        "n_features_quantiles": features["quantiles"],
        **{name: report[name] for name in report if name != "pca33_error_ratio"},
    }


def trial(folder, seed, simulation, grid, fit, components, structures=(("issfa", ()), ("isfa", ("--preset", "isfa"))),
          ica=("weights",), keep=False):
    """Simulates with the options `simulation`, fits `structures` with the options `fit`, and runs the peers.

    `components` is the number of components of PCA and FastICA, which are told the truth. The files go unless `keep`.
    """
    folder = Path(folder)
    sim = folder / "sim"
    program.call("simulate", "--seed", seed, "--out", sim, "--overwrite", "--quiet", "--grid", grid, *simulation)
    record = {"seed": seed}
    for name, options in structures:
        record[name] = fitted(sim, folder / name, grid, seed, (*fit, *options))
    minka = record[structures[0][0]]["minka_dimension"]
    record["pca"], _ = peers.pca(sim, seed, components, max(components, minka, 60))
    for sources in ica:
        name = f"fastica_{sources}"
        if sources == "minka":
            record[name], _, _ = peers.fastica(sim, seed, minka, "weights")
        else:
            record[name], _, _ = peers.fastica(sim, seed, components, sources)
    if not keep:
        shutil.rmtree(folder)
    return record


def pca_error(record, dimension):
    """PCA's held-out error at a dimension, at "minka"'s or at its "best"."""
    errors = record["pca"]["heldout_errors"]
    if dimension == "best":
        return min(errors)
    return errors[record["issfa"]["minka_dimension"] if dimension == "minka" else dimension]
