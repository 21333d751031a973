"""What a bound on memory costs: seconds a sweep with data in a file against those in memory, and against reading the file once,
and how often a sweep reads it; prints a table and writes bench/spill.json.

    bench/run spill [--quick] [--rows N]

Each round fits the same rows in memory and under a bound of about a quarter of the data (or the least that the fit takes), and
reads a file of the same size from its beginning to its end. Before reading, and every quarter of a second after burn-in, the
system is told to forget what it has cached of the file, so that all comes from the disk (the fit's file has no name: root finds
it under `/proc/PID/map_files`). What was fetched ahead is forgotten too, so that the count of bytes read is a little too high.
In the first round the fit is also timed without forgetting (warm). Figures are medians over sweeps after burn-in, but the last,
which writes; a sweep whose draw is kept reads the file once more. Peak memory is that of the process (resident, with pages of
the file that are mapped), as the system counts it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import program

GRID, SWEEPS, BURN_IN, ROUNDS = (61, 73, 61), 14, 6, 2
QUICK_GRID = (20, 24, 20)
# Seconds between looks at a fit, and between those after which its file is forgotten.
LOOK, FORGET = 0.02, 0.25


def forget(path):
    """Lets the system forget what it has cached of a file."""
    file = os.open(path, os.O_RDONLY)
    os.fdatasync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def forget_spilled(process):
    """The same for the nameless file of a fit."""
    for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
        if "issfa-spill" in line:
            first, last = (int(number, 16) for number in line.split()[0].split("-"))
            forget(f"/proc/{process.pid}/map_files/{first:x}-{last:x}")


def simulate(grid, rows, out):
    program.call("simulate", "--grid", "x".join(map(str, grid)), "--rows", rows, "--heldout-rows", 2, "--features", 15,
                 "--density", 0.1, "--theta", "1,100", "--weight-variance", "3000,6000", "--noise", 1, "--seed", 1, "--out", out,
                 "--quiet")
    return f"{out}/observations.npy"


def command(data, grid, out, *more):
    return ["fit", data, "--noise", "white", "--center", "none", "--grid", "x".join(map(str, grid)), "--sweeps", str(SWEEPS),
            "--burn-in", str(BURN_IN), "--start", "full", "--init", "kmeans:15", "--max-features", "15", "--seed", "1",
            "--report", "none", "--overwrite", "--quiet", "--out", out, *map(str, more)]


def number(process, file, name):
    """A number that the system knows of a process; 0 where it is gone."""
    try:
        found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{process.pid}/{file}").read_text())
    except OSError:
        found = None
    return int(found[1]) if found else 0


def watch(process, trace, is_cold):
    """Waits for a process and returns the most memory that it had and the bytes that it had read after each of its sweeps;
    forgets its file every now and then."""
    peak, reads, last = 0, [], time.monotonic()
    while process.poll() is None:
        peak = max(peak, 1024 * number(process, "status", "VmHWM"))
        try:
            n_sweeps = trace.read_bytes().count(b"\n") - 1
        except OSError:
            n_sweeps = 0
        reads += [number(process, "io", "read_bytes")] * (n_sweeps - len(reads))
        if is_cold and n_sweeps >= BURN_IN - 1 and time.monotonic() - last > FORGET:
            try:
                forget_spilled(process)
            except OSError:
                pass
            last = time.monotonic()
        time.sleep(LOOK)
    return peak, reads


def fit(data, grid, out, is_cold, *more):
    """Seconds of a sweep after burn-in, the bytes that it read, and the peak of memory."""
    shutil.rmtree(out, ignore_errors=True)
    process = subprocess.Popen([program.BINARY, *command(data, grid, out, *more)], stderr=subprocess.PIPE, text=True)
    peak, reads = watch(process, Path(out) / "trace.csv", is_cold)
    if process.returncode:
        raise SystemExit(process.stderr.read())
    trace = np.genfromtxt(f"{out}/trace.csv", delimiter=",", names=True)
    read = np.median(np.diff(reads)[BURN_IN - 1:]) if len(reads) > BURN_IN + 1 else np.nan
    return float(np.median(trace["seconds"][BURN_IN:-1])), float(read), peak


def read_once(path):
    """Seconds to read a file from its beginning to its end."""
    forget(path)
    start, buffer = time.perf_counter(), bytearray(8 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    options.add_argument("--rows", type=int)
    options = options.parse_args()
    grid = QUICK_GRID if options.quick else GRID
    rows = options.rows or (2000 if options.quick else 3000)
    results = {"grid": grid, "rows": rows, "rounds": []}
    with tempfile.TemporaryDirectory(dir="target") as folder:
        data = simulate(grid, rows, f"{folder}/sim")
        data_bytes = 4 * rows * int(np.prod(grid))
        too_small = command(data, grid, f"{folder}/run", "--memory", "1MB")
        refused = subprocess.run([program.BINARY, *too_small], capture_output=True, text=True)
        least = 1e6 * int(re.search(r"about (\d+) MB even", refused.stderr)[1]) * 1.1
        bound = int(max(data_bytes / 4, least))
        print(f"{rows} rows on {'x'.join(map(str, grid))}, data {data_bytes / 1e9:.2f} GB, bound {bound / 1e9:.2f} GB\n")
        print("| round | read once, s | in memory, s a sweep | spilled, s a sweep | spilled / max(read, in memory) "
              "| bytes read / file | peak / bound |")
        print("|---|---|---|---|---|---|---|")
        for number_of_round in range(1, ROUNDS + 1):
            read = read_once(data)
            in_memory, _, _ = fit(data, grid, f"{folder}/run", False)
            spill = ("--memory", bound, "--spill", f"{folder}/scratch")
            spilled, n_read, peak = fit(data, grid, f"{folder}/run", True, *spill)
            found = {"read": read, "in_memory": in_memory, "spilled": spilled, "bytes_read": n_read, "peak": peak, "bound": bound,
                     "data": data_bytes}
            if number_of_round == 1:
                found["spilled_warm"] = fit(data, grid, f"{folder}/run", False, *spill)[0]
            results["rounds"].append(found)
            warm = f" (warm {found['spilled_warm']:.2f})" if "spilled_warm" in found else ""
            print(f"| {number_of_round} | {read:.2f} | {in_memory:.2f} | {spilled:.2f}{warm} "
                  f"| {spilled / max(read, in_memory):.2f} | {n_read / data_bytes:.2f} | {peak / bound:.2f} |", flush=True)
            file = Path("target/spill_quick.json" if options.quick else "bench/spill.json")
            file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
