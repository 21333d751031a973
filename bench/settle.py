"""How soon chains settle on the paper's simulation: split R-hat and effective draws, also for each processor second of the
whole command (wall clocks of busy machines tell little).

    bench/run settle [--seeds 1 2 3] [--before BINARY] [--side-by-side] [--keep FOLDER]

`--before` fits the first seed with another build too, in the same run, and puts it beside ours. `--side-by-side` measures what
four chains gain by running beside each other: against one fit after the other, each on all threads.
"""

import argparse
import csv
import json
import resource
import struct
import tempfile
import time
from pathlib import Path

import arviz
import numpy as np
import program

SWEEPS, CHAINS, DRAWS = 1000, 4, 100
QUANTITIES = ["n_features", "n_shared", "noise_variance", "ln_likelihood"]


def traces(run, chains):
    """The kept sweeps of every chain, by column."""
    columns = {name: [] for name in QUANTITIES}
    for chain in range(1, chains + 1):
        path = run / "trace.csv" if chain == 1 else run / f"chain-{chain}" / "trace.csv"
        with open(path) as file:
            rows = [row for row in csv.DictReader(file) if int(row["sweep"]) > SWEEPS // 2 and int(row["chain"]) == chain]
        for name in QUANTITIES:
            columns[name].append([float(row[name]) for row in rows])
    return {name: np.array(values) for name, values in columns.items()}


def stored(path):
    """The arrays of a safetensors file."""
    content = path.read_bytes()
    n_header = struct.unpack("<Q", content[:8])[0]
    types = {"U64": np.uint64, "U32": np.uint32, "F64": np.float64, "F32": np.float32}
    arrays = {}
    for name, entry in json.loads(content[8:8 + n_header]).items():
        if name != "__metadata__":
            first, last = (8 + n_header + place for place in entry["data_offsets"])
            arrays[name] = np.frombuffer(content[first:last], types[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def shares(folder):
    """Sums of squares that features bring in, draws x features that are there in every draw of a chain."""
    draws = []
    for path in sorted((folder / "draws").glob("draw-*.safetensors")):
        draw = stored(path)
        weights = np.bincount(draw["active_features"], draw["active_weights"] ** 2, len(draw["feature_ids"]))
        sizes = weights * (draw["features"].astype(float) ** 2).sum(axis=1)
        draws.append(dict(zip(draw["feature_ids"].tolist(), sizes)))
    always = set.intersection(*(set(draw) for draw in draws))
    return np.array([[draw[feature] for feature in sorted(always)] for draw in draws])


def ess_of_shares(run, chains):
    """Effective draws of the shares of a chain's features: the median feature, all chains together, and of how many draws."""
    folders = [run if chain == 1 else run / f"chain-{chain}" for chain in range(1, chains + 1)]
    total, n_draws = 0.0, 0
    for folder in folders:
        values = shares(folder)
        total += float(np.median([arviz.ess(values[None, :, at]) for at in range(values.shape[1])]))
        n_draws += len(values)
    return total, n_draws


def processor_seconds():
    """Those that commands have used so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def fit(sim, run, seed, sweeps, *options):
    """Seconds of the whole command: by the clock, and of all processors."""
    start, used = time.perf_counter(), processor_seconds()
    program.call("fit", sim / "observations.npy", "--noise", "white", "--center", "none", "--grid", "100x100", "--sweeps", sweeps,
                 "--keep-draws", min(DRAWS, sweeps // 10), "--seed", seed, "--out", run, "--overwrite", "--quiet", *options)
    return time.perf_counter() - start, processor_seconds() - used


def measure(name, sim, run, seed):
    _, seconds = fit(sim, run, 10 + seed, SWEEPS, "--chains", CHAINS)
    found = program.call_json("evaluate", run, "--truth", sim)
    lines, chains = [], traces(run, CHAINS)
    for quantity, values in chains.items():
        lines.append((quantity, float(arviz.rhat(values, method="split")), float(arviz.ess(values)), values.size))
    ess, n_draws = ess_of_shares(run, CHAINS)
    lines.append(("a feature's share (median)", float("nan"), ess, n_draws))
    for quantity, r_hat, ess, n_draws in lines:
        print(f"| {name} | {seed} | {quantity} | {r_hat:.3f} | {ess:.0f} of {n_draws} | {ess / seconds:.2f} "
              f"| {found['n_persistent']} | {seconds:.0f} |", flush=True)


def side_by_side(sim, folder):
    """Four chains beside each other, and one after the other."""
    together, _ = fit(sim, folder / "together", 1, SWEEPS // 10, "--chains", CHAINS)
    alone = [fit(sim, folder / "alone", seed, SWEEPS // 10)[0] for seed in range(1, CHAINS + 1)]
    print(f"\n{CHAINS} chains of {SWEEPS // 10} sweeps: {together:.1f} s beside each other, {sum(alone):.1f} s one after the "
          f"other: {together / sum(alone):.2f}", flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options.add_argument("--before")
    options.add_argument("--side-by-side", action="store_true")
    options.add_argument("--keep", type=Path)
    options = options.parse_args()
    ours = program.BINARY
    with tempfile.TemporaryDirectory() as folder:
        folder = options.keep or Path(folder)
        folder.mkdir(exist_ok=True)
        sims = {seed: folder / f"sim{seed}" for seed in options.seeds}
        for seed, sim in sims.items():
            program.call("simulate", "--preset", "paper", "--seed", seed, "--out", sim, "--overwrite", "--quiet")
        if options.side_by_side:
            side_by_side(sims[options.seeds[0]], folder)
        print("\n| build | data | of | split R-hat | effective draws | a processor second | persistent | processor seconds |\n|---|---|---|---|---|---|---|---|",
              flush=True)
        if options.before:
            program.BINARY = options.before
            measure("before", sims[options.seeds[0]], folder / "before", options.seeds[0])
            program.BINARY = ours
        for seed, sim in sims.items():
            measure("now", sim, folder / f"now{seed}", seed)


if __name__ == "__main__":
    main()
