"""How fast a sweep is, as ratios within one run; prints tables and writes bench/speed.json.

    bench/run speed [--only NAME ...]

1. product   a sweep over the bare product Y S' (the same tiles, threads and sizes, in single precision)
2. threads   one thread over two, at the larger size
3. growth    exponents of the time per sweep in rows, sites and features, each doubled three times
4. peers     seconds until the held-out error is within 2% of its final value at the paper's simulation, against
             scikit-learn's FastICA(50) and PCA(50) on the same array
5. brain     20 sweeps on simulated 61x73x61 data with 5790 rows: peak memory and projected times (needs 13 GB of disk)
6. found     seconds until 45 of 50 true features are found in such data, with a coarse start, without, and within a mask
             (needs 8 GB of disk, and half an hour)
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import program
import numpy as np

RESULTS = Path("bench/speed.json")
PEER_SEEDS = (1, 2, 3)
PAPER, BRAIN = (3000, "100x100", 50), (5790, "61x73x61", 50)
# A feature counts as found from this cosine on; so many of 50 are enough.
FOUND, ENOUGH = 0.7, 45


def time_sweep(rows, grid, features, rounds, threads=2):
    command = ["target/release/examples/time_sweep", str(rows), grid, str(features), str(rounds)]
    output = subprocess.check_output(command, env={**os.environ, "RAYON_NUM_THREADS": str(threads)})
    return json.loads(output)


def product(results):
    print("\n| rows | sites | features | sweep / product | sweep, s | product, s | product, GFLOP/s | largest parts of the sweep |")
    print("|---|---|---|---|---|---|---|---|")
    for size, rounds in [(PAPER, 41), (BRAIN, 9)]:
        found = time_sweep(*size, rounds)
        total = sum(found["kernel_seconds"].values())
        parts = sorted(found["kernel_seconds"].items(), key=lambda part: -part[1])[:4]
        shares = ", ".join(f"{name} {100 * seconds / total:.1f}%" for name, seconds in parts)
        print(f"| {found['rows']} | {found['sites']} | {found['features']} | {found['ratio']:.2f} | {found['sweep_seconds']:.3f} "
              f"| {found['product_seconds']:.3f} | {found['product_gigaflops']:.0f} | {shares} |", flush=True)
        results.setdefault("product", []).append(found)


def threads(results):
    rows, grid, features = BRAIN
    pairs = [(time_sweep(rows, grid, features, 3, n)) for n in (1, 2, 1, 2)]
    seconds = {n: np.median([found["sweep_seconds"] for found in pairs if found["threads"] == n]) for n in (1, 2)}
    speedup = seconds[1] / seconds[2]
    print(f"\n{rows} rows on {grid}: one thread {seconds[1]:.2f} s, two threads {seconds[2]:.2f} s, {speedup:.2f} times faster")
    results["threads"] = {"one": seconds[1], "two": seconds[2], "speedup": speedup}


def growth(results):
    cases = {
        "rows": [(1000 * 2**i, "100x100", 50) for i in range(4)],
        "sites": [(2000, grid, 50) for grid in ("70x72", "100x100", "100x200", "200x200")],
        "features": [(3000, "70x72", 25 * 2**i) for i in range(4)],
    }
    print("\n| doubled | seconds per sweep | exponent |")
    print("|---|---|---|")
    for name, sizes in cases.items():
        found = [time_sweep(*size, 15) for size in sizes]
        x = [np.log(result[name]) for result in found]
        y = [np.log(result["sweep_seconds"]) for result in found]
        exponent = np.polyfit(x, y, 1)[0]
        times = ", ".join(f"{result[name]}: {result['sweep_seconds']:.4f}" for result in found)
        print(f"| {name} | {times} | {exponent:.2f} |", flush=True)
        results.setdefault("growth", {})[name] = {"exponent": exponent, "measured": found}


def peers(results):
    for seed in PEER_SEEDS:
        results.setdefault("peers", []).append(peers_of(seed))
    ratios = ", ".join(f"{found['issfa_over_fastica']:.2f}" for found in results["peers"])
    print(f"\nissfa until it is within 2% of its final held-out error, over FastICA(50): {ratios}")


def peers_of(seed):
    from sklearn.decomposition import PCA, FastICA

    with tempfile.TemporaryDirectory() as folder:
        sim, run = f"{folder}/sim", f"{folder}/run"
        program.call("simulate", "--preset", "paper", "--seed", str(seed), "--out", sim)
        observations = np.load(f"{sim}/observations.npy")
        heldout, truth = np.load(f"{sim}/heldout.npy"), np.load(f"{sim}/truth_heldout.npy")
        points, others = [], {}
        for sweeps in (10, 12, 15, 20, 25, 30, 40, 60, 300):
            start = time.perf_counter()
            program.call("fit", f"{sim}/observations.npy", "--noise", "white", "--center", "none", "--grid", "100x100", "--sweeps", str(sweeps), "--seed", "1",
                  "--out", run, "--overwrite", "--quiet")
            seconds = time.perf_counter() - start
            found = program.call_json("evaluate", run, "--truth", sim)
            most = int(np.genfromtxt(f"{run}/trace.csv", delimiter=",", names=True)["n_features"].max())
            points.append({"sweeps": sweeps, "seconds": seconds, "heldout_error": found["heldout_error"],
                           "n_found": found["n_found"], "most_features": most})
        for name, method in [("PCA(50)", PCA(50)), ("FastICA(50)", FastICA(50, whiten="unit-variance", random_state=1))]:
            start = time.perf_counter()
            method.fit(observations)
            seconds = time.perf_counter() - start
            rebuilt = method.inverse_transform(method.transform(heldout))
            others[name] = {"seconds": seconds, "heldout_error": float(np.mean((rebuilt - truth) ** 2))}
    reached = next(point for point in points if point["heldout_error"] <= 1.02 * points[-1]["heldout_error"])
    print(f"\nseed {seed}\n\n| method | seconds | held-out error | found | most features |")
    print("|---|---|---|---|---|")
    for point in points:
        mark = " (within 2% of the last)" if point is reached else ""
        print(f"| issfa, {point['sweeps']} sweeps{mark} | {point['seconds']:.1f} | {point['heldout_error']:.4f} "
              f"| {point['n_found']} | {point['most_features']} |")
    for name, other in others.items():
        print(f"| scikit-learn {name} | {other['seconds']:.1f} | {other['heldout_error']:.4f} | | |", flush=True)
    ratio = reached["seconds"] / others["FastICA(50)"]["seconds"]
    return {"seed": seed, "issfa": points, "reached": reached, "others": others, "issfa_over_fastica": ratio}


def brain(results):
    rows, grid, _ = BRAIN
    with tempfile.TemporaryDirectory(dir="target") as folder:
        sim, run = f"{folder}/sim", f"{folder}/run"
        program.call("simulate", "--grid", grid, "--rows", str(rows), "--heldout-rows", "10", "--features", "50", "--seed", "1",
              "--out", sim)
        start = time.perf_counter()
        child = subprocess.Popen([program.BINARY, "fit", f"{sim}/observations.npy", "--noise", "white", "--center", "none", "--grid", grid, "--sweeps", "20", "--burn-in",
                                  "10", "--seed", "1", "--out", run, "--quiet"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        assert status == 0, "the fit failed"
        trace = np.genfromtxt(f"{run}/trace.csv", delimiter=",", names=True)
    per_sweep, features = float(np.median(trace["seconds"][10:])), int(trace["n_features"][-1])
    peak, data = usage.ru_maxrss * 1024, 4 * rows * np.prod([int(n) for n in grid.split("x")])
    print(f"\n{rows} rows on {grid}, 20 sweeps in {seconds:.0f} s with loading; {per_sweep:.2f} s a sweep after burn-in with "
          f"{features} features; peak memory {peak / 1e9:.2f} GB for {data / 1e9:.2f} GB of data "
          f"(limit 1.2 x data + 0.3 GB = {(1.2 * data + 3e8) / 1e9:.2f} GB)")
    print(f"1000 sweeps: {1000 * per_sweep / 3600:.1f} h; the paper's 15,000 iterations: {15000 * per_sweep / 3600:.1f} h")
    results["brain"] = {"seconds": seconds, "seconds_per_sweep": per_sweep, "features": features, "peak_bytes": peak,
                        "data_bytes": int(data)}


def found(results):
    """Looks at the checkpoints of fits while they run."""
    from scipy.fft import dctn

    rows, grid, features = BRAIN
    sides = [int(n) for n in grid.split("x")]
    with tempfile.TemporaryDirectory(dir="target") as folder:
        sim, mask = f"{folder}/sim", f"{folder}/mask.npy"
        program.call("simulate", "--grid", grid, "--rows", rows, "--heldout-rows", 2, "--features", features, "--density", 0.05, "--theta",
                     "1,1000", "--weight-variance", "40000,80000", "--noise", 1, "--seed", 1, "--out", sim, "--quiet")
        truth = np.load(f"{sim}/truth_features.npy").reshape(features, *sides)
        inside = ellipsoid(sides)
        np.save(mask, inside.astype(np.uint8))
        spectra = dctn(truth, axes=(1, 2, 3), norm="ortho").reshape(features, -1)
        print(f"\n{rows} rows on {grid}, {features} true features: those found at cosine 0.7\n")
        print(f"| fit | first checkpoint with {ENOUGH} found | seconds | of them until the first sweep | most features | found in the end |")
        print("|---|---|---|---|---|---|")
        for name, options in [("coarse start", []), ("all modes from the first sweep", ["--start", "full"]),
                              (f"mask with {100 * inside.mean():.0f}% of the voxels", ["--mask", mask])]:
            looks, trace = looks_at_checkpoints(f"{sim}/observations.npy", grid, f"{folder}/run", *options)
            counts = [(sweep, seconds, n_found(spectra, state, inside if "--mask" in options else None, sides))
                      for sweep, seconds, state in looks]
            reached = next((look for look in counts if look[2] >= ENOUGH), None)
            start = counts[0][1]
            said = f"sweep {reached[0]} | {reached[1]:.0f}" if reached else "not reached | -"
            most = int(trace["n_features"].max())
            print(f"| {name} | {said} | {start:.0f} | {most} | {counts[-1][2]} |", flush=True)
            results.setdefault("found", []).append({"fit": name, "reached": reached, "looks": counts, "most_features": most})


def ellipsoid(sides):
    """True inside of an ellipsoid in the middle of a box."""
    axes = np.ogrid[tuple(slice(0, n) for n in sides)]
    return sum(((x - (n - 1) / 2) / (0.42 * n)) ** 2 for x, n in zip(axes, sides)) <= 1


def looks_at_checkpoints(data, grid, run, *options):
    """Fits; returns sweep, seconds since the start and features of each checkpoint that was seen, and the trace."""
    words = [program.BINARY, "fit", data, "--noise", "white", "--center", "none", "--grid", grid, "--sweeps", "45", "--burn-in", "44", "--thin", "1",
             "--checkpoint-every", "1s", "--report", "none", "--seed", "1", "--out", run, "--overwrite", "--quiet", *options]
    path, looks, start, seen = Path(run) / "checkpoint/state.safetensors", [], time.perf_counter(), None
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while True:
        ended = child.poll() is not None
        if path.exists() and (now := path.stat()).st_mtime_ns != seen:
            seen, seconds = now.st_mtime_ns, time.perf_counter() - start
            sweep, features = state_of(path)
            looks.append((sweep, seconds, features))
        if ended:
            break
        time.sleep(0.2)
    assert child.returncode == 0, "the fit failed"
    return looks, np.genfromtxt(f"{run}/trace.csv", delimiter=",", names=True)


def state_of(path):
    """Sweep and features (as spectra) of a checkpoint."""
    with open(path, "rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(n_bytes))

        def values(name, kind):
            first, end = entries[name]["data_offsets"]
            file.seek(8 + n_bytes + first)
            return np.frombuffer(file.read(end - first), kind)

        sweep = int(values("sweep", "<u8")[0])
        return sweep, values("features", "<f4").reshape(entries["features"]["shape"])


def n_found(truth, features, inside, sides):
    """How many true features have one that is like them; within a mask, there."""
    from scipy.fft import idctn

    if inside is not None:
        truth, features = (idctn(x.reshape(-1, *sides), axes=(1, 2, 3), norm="ortho")[:, inside] for x in (truth, features))
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30) for x in (truth, features)]
    return int((np.abs(unit[0] @ unit[1].T).max(axis=1, initial=0) >= FOUND).sum())


PARTS = [product, threads, growth, peers, brain, found]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--only", nargs="+", choices=[part.__name__ for part in PARTS])
    options = options.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() and options.only else {}
    for part in PARTS:
        if not options.only or part.__name__ in options.only:
            results.pop(part.__name__, None)
            part(results)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
