"""issfa as this study uses it: fits at the defaults, hidden cells of new rows, and the noise that goes with them."""

import json
import struct
import tempfile
from pathlib import Path

import issfa
import numpy as np

SEEDS = (1, 2)


def fit(rows, sweeps, seed, **options):
    """A fit at the defaults (noise reference, centring by site)."""
    return issfa.ISSFA(sweeps=sweeps, random_state=seed, n_jobs=2, missing="impute", **options).fit(rows)


def features(model):
    """K x sites, 0 outside of a mask."""
    return np.nan_to_num(model.components_.astype(float))


def tensors(path):
    """The arrays of a safetensors file."""
    raw = Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    kinds = {"F64": np.float64, "F32": np.float32, "U64": np.uint64, "I64": np.int64}
    found = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] in kinds:
            first, last = entry["data_offsets"]
            found[name] = np.frombuffer(raw[8 + size + first : 8 + size + last], kinds[entry["dtype"]]).reshape(entry["shape"])
    return found


def laplacian(n, kind):
    """Of a path or a cycle of n sites."""
    matrix = np.diag(np.full(n, 2.0)) - np.eye(n, k=1) - np.eye(n, k=-1)
    if kind == "cycle":
        matrix[0, -1] -= 1
        matrix[-1, 0] -= 1
    else:
        matrix[0, 0] = matrix[-1, -1] = 1
    return matrix if n > 1 else np.zeros((1, 1))


def noise_covariance(model, grid, kind="path"):
    """Of the noise of a row of the training data at the sites that take part, as the fit measured it: `D U p U' D`.

    D holds the scales of the sites, p the power of the noise in each mode of the grid, U the modes (docs/model.md, M15). It is
    scaled so that its diagonal agrees with `noise_variance_` on average.
    """
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "run")
        reference = tensors(Path(folder) / "run/noise_reference.safetensors")
    values, modes = np.zeros(1), np.ones((1, 1))
    for n in grid:
        own, vectors = np.linalg.eigh(laplacian(n, kind))
        values, modes = np.add.outer(values, own).ravel(), np.kron(modes, vectors)
    powers = reference["powers"][np.searchsorted(reference["band_ends"] * (1 + 1e-12), values)]
    seen = np.isfinite(model.noise_variance_)
    covariance = (modes[seen] * powers) @ modes[seen].T
    scales = reference["site_scales"].ravel()
    covariance *= np.outer(scales, scales)
    return covariance * np.mean(model.noise_variance_[seen] / np.diag(covariance))


def predict(model, rows, hidden, grid, kind="path"):
    """Hidden cells of new rows: what the features say of them, and with it the mean of the noise given that at the visible cells.

    `rows` and `hidden` are rows x sites; sites that no row of the fit had are NaN. The first answer is `issfa transform`'s, the
    second what `issfa evaluate --hide` calls the prediction.
    """
    seen = np.isfinite(model.noise_variance_)
    holes = np.where(hidden, np.nan, rows)
    signal = np.array(model.infer(holes.reshape(-1, *grid))[2], dtype=float).reshape(len(rows), -1)
    if model.noise == "white":
        return signal, signal
    covariance = noise_covariance(model, grid, kind)
    both = signal.copy()
    for at in range(len(rows)):
        mean, _ = given_visible(covariance, (rows[at] - signal[at])[seen][None], hidden[at][seen])
        both[at, hidden[at]] += mean[0]
    return signal, both


def given_visible(covariance, residuals, hidden):
    """Means (one for each row of residuals) and variances of the noise at hidden cells given that at the others."""
    if not hidden.any():
        return np.zeros((len(residuals), 0)), np.zeros(0)
    gain = np.linalg.solve(covariance[np.ix_(~hidden, ~hidden)], covariance[np.ix_(~hidden, hidden)])
    left = np.diag(covariance)[hidden] - np.einsum("vh,vh->h", gain, covariance[np.ix_(~hidden, hidden)])
    return residuals[:, ~hidden] @ gain, np.maximum(left, 0)


def coverage(rows, hidden, grid, sweeps, seed, level=0.9, kind="path", **options):
    """The share of hidden cells that lie in their central interval, with the visible cells of all rows in one fit.

    Each kept draw gives the noise-free row; the noise at hidden cells given that at visible ones is drawn beside it.
    """
    holes = np.where(hidden, np.nan, rows)
    model = fit(holes.reshape(-1, *grid), sweeps, seed, keep_draws=40, **options)
    covariance = noise_covariance(model, grid, kind)
    chosen = np.flatnonzero(hidden.any(axis=1))
    n = rows.shape[1]
    probes = [(int(row), site) for row in chosen for site in range(n)]
    draws = model.posterior(probes).kept_draws["reconstruction"]
    signal = draws.values.reshape(-1, len(chosen), n)
    generator = np.random.default_rng(seed)
    inside = []
    for at, row in enumerate(chosen):
        own = hidden[row]
        mean, variance = given_visible(covariance, rows[row] - signal[:, at], own)
        centre = signal[:, at][:, own] + mean
        drawn = np.repeat(centre, 25, axis=0)
        drawn += np.sqrt(variance) * generator.standard_normal(drawn.shape)
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        inside.append((rows[row, own] >= low) & (rows[row, own] <= high))
    return float(np.concatenate(inside).mean())
