"""Seconds per sweep on ranks of mpirun: measured on 1 and 2 here, predicted for more; prints tables and writes bench/ranks.json.

    bench/run ranks [--quick] [--only measured pieces predicted]

1. measured   the paper's simulation (3000 rows, 100x100) and 10 times its rows, on one rank with one and two threads, and on two
              ranks with one thread each, in turn; features are capped, so that all sweeps cost the same. Ratios are taken within
              rounds. What was sent is compared with what `issfa plan --ranks 2` says
2. pieces     processor time of a sweep on 1, 2 and 4 ranks that are threads, all together (examples/work_on_ranks): one band of rows
              on two tiles, so that ranks share tiles, and four bands on one tile, so that they share rows. What is added by each
              rank is what all do alike, and what they tell each other
3. predicted  `issfa plan --ranks 2,6,64,1000` at the paper's size and at 100 times its rows, with 50 features, for a network of
              10 GB/s and 2 microseconds

Builds the program with MPI into target/mpi. --quick takes small sizes, to see whether the script works: its numbers mean
nothing, and go to target/ranks_quick.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import program
import numpy as np

BINARY = "target/mpi/release/issfa"
EXAMPLE = "target/release/examples/work_on_ranks"
FULL = {"rows": [3000, 30000], "grid": "100x100", "features": 50, "sweeps": 40, "burn_in": 10, "rounds": 3}
QUICK = {"rows": [300, 600], "grid": "20x20", "features": 5, "sweeps": 8, "burn_in": 3, "rounds": 2}
RANKS = [2, 6, 64, 1000]
# Rows and grids of the pieces.
PIECES = [(4096, "16x32"), (16384, "16x16")]
NETWORK = {"bandwidth": 10, "latency": 2}
# Sweeps that are not timed after burn-in.
WARM_UP = 2


def build():
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "issfa-cli", "--features", "mpi", "--target-dir", "target/mpi"],
                   check=True)


def fit(data, size, ranks, threads, out):
    """Fits under mpirun; returns the trace."""
    words = [BINARY, "fit", data, "--noise", "white", "--center", "none", "--grid", size["grid"], "--sweeps", size["sweeps"], "--burn-in", size["burn_in"], "--thin", size["sweeps"] - size["burn_in"],
             "--seed", 1, "--init", f"kmeans:{size['features']}", "--max-features", size["features"], "--threads", threads,
             "--out", out, "--overwrite", "--quiet"]
    if ranks > 1:
        words = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, *words]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return np.genfromtxt(f"{out}/trace.csv", delimiter=",", names=True)


def simulate(size, rows, folder):
    sim = f"{folder}/sim{rows}"
    program.call("simulate", "--preset", "paper", "--grid", size["grid"], "--rows", rows, "--features", size["features"],
               "--heldout-rows", 2, "--seed", 1, "--out", sim, "--overwrite", "--quiet")
    return f"{sim}/observations.npy"


def measured(size, folder):
    build()
    print("| rows | ranks x threads | K | seconds a sweep, median of rounds | one rank, one thread / it | sent per sweep, rank 0 |")
    print("|---|---|---|---|---|---|")
    found = []
    for rows in size["rows"]:
        data, cases = simulate(size, rows, folder), [(1, 1), (1, 2), (2, 1)]
        times = {case: [] for case in cases}
        for _ in range(size["rounds"]):
            for case in cases:
                trace = fit(data, size, *case, f"{folder}/run{case[0]}{case[1]}")
                late = trace[size["burn_in"] + WARM_UP:]
                times[case].append(float(np.median(late["seconds"])))
        for case in cases:
            speedup = float(np.median([one / other for one, other in zip(times[1, 1], times[case])]))
            run = program.call_json("summary", f"{folder}/run{case[0]}{case[1]}")
            k = float(trace["n_features"][size["burn_in"]:].mean())
            row = {"rows": rows, "ranks": case[0], "threads": case[1], "seconds": float(np.median(times[case])), "speedup": speedup,
                   "bytes_sent": run["bytes_sent_per_sweep"], "n_features": k}
            print(f"| {rows} | {case[0]} x {case[1]} | {k:.0f} | {row['seconds']:.3f} | {speedup:.2f} | {row['bytes_sent'] / 1e6:.2f} MB |",
                  flush=True)
            found.append(row)
    return found


def pieces(size, folder):
    print("\n| rows | grid | lines x columns of ranks | processor time of a sweep, all ranks | added by a rank, a row of its line |")
    print("|---|---|---|---|---|")
    found = []
    for rows, grid in PIECES:
        data = simulate({**size, "grid": grid}, rows, folder)
        alone = None
        for ranks in [1, 2, 4]:
            words = [EXAMPLE, data, grid, size["features"], ranks, size["sweeps"]]
            runs = [json.loads(subprocess.check_output([str(word) for word in words])) for _ in range(size["rounds"])]
            row = {**runs[0], "grid": grid, "ranks": ranks, "seconds": float(np.median([run["seconds"] for run in runs]))}
            alone = alone or row["seconds"]
            # Every line has its own rows: all lines together have them once for each column.
            row["alike"] = (row["seconds"] - alone) / (rows * (row["columns"] - 1)) if row["columns"] > 1 else None
            alike = "" if row["alike"] is None else f"{1e6 * row['alike']:.2f} us"
            print(f"| {rows} | {grid} | {row['lines']} x {row['columns']} | {1e3 * row['seconds']:.1f} ms | {alike} |", flush=True)
            found.append(row)
    return found


def predicted(size, folder):
    data = simulate(size, size["rows"][0], folder)
    print("\n| rows | ranks | grid | memory of rank 0 | sent per sweep, each | work | sending | seconds a sweep | one rank / it |")
    print("|---|---|---|---|---|---|---|---|---|")
    found = []
    for rows in [size["rows"][0], 100 * size["rows"][0]]:
        ranks = ",".join(map(str, [1, *RANKS]))
        plan = program.call_json("plan", data, "--grid", size["grid"], "--rows", rows, "--ranks", ranks, "--bandwidth",
                               NETWORK["bandwidth"], "--latency", NETWORK["latency"])
        cases = [case for case in plan["by_ranks"] if case["n_features"] == 50]
        for case in cases:
            gain = cases[0]["seconds_per_sweep"] / case["seconds_per_sweep"]
            lines, columns = case["grid"]
            print(f"| {rows} | {case['n_ranks']} | {lines} x {columns} | {case['memory_bytes'] / 1e9:.2f} GB | {case['bytes_per_sweep'] / 1e6:.2f} MB "
                  f"| {case['seconds_of_work']:.4f} | {case['seconds_to_send']:.4f} | {case['seconds_per_sweep']:.4f} | {gain:.1f} |",
                  flush=True)
            found.append({"rows": rows, **case})
    return found


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    options.add_argument("--only", nargs="+", choices=["measured", "pieces", "predicted"], default=["measured", "pieces", "predicted"])
    options = options.parse_args()
    size = QUICK if options.quick else FULL
    path = Path("target/ranks_quick.json" if options.quick else "bench/ranks.json")
    results = json.loads(path.read_text()) if path.exists() else {}
    results |= {"size": size, "network": NETWORK}
    with tempfile.TemporaryDirectory() as folder:
        for part in [measured, pieces, predicted]:
            if part.__name__ in options.only:
                results[part.__name__] = part(size, folder)
    path.write_text(json.dumps(results, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
