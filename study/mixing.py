"""What each move is worth: chains with one of them switched off, followed sweep by sweep."""

import csv
import io
import subprocess
from pathlib import Path

import program

FOLLOW = "target/release/examples/follow_truth"

# A single draw of a right feature has a cosine of about 0.68 with the truth on the paper's simulation, and a mixture of two true
# features one of at most 0.68 / sqrt(2) = 0.48 with either.
BAR = 0.5

KERNELS = ["unmix", "features", "noise", "shared_activations", "pair_rotation", "tidy_up", "few_rows", "unique_features",
           "theta", "rescale", "sign_flip", "ibp_strength", "ibp_repulsion", "weight_means", "weight_precisions"]


def settings(sweeps, seed, burn_in=0, without=(), birth_rounds=8, one_by_one=False, preset=None):
    """A settings file; burn-in 0 leaves nothing at work but the posterior's own moves."""
    kernels = [kernel for kernel in KERNELS if kernel not in without]
    if one_by_one:
        kernels[kernels.index("features")] = "features_one_by_one"
    lines = [f"sweeps = {sweeps}", f"burn-in = {burn_in}", "thin = 1", f"seed = {seed}"]
    lines += [f'preset = "{preset}"'] if preset else []
    return "\n".join(lines + ["[sweep]", f"birth_rounds = {birth_rounds}", f"kernels = {kernels}", ""]).replace("'", '"')


def variants(sweeps, seed):
    return {
        "all moves": settings(sweeps, seed),
        "features one by one": settings(sweeps, seed, one_by_one=True),
        "one birth round": settings(sweeps, seed, birth_rounds=1),
        "no rescale": settings(sweeps, seed, without=["rescale"]),
        "none of the three": settings(sweeps, seed, one_by_one=True, birth_rounds=1, without=["rescale"]),
        "all moves, and burn-in's help": settings(sweeps, seed, burn_in=sweeps - 1),
    }


def follow(folder, sim, text):
    """The columns of `follow_truth` for these settings."""
    path = Path(folder) / "settings.toml"
    path.write_text(text)
    output = subprocess.run([FOLLOW, str(sim), str(path), str(BAR)], check=True, capture_output=True, text=True).stdout
    rows = list(csv.DictReader(io.StringIO(output)))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def first_at_least(trace, n):
    """The first sweep at which `n` true features are found, or None."""
    return next((int(sweep) for sweep, found in zip(trace["sweep"], trace["n_found"]) if found >= n), None)


def study(folder, seeds, sweeps, simulation, n_true):
    """Every variant on every seed."""
    found = {}
    for seed in seeds:
        sim = Path(folder) / "sim"
        program.call("simulate", "--seed", seed, "--out", sim, "--overwrite", "--quiet", *simulation)
        for name, text in variants(sweeps, seed).items():
            trace = follow(folder, sim, text)
            print(f"  mixing, seed {seed}, {name}: {trace['n_found'][-1]:.0f} found", flush=True)
            found.setdefault(name, []).append({
                "seed": seed, "sweeps_to_all": first_at_least(trace, n_true),
                "sweeps_to_most": first_at_least(trace, round(0.9 * n_true)),
                "n_found": trace["n_found"],
            })
    return {"sweeps": sweeps, "n_true": n_true, "bar": BAR, "variants": found}
