"""scikit-learn's PCA and FastICA on a simulation, measured as `issfa evaluate --truth` measures a run."""

import time
import warnings

import numpy as np
from scipy.stats import kurtosis
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning


def load(folder, name):
    """An array of a simulation or run folder with its grid flattened."""
    values = np.load(f"{folder}/{name}.npy")
    return values.reshape(len(values), -1)


def unit(features):
    """Features of unit norm; those that vanish stay."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norms > 0, norms, 1)


def cosines(truth, features):
    """Of every true feature (rows) with every feature found."""
    return unit(truth) @ unit(features).T


def recovery_error(truth, features):
    """E_r: the sum over true features of the least squared distance to a feature, on unit norm and with either sign."""
    return float(np.sum(2 - 2 * np.abs(cosines(truth, features)).max(axis=1)))


def pca(sim, seed, n_components, most):
    """PCA(`n_components`); held-out errors for every dimension up to `most`."""
    rows, noisy, clean = (load(sim, name) for name in ("observations", "heldout", "truth_heldout"))
    truth = load(sim, "truth_features")
    start = time.perf_counter()
    fit = PCA(n_components, random_state=seed).fit(rows)
    seconds = time.perf_counter() - start
    most = min(most, *rows.shape)
    wide = fit if most <= n_components else PCA(most, random_state=seed).fit(rows)
    seen, there = (noisy - wide.mean_) @ wide.components_.T, (clean - wide.mean_) @ wide.components_.T
    gains = np.sum((seen - there) ** 2 - there**2, axis=0, dtype=float)
    total = np.sum((clean - wide.mean_) ** 2, dtype=float)
    errors = (total + np.concatenate([[0], np.cumsum(gains)])) / clean.size
    scores = fit.transform(rows)
    return {"seconds": seconds, "heldout_errors": errors.tolist(), "recovery_error": recovery_error(truth, fit.components_),
            "weight_kurtosis": float(kurtosis(scores, axis=None))}, fit


def fastica(sim, seed, n_components, sources):
    """FastICA(`n_components`) whose independent sources are the weights (over rows) or the images (over sites)."""
    rows, truth = load(sim, "observations"), load(sim, "truth_features")
    fit = FastICA(n_components, whiten="unit-variance", max_iter=1000, random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        independent = fit.fit_transform(rows if sources == "weights" else rows.T)
        seconds = time.perf_counter() - start
    weights, features = (independent, fit.mixing_.T) if sources == "weights" else (fit.mixing_, independent.T)
    scaled = weights * np.linalg.norm(features, axis=1)
    report = {"seconds": seconds, "iterations": int(fit.n_iter_), "components": n_components, "sources": sources,
              "converged": not any(issubclass(warning.category, ConvergenceWarning) for warning in caught),
              "recovery_error": recovery_error(truth, features), "weight_kurtosis": float(kurtosis(scaled, axis=None)),
              "n_found": int(np.sum(np.abs(cosines(truth, features)).max(axis=1) >= 0.7))}
    if sources == "weights":
        noisy, clean = load(sim, "heldout"), load(sim, "truth_heldout")
        report["heldout_error"] = float(np.mean((fit.inverse_transform(fit.transform(noisy)) - clean) ** 2, dtype=float))
    return report, unit(features), scaled
