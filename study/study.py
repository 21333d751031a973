"""The paper's comparison of section 5 against scikit-learn, and what lies beyond it.

    study/run                     everything: writes study/results.json, docs/study.md and its figures (about 40 minutes on 2 cores)
    study/run --only PART ...     some parts of it; the others stay as they are in results.json
    study/run --page              only the page, from results.json and the figures that are there
    study/run --quick             a small study in about a minute that asserts who wins, and writes nothing

Parts: paper (the paper's measures and figures), grids (noise, rows, density, smoothness), structures (the wrong structure),
mixing (what each move is worth).
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import figures
import program
import matplotlib
import mixing
import numpy as np
import page
import peers
import results_file
import scipy
import sklearn
from trial import pca_error, trial

RESULTS = Path("study/results.json")
WORK = Path("target/study")

PAPER = ["--preset", "paper"]
PAPER_FIT = ["--sweeps", "400", "--burn-in", "200", "--thin", "5", "--keep-draws", "40"]
PAPER_SEEDS = [11, 12, 13, 14, 15]

# The small study that grids vary: 400 rows on 40 x 40, 10 features.
BASE = {"rows": 400, "density": 0.1, "noise": 1, "theta": "1,100"}
GRIDS = {
    "noise": [0.25, 0.5, 1, 2, 4, 8],
    "rows": [50, 100, 200, 400, 800, 1600],
    "density": [0.025, 0.05, 0.1, 0.2, 0.4, 0.8],
    "theta": ["1,0.1", "1,1", "1,10", "1,100", "1,1000", "1,10000"],
}
SMALL_SEEDS = [21, 22, 23, 24, 25]
SMALL_GRID, SMALL_FEATURES = "40x40", 10
SMALL_FIT = ["--sweeps", "300", "--burn-in", "200", "--thin", "5", "--keep-draws", "20", "--threads", "1"]

# Truth (structure, curve, theta), and what it is fitted with.
STRUCTURES = [
    ("iid x iid", "q", "1", ["iid x iid", "path x path"]),
    ("path x path", "q", "1,1", ["path x path", "iid x iid"]),
    ("path x path", "q", "1,100", ["path x path", "cycle x cycle", "wavelet(40,d4) x wavelet(40,d4)", "iid x iid"]),
    ("path x path", "q^2", "1,10", ["path x path; q^2", "path x path", "iid x iid"]),
    ("cycle x cycle", "q", "1,100", ["cycle x cycle", "path x path", "iid x iid"]),
    ("path x path", "axes", "1,10,1000", ["path x path; axes", "path x path", "iid x iid"]),
]


def simulation_options(values):
    words = ["--features", SMALL_FEATURES, "--heldout-rows", 200]
    for name, value in values.items():
        words += [f"--{name}", value]
    return [str(word) for word in words]


def small_trial(job):
    """One cell of a grid: a pool's worker."""
    os.environ["OMP_NUM_THREADS"] = "1"
    name, values, seed = job
    folder = WORK / f"{name}-{seed}"
    simulation = ["--preset", "small", *simulation_options(values)]
    record = trial(folder, seed, simulation, SMALL_GRID, SMALL_FIT, SMALL_FEATURES)
    print(f"  {name}, seed {seed}: held-out error {record['issfa']['heldout_error']:.4f}", flush=True)
    return name, record


def structure_trial(job):
    os.environ["OMP_NUM_THREADS"] = "1"
    (structure, curve, theta, fits), seed = job
    name = f"structure-{structure}-{curve}-{theta}".replace(" ", "")
    values = {**BASE, "structure": structure, "curve": curve, "theta": theta}
    options = []
    for fit in fits:
        words, _, fitted_curve = fit.partition("; ")
        options.append((fit, ("--structure", words, "--curve", fitted_curve or "q")))
    simulation = ["--preset", "small", *simulation_options(values)]
    record = trial(WORK / f"{name}-{seed}", seed, simulation, SMALL_GRID, SMALL_FIT, SMALL_FEATURES, structures=options)
    print(f"  {name}, seed {seed}", flush=True)
    return {"structure": structure, "curve": curve, "theta": theta, "fits": fits, **record}


def study_paper(results):
    records = []
    for at, seed in enumerate(PAPER_SEEDS):
        folder = WORK / f"paper-{seed}"
        records.append(trial(folder, seed, PAPER, "100x100", PAPER_FIT, 50, ica=("weights", "images", "minka"), keep=at == 0))
        print(f"  paper, seed {seed}: PCA/issfa {pca_error(records[-1], 'minka') / records[-1]['issfa']['heldout_error']:.2f}",
              flush=True)
    results["paper"] = {"simulation": PAPER, "fit": PAPER_FIT, "records": records}
    folder = WORK / f"paper-{PAPER_SEEDS[0]}"
    sweeps, burn_in = int(PAPER_FIT[1]), int(PAPER_FIT[3])
    text = {name: mixing.settings(sweeps, PAPER_SEEDS[0], burn_in, preset=preset)
            for name, preset in (("issfa", None), ("isfa", "isfa"))}
    results["paper"]["traces"] = {name: mixing.follow(folder, folder / "sim", text[name]) for name in text}
    figures.paper(results["paper"], folder, PAPER_SEEDS[0])
    shutil.rmtree(folder)


