"""Held-out rows after fits to few rows: features at their means, and integrated out, for the table of docs/validation.md.

    bench/run new_rows [--rows 30 60 120 400] [--seeds 1 2 3 4 5] [--grid 30x30]

Every simulation has 6 features of density 0.2 on a grid, and 200 held-out rows. One fit a simulation; both ways infer the same
rows from the same kept draws. Errors are means over cells of (reconstruction - noise-free truth)^2, seconds those of both ways.
"""

import argparse
import json
import subprocess
import tempfile

import program
import numpy as np

EXAMPLE = "target/release/examples/new_rows"
FIELDS = ["at_means", "integrated_out", "seconds_at_means", "seconds_integrated_out"]


def measure(folder, grid, n_rows, seed):
    """Errors and seconds of one simulation."""
    sim, run = f"{folder}/sim", f"{folder}/run"
    program.call("simulate", "--grid", grid, "--theta", "1,100", "--rows", str(n_rows), "--heldout-rows", "200",
               "--features", "6", "--density", "0.2", "--weight-variance", "20,40", "--seed", str(seed), "--out", sim,
               "--overwrite")
    program.call("fit", f"{sim}/observations.npy", "--noise", "white", "--center", "none", "--grid", grid, "--sweeps",
               "400", "--burn-in", "200", "--seed", str(seed), "--out", run, "--overwrite", "--quiet")
    done = subprocess.run([EXAMPLE, run, sim], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return [found[field] for field in FIELDS]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rows", nargs="+", type=int, default=[30, 60, 120, 400])
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    options.add_argument("--grid", default="30x30")
    options = options.parse_args()
    print("| training rows | at their means | integrated out | ratio (least to largest) | seconds, means | integrated out |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in options.rows:
            every = np.array([measure(folder, options.grid, n_rows, seed) for seed in options.seeds])
            means, ratios = every.mean(axis=0), every[:, 1] / every[:, 0]
            print(f"| {n_rows} | {means[0]:.5f} | {means[1]:.5f} | {ratios.mean():.3f} ({ratios.min():.3f} to "
                  f"{ratios.max():.3f}) | {means[2]:.2f} | {means[3]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
