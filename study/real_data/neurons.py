"""Movies made of real neurons under three kinds of noise: which cells are found, what is false, how good traces and denoising are."""

import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.decomposition import NMF, PCA, FastICA, MiniBatchSparsePCA

from . import figures, ours
from .measures import best_cosines, correlation, cosines, measure

NEEDS = ["neurons/make_movie.py", "neurons/footprints.npy", "neurons/traces.npy"]
KINDS = {"sites": "noise that differs between sites", "smooth": "with a smooth field in every frame",
         "both": "both, and a drifting background"}
WINDOW, FRAMES, SEED, SWEEPS = "70,70,100", "0,1500", 21, 400
FOUND, MATCHED, LOUD = 0.7, 0.5, 10
TITLE = "Neurons"
ABOUT = """Movies of 1500 frames of 100 x 100 made of real footprints and calcium traces: {cells} cells, {loud} of them loud (root mean square of the trace above
10), under three kinds of noise: `sites`, whose standard deviation differs between sites; `smooth`, with a smooth field of its own in every frame on top; `both`, with a
drifting background as well. A cell is found where the cosine of its footprint with a feature is at least 0.7, and loud cells count; a feature is false where its best cosine with any
cell is below 0.5. The trace correlation is the mean over loud cells of Pearson's between the true trace and the weights of the feature most like the
cell. The denoised R2 is of the denoised movie against the movie without noise and background. The peers are told the number of cells, issfa is not."""
SETTINGS = """`make_movie.py --window {window} --frames {frames} --seed {seed} --noise KIND`. issfa: `ISSFA(sweeps={sweeps}, random_state=1, reconstruction=True)`, else the defaults.
scikit-learn, with k the number of cells: `FastICA(k, whiten="unit-variance", max_iter=500, random_state=0)`, `NMF(k, init="nndsvda", max_iter=300, random_state=0)` of what exceeds each site's median (of the movie less its smallest value it finds fewer cells),
`PCA(k, random_state=0)`, `MiniBatchSparsePCA(k, random_state=0)`, else the defaults. Processor seconds are those of all threads."""
WHY = {
    "trace": "a loud cell that issfa leaves out has the trace of another feature here; NMF, told the number of cells, has something for most of them",
    "false": "a smooth field in every frame and a drifting background are like features, and some of them are taken for features; the peers, told the number of cells, have less room for them",
    "denoised": "it explains part of the background as features, which counts as an error here",
}


def peers(values, k):
    """Features, weights and denoised movie of every peer, and seconds; `values` are frames x sites."""
    mean = values.mean(0)

    def fastica():
        fit = FastICA(k, whiten="unit-variance", max_iter=500, random_state=0)
        weights = fit.fit_transform(values)
        return fit.mixing_.T, weights, fit.inverse_transform(weights)

    def nmf():
        fit = NMF(k, init="nndsvda", max_iter=300, random_state=0)
        weights = fit.fit_transform(np.maximum(values - np.median(values, axis=0), 0))
        return fit.components_, weights, weights @ fit.components_

    def pca():
        fit = PCA(k, random_state=0)
        weights = fit.fit_transform(values)
        return fit.components_, weights, fit.inverse_transform(weights)

    def sparse():
        fit = MiniBatchSparsePCA(k, random_state=0)
        weights = fit.fit_transform(values)
        return fit.components_, weights, weights @ fit.components_ + mean

    for name, make in {"FastICA": fastica, "NMF": nmf, "PCA": pca, "sparse PCA": sparse}.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            features, weights, denoised = make()
        yield name, (features, weights, denoised, time.process_time() - start)


def scores(features, weights, denoised, truth, traces):
    loud = np.sqrt((traces**2).mean(0)) > LOUD
    best, which = best_cosines(truth, features)
    nearest = np.abs(cosines(truth, features)).max(0) if len(features) else np.zeros(0)
    along = [abs(correlation(traces[:, cell], weights[:, which[cell]])) if len(features) else 0.0 for cell in np.flatnonzero(loud)]
    clean = traces @ truth
    clean = clean - clean.mean(0)
    error = np.sum((denoised - denoised.mean(0) - clean) ** 2)
    return {"found": int((best[loud] >= FOUND).sum()), "false": int((nearest < MATCHED).sum()), "trace": float(np.mean(along)),
            "r2": float(1 - error / np.sum(clean**2)), "number": len(features)}


def run(data, quick):
    reports, shown, sweeps = {}, {}, 20 if quick else SWEEPS
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, data / NEEDS[0], folder, "--window", WINDOW, "--frames", FRAMES, "--noise", kind, "--seed", str(SEED)],
                           check=True, capture_output=True)
            movie, truth, traces = (np.load(Path(folder) / f"{name}.npy") for name in ("movie", "truth_features", "truth_weights"))
        grid, truth = movie.shape[1:], truth.reshape(len(truth), -1)
        values = movie.reshape(len(movie), -1)
        start = time.process_time()
        model = ours.fit(movie, sweeps, 1, reconstruction=True)
        took = time.process_time() - start
        denoised = np.asarray(model.reconstruction_).reshape(values.shape)
        methods = {"issfa": (ours.features(model), model.weights_, denoised, took), **dict(peers(values, len(truth)))}
        for name, (features, weights, restored, seconds) in methods.items():
            reports.setdefault(kind, {})[name] = {**scores(features, weights, restored, truth, traces), "seconds": seconds}
            print(f"  {kind} {name}: {reports[kind][name]}", flush=True)
        shown[kind] = {name: one[0] for name, one in methods.items()}
    loud = np.sqrt((traces**2).mean(0)) > LOUD
    figures.cells("neurons", truth, loud, shown, grid, FOUND, MATCHED)
    names = {"found": f"loud cells found of {loud.sum()}", "false": "false features", "trace": "trace correlation", "r2": "denoised R2"}
    measures = []
    for kind in KINDS:
        for what, words in names.items():
            values = {name: report[what] for name, report in reports[kind].items()}
            measures.append(measure(f"{kind}: {words}", "lower" if what == "false" else "higher", values, 0 if what in ("found", "false") else 2,
                                    0 if what in ("found", "false") else 0.01))
        measures.append(measure(f"{kind}: features (truth {len(truth)})", None, {name: report["number"] for name, report in reports[kind].items()}, 0))
    measures.append(measure("processor seconds, all three", None, {name: sum(reports[kind][name]["seconds"] for kind in KINDS) for name in reports["both"]}, 0))
    return {"sweeps": sweeps, "cells": len(truth), "loud": int(loud.sum()), "window": WINDOW, "frames": FRAMES, "seed": SEED, "measures": measures}


def figure_words(_):
    return [("neurons", "Outlines of the loud cells, and the features found by each method")]
