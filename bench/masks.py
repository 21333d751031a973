"""What a mask costs and gains: features found inside of it, and seconds per sweep; prints tables and writes bench/masks.json.

    bench/run masks [--quick] [--only recovery speed more_rows] [--before BINARY]

The mask is an ellipsoid with semi-axes of 0.42 of each side, 31% of the box.

1. recovery  the same simulated volumes fitted whole, with the mask, and with zeros outside of the mask; all three are compared
             with the true features inside of the mask only
2. speed     fits with and without the mask in turn, with as many features: seconds per sweep, as ratios within pairs. Shares of
             kernels are those of the whole run
3. more_rows the same with three times the rows, on a smaller box

--before also times masked fits of another build in each round.

--quick takes small sizes, to see whether the script works: its numbers mean nothing, and go to target/masks_quick.json.
"""

import argparse
import json
import tempfile
import tomllib
from pathlib import Path

import program
import numpy as np

# Simulated features have unit norm, so weights grow with the number of sites. Features, density, theta and variances of the
# recovery are the first of five choices with which a fit of whole volumes (seed 7) found every feature within 150 sweeps.
RECOVERY = {"grid": (61, 73, 61), "rows": 300, "features": 8, "density": 0.1, "theta": "1,1000", "variance": "40000,80000",
            "sweeps": 150, "burn_in": 100, "seeds": 2}
SPEED = {"grid": (44, 52, 44), "rows": 3000, "features": 40, "density": 0.1, "theta": "1,100", "variance": "3000,6000", "sweeps": 60, "burn_in": 18,
         "rounds": 3}
MORE_ROWS = {**SPEED, "rows": 9000, "grid": (30, 36, 30), "variance": "1000,2000"}
QUICK_RECOVERY = {**RECOVERY, "grid": (15, 18, 15), "rows": 120, "features": 4, "variance": "600,1200", "sweeps": 60,
                  "burn_in": 40, "seeds": 2}
QUICK_SPEED = {**SPEED, "grid": (15, 18, 15), "rows": 120, "features": 5, "rounds": 2}
# Sweeps that are not timed at the start.
WARM_UP = 3
# A feature counts as found from this cosine on.
FOUND = 0.7


def text(grid):
    return "x".join(map(str, grid))


def ellipsoid(grid):
    """True inside of the ellipsoid in the middle of the box."""
    axes = np.ogrid[tuple(slice(0, n) for n in grid)]
    return sum(((x - (n - 1) / 2) / (0.42 * n)) ** 2 for x, n in zip(axes, grid)) <= 1


def simulate(size, seed, out):
    program.call("simulate", "--grid", text(size["grid"]), "--rows", size["rows"], "--heldout-rows", 2, "--features",
               size["features"], "--density", size["density"], "--theta", size["theta"], "--weight-variance", size["variance"], "--noise",
               1, "--seed", seed, "--out", out, "--overwrite", "--quiet")
    return f"{out}/observations.npy"


def fit(data, size, seed, out, *more):
    """Fits and returns the trace."""
    program.call("fit", data, "--noise", "white", "--center", "none", "--grid", text(size["grid"]), "--sweeps", size["sweeps"], "--seed", seed, "--out", out,
               "--overwrite", "--quiet", *more)
    return np.genfromtxt(f"{out}/trace.csv", delimiter=",", names=True)


def save_zeroed(data, mask, out):
    """The data with zeros outside of the mask, a row at a time."""
    rows = np.load(data, mmap_mode="r")
    zeroed = np.lib.format.open_memmap(out, mode="w+", dtype=rows.dtype, shape=rows.shape)
    for row, values in enumerate(rows):
        zeroed[row] = values * mask.reshape(values.shape)
    zeroed.flush()


def unit_rows(features, mask):
    """Features inside of the mask, with unit norm."""
    inside = features.reshape(len(features), -1)[:, mask.ravel()].astype(float)
    return inside / np.maximum(np.linalg.norm(inside, axis=1, keepdims=True), 1e-300)


