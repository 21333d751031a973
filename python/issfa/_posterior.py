"""The posterior in the form that ArviZ takes."""

import json

import numpy as np

from ._errors import UseError, need

N_PROBES = 16


def posterior(model, probes=None):
    """InferenceData (ArviZ 0.x) or a DataTree (ArviZ 1.x).

    ``posterior`` has every sweep after burn-in, ``sample_stats`` what the sampler did in it, ``kept_draws`` the draws that
    were kept: features matched to ``components_`` (0 where a draw has none, then ``feature_present`` is False), and the
    noise-free value of probed cells.
    """
    xarray = need("xarray", "arviz", "posterior()")
    arviz = need("arviz", "arviz", "posterior()")
    fitted = model._fitted
    groups = _of_trace(xarray, fitted)
    groups["kept_draws"] = _of_draws(xarray, fitted, _probes(model, probes), model._n_threads())
    settings = json.loads(fitted.settings_json())
    attributes = {"inference_library": "issfa", "seed": settings["seed"], "structure": fitted.structure}
    for group in groups.values():
        group.attrs.update(attributes)
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(warn_on_custom_groups=False, **groups)
    return xarray.DataTree.from_dict(groups)


def _of_trace(xarray, fitted):
    """Sweeps after burn-in, as ``issfa summary`` takes them."""
    trace = fitted.trace()
    burn_in = fitted.burn_in
    chains = [
        np.flatnonzero((trace["chain"] == chain) & (trace["sweep"] > burn_in)) for chain in np.unique(trace["chain"])
    ]
    chains = [rows for rows in chains if len(rows) > 0]
    if not chains:
        raise UseError(f"there is no sweep after burn-in ({burn_in}) yet; resume(X) goes on")
    # Of a fit that was stopped, as far as all chains came.
    rows = np.stack([rows[: min(map(len, chains))] for rows in chains])
    coordinates = {"chain": np.arange(len(chains)), "draw": np.arange(rows.shape[1])}
    places = ("chain", "draw")

    def dataset(names):
        return xarray.Dataset({name: (places, trace[column][rows]) for name, column in names.items()}, coordinates)

    sampled = dataset(
        {
            "K": "n_features",
            "n_shared": "n_shared",
            "n_activations": "n_activations",
            "noise_variance": "noise_variance",
            "alpha": "ibp_strength",
            "beta": "ibp_repulsion",
            "ln_likelihood": "ln_likelihood",
        }
    )
    theta = np.stack([trace[f"theta_{p}"][rows] for p in range(1, len(fitted.theta_names) + 1)], axis=-1)
    sampled["theta"] = ((*places, "parameter"), theta)
    sampled = sampled.assign_coords(parameter=list(fitted.theta_names))
    names = ("sweep", "seconds", "theta_accepted", "births", "deaths", "proposals")
    statistics = dataset({name: name for name in names})
    if np.isfinite(trace["heldout_residual"]).any():
        sampled["heldout_residual"] = (places, trace["heldout_residual"][rows])
    return {"posterior": sampled, "sample_stats": statistics}


def _of_draws(xarray, fitted, probes, n_threads):
    places, features, present, values = fitted.draws(probes, n_threads)
    numbers = sorted({chain for chain, _ in places})
    own = [[at for at, (of, _) in enumerate(places) if of == chain] for chain in numbers]
    n = min(map(len, own), default=0)
    rows = np.array([one[:n] for one in own], dtype=int).reshape(len(own), n)
    axes = [f"axis_{axis}" for axis in range(1, features.ndim - 1)]
    data = {
        "features": (("chain", "draw", "feature", *axes), features[rows]),
        "feature_present": (("chain", "draw", "feature"), present[rows]),
        "reconstruction": (("chain", "draw", "probe"), values[rows]),
        "sweep": (("chain", "draw"), np.array([sweep for _, sweep in places], dtype=np.int64)[rows]),
    }
    coordinates = {
        "chain": np.arange(len(own)),
        "draw": np.arange(n),
        "feature": fitted.table()["id"],
        "probe_row": ("probe", np.array([row for row, _ in probes], dtype=int)),
        "probe_site": ("probe", np.array([site for _, site in probes], dtype=int)),
    }
    return xarray.Dataset(data, coordinates)


def _probes(model, probes):
    """Cells to follow, (row, site) each: as given, or spread over rows and sites."""
    if probes is not None:
        return [(int(row), int(site)) for row, site in probes]
    inside = model._fitted.mask()
    sites = np.arange(len(model.mean_)) if inside is None else np.flatnonzero(inside)
    n = min(N_PROBES, len(model.weights_), len(sites))
    pick = lambda length: (np.arange(n) + 0.5) * length / n
    return list(zip(pick(len(model.weights_)).astype(int).tolist(), sites[pick(len(sites)).astype(int)].tolist()))