def study_grids(results):
    jobs = {}
    for axis, values in GRIDS.items():
        for value in values:
            cell = {**BASE, axis: value}
            jobs["-".join(f"{key}{value}" for key, value in cell.items())] = cell
    pairs = [(name, cell, seed) for name, cell in jobs.items() for seed in SMALL_SEEDS]
    cells = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, record in pool.map(small_trial, pairs):
            cells.setdefault(name, {"values": jobs[name], "records": []})["records"].append(record)
    results["grids"] = {"base": BASE, "axes": GRIDS, "grid": SMALL_GRID, "features": SMALL_FEATURES, "fit": SMALL_FIT,
                        "cells": list(cells.values())}


def study_structures(results):
    jobs = [(case, seed) for case in STRUCTURES for seed in SMALL_SEEDS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results["structures"] = {"base": BASE, "fit": SMALL_FIT, "records": list(pool.map(structure_trial, jobs))}


def study_mixing(results):
    simulation = [*PAPER, "--heldout-rows", "20"]
    results["mixing"] = mixing.study(WORK, PAPER_SEEDS[:3], 300, simulation, 50)


PARTS = {"paper": study_paper, "grids": study_grids, "structures": study_structures, "mixing": study_mixing}


def versions():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {"issfa": f"{program.call('--version').split()[-1]} ({commit})", "python": platform.python_version(), "numpy": np.__version__,
            "scipy": scipy.__version__, "scikit-learn": sklearn.__version__, "matplotlib": matplotlib.__version__,
            "cores": os.cpu_count()}


def quick():
    """Who wins on a small study, and the evidence against scikit-learn's where scikit-learn has one."""
    WORK.mkdir(parents=True, exist_ok=True)
    folder = WORK / "quick"
    simulation = ["--preset", "small", "--rows", "300", "--heldout-rows", "200", "--features", "10", "--density", "0.1"]
    fit = ["--sweeps", "150", "--burn-in", "100", "--thin", "2", "--keep-draws", "25"]
    for seed in (1, 2):
        record = trial(folder, seed, simulation, "40x40", fit, 10)
        ours, isfa, ica = record["issfa"], record["isfa"], record["fastica_weights"]
        pca = pca_error(record, "minka")
        print(f"seed {seed}: held-out error iSSFA {ours['heldout_error']:.4f}, isFA {isfa['heldout_error']:.4f}, PCA({ours['minka_dimension']}) "
              f"{pca:.4f}, PCA at its best {pca_error(record, 'best'):.4f}; E_r iSSFA {ours['feature_recovery_error']:.2f}, FastICA(10) "
              f"{ica['recovery_error']:.2f}, oracle {ours['oracle_feature_recovery_error']:.2f}", flush=True)
        assert ours["heldout_error"] < pca, "PCA has the smaller held-out error"
        assert ours["heldout_error"] < pca_error(record, "best"), "PCA at its best dimension has the smaller held-out error"
        assert ours["heldout_error"] < isfa["heldout_error"], "isFA has the smaller held-out error"
        assert ours["feature_recovery_error"] < ica["recovery_error"], "FastICA recovers the features better"
    for rows, grid, center in ((300, "12x12", "site"), (60, "12x12", "row")):
        check_evidence(folder, rows, grid, center)
    shutil.rmtree(folder)
    print("study: the orderings hold")


def check_evidence(folder, rows, grid, center):
    """scikit-learn wants more rows than sites, so with fewer it gets the data turned over."""
    program.call("simulate", "--preset", "small", "--rows", rows, "--heldout-rows", 1, "--grid", grid, "--features", 6, "--density", 0.5,
               "--seed", 1, "--out", folder / "sim", "--overwrite", "--quiet")
    program.call("fit", folder / "sim/observations.npy", "--grid", grid, "--sweeps", 10, "--center", center, "--noise", "white", "--precision", "f64", "--seed",
               1, "--out", folder / "run", "--overwrite", "--quiet")
    ours = program.call_json("summary", folder / "run")["minka_dimension"]
    data = peers.load(folder / "sim", "observations").astype(float)
    theirs = sklearn.decomposition.PCA("mle", svd_solver="full").fit(data if center == "site" else data.T).n_components_
    print(f"Minka's dimension of {rows} x {grid}: issfa {ours}, scikit-learn {theirs}")
    assert ours == theirs, "the evidence differs from scikit-learn's"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--page", action="store_true")
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = options.parse_args()
    if options.quick:
        return quick()
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    if not options.page:
        WORK.mkdir(parents=True, exist_ok=True)
        for part in options.only:
            print(f"{part}:", flush=True)
            PARTS[part](results)
            results[part]["versions"] = versions()
            results_file.save(results, PARTS, RESULTS)
    page.write(results)


if __name__ == "__main__":
    main()