def compare(run, trace, truth, mask, settings):
    """How near the run came to the truth inside of the mask."""
    found = np.load(f"{run}/features.npy")
    cosines = np.abs(unit_rows(truth, mask) @ unit_rows(found, mask).T)
    best = cosines.max(axis=1) if len(found) else np.zeros(len(truth))
    late = trace[len(trace) // 2:]
    # Only the ratio of roughness to ridge compares: the fit gives weights unit variance, and its features their scale.
    ratio = np.exp(np.log(late["theta_2"] / late["theta_1"]).mean())
    ridge, roughness = settings["theta"]
    return {
        "mean_cosine": best.mean(), "least_cosine": best.min(), "found": int((best >= FOUND).sum()),
        "recovery_error": float(np.sum(2 - 2 * best)), "persistent": len(found), "n_features": late["n_features"].mean(),
        "noise_over_truth": late["noise_variance"].mean() / settings["noise"],
        "theta_ratio_over_truth": ratio / (roughness / ridge),
        "seconds_per_sweep": float(np.median(trace["seconds"][WARM_UP:])),
    }


def recovery(results, quick, _before):
    size = QUICK_RECOVERY if quick else RECOVERY
    mask = ellipsoid(size["grid"])
    columns = {
        "mean_cosine": ".3f", "least_cosine": ".3f", "found": ".1f", "recovery_error": ".3f", "persistent": ".1f",
        "n_features": ".1f", "noise_over_truth": ".4f", "theta_ratio_over_truth": ".2f", "seconds_per_sweep": ".2f",
    }
    print(f"\n{size['rows']} rows on {text(size['grid'])}, {size['features']} features, {100 * mask.mean():.0f}% inside\n")
    print("| seed | fitted | " + " | ".join(name.replace("_", " ") for name in columns) + " |")
    print("|---|---|" + "---|" * len(columns))

    def show(seed, name, found):
        print(f"| {seed} | {name} | " + " | ".join(format(found[c], columns[c]) for c in columns) + " |", flush=True)

    runs = []
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/mask.npy", mask.astype(np.uint8))
        for seed in range(1, size["seeds"] + 1):
            data, zeroed, run = simulate(size, seed, f"{folder}/sim"), f"{folder}/zeroed.npy", f"{folder}/run"
            save_zeroed(data, mask, zeroed)
            truth = np.load(f"{folder}/sim/truth_features.npy")
            settings = tomllib.loads(Path(f"{folder}/sim/simulation.toml").read_text())
            masked = ["--mask", f"{folder}/mask.npy"]
            for name, rows, more in [("whole", data, []), ("masked", data, masked), ("zeros", zeroed, [])]:
                trace = fit(rows, size, seed, run, "--burn-in", size["burn_in"], *more)
                found = compare(run, trace, truth, mask, settings)
                show(seed, name, found)
                runs.append({"seed": seed, "fitted": name, **found})
    means = {}
    for name in ("whole", "masked", "zeros"):
        means[name] = {c: float(np.mean([run[c] for run in runs if run["fitted"] == name])) for c in columns}
        show("mean", name, means[name])
    results["recovery"] = {"size": size, "inside": mask.mean(), "runs": runs, "means": means}


def seconds_by_kind(trace, burn_in):
    """Mean seconds of sweeps in burn-in, after it, and of the last one: it alone is kept, and computes the means of a draw too."""
    seconds = trace["seconds"]
    return {"burn_in": seconds[WARM_UP:burn_in].mean(), "sampling": seconds[burn_in:-1].mean(), "kept": seconds[-1]}


def speed(results, quick, before):
    results["speed"] = compare_speed(QUICK_SPEED if quick else SPEED, before)


def more_rows(results, quick, before):
    results["more_rows"] = compare_speed(QUICK_SPEED if quick else MORE_ROWS, before)


def compare_speed(size, before):
    mask = ellipsoid(size["grid"])
    alike = ["--burn-in", size["burn_in"], "--thin", size["sweeps"] - size["burn_in"], "--init", f"kmeans:{size['features']}",
             "--max-features", size["features"]]
    print(f"\n{size['rows']} rows on {text(size['grid'])}, {100 * mask.mean():.0f}% inside\n")
    print("| pair | fitted | K | seconds a sweep in burn-in | after it | of a kept one | share of the feature draw | of births |")
    print("|---|---|---|---|---|---|---|---|")
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/mask.npy", mask.astype(np.uint8))
        data, run = simulate(size, 1, f"{folder}/sim"), f"{folder}/run"
        for number in range(1, size["rounds"] + 1):
            pair = {}
            masked, now = ["--mask", f"{folder}/mask.npy"], program.BINARY
            fits = [("whole", now, []), ("masked", now, masked)] + ([("before", before, masked)] if before else [])
            for name, program.BINARY, more in fits:
                trace = fit(data, size, 1, run, *alike, *more)
                shares = program.call_json("summary", run)["kernel_shares"]
                found = {**seconds_by_kind(trace, size["burn_in"]), "n_features": trace["n_features"][WARM_UP:].mean(),
                         "kernel_shares": shares}
                print(f"| {number} | {name} | {found['n_features']:.1f} | {found['burn_in']:.3f} | {found['sampling']:.3f} "
                      f"| {found['kept']:.3f} | {shares['features']:.2f} | {shares['unique_features']:.2f} |", flush=True)
                pair[name] = found
            program.BINARY = now
            pairs.append(pair)
    kinds = ("burn_in", "sampling", "kept")
    of = lambda name: {kind: float(np.median([pair[name][kind] / pair["whole"][kind] for pair in pairs])) for kind in kinds}
    ratios = {name: of(name) for name in pairs[0] if name != "whole"}
    for name, ratio in ratios.items():
        print(f"\nmedians of {name} / whole: {ratio['burn_in']:.2f} in burn-in, {ratio['sampling']:.2f} after it, "
              f"{ratio['kept']:.2f} of a kept sweep; sites inside / all: {mask.mean():.2f}")
    return {"size": size, "inside": mask.mean(), "pairs": pairs, "median_ratios": ratios}


PARTS = [recovery, speed, more_rows]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    options.add_argument("--before", metavar="BINARY")
    options.add_argument("--only", nargs="+", choices=[part.__name__ for part in PARTS])
    options = options.parse_args()
    path = Path("target/masks_quick.json" if options.quick else "bench/masks.json")
    results = json.loads(path.read_text()) if path.exists() and options.only else {}
    for part in PARTS:
        if not options.only or part.__name__ in options.only:
            part(results, options.quick, options.before)
            path.write_text(json.dumps(results, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
