"""What the Python package costs beside the engine: the share of time inside the engine, and memory, at the paper's size.

    tools/package && tools/python bench/package.py [--sweeps 30]

A child of its own fits 3000 images on 100 x 100 in Python, another the same in a file by the command, a third the same array in
memory in Rust.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import program

CHILD = """
import json, resource, sys, time
import numpy as np, issfa
from issfa import _engine
path, sweeps, out = sys.argv[1], int(sys.argv[2]), sys.argv[3] or None
python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
x = np.load(path).reshape(-1, 100, 100)
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
inside = 0.0
engine = _engine.fit
def timed(*words):
    global inside
    start = time.perf_counter()
    told = engine(*words)
    inside += time.perf_counter() - start
    return told
_engine.fit = timed
start = time.perf_counter()
model = issfa.ISSFA(sweeps=sweeps, noise="white", center="none", random_state=1).fit(x, out=out)
seconds = time.perf_counter() - start
print(json.dumps(dict(seconds=seconds, inside=inside, swept=float(model._fitted.trace()["seconds"].sum()), base=1024 * base, python=1024 * python,
                      peak=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, x=x.nbytes, K=int(model.n_components_))))
"""


def peak_of_command(words):
    """Its peak memory in bytes, and seconds of its sweeps."""
    child = subprocess.Popen([program.BINARY, *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"issfa {' '.join(map(str, words))} failed")
    return 1024 * usage.ru_maxrss


def engine_in_memory(path, sweeps):
    """What the library takes in Rust for the same array in memory, with the array."""
    words = ["target/release/examples/memory_of_fit", path, "100x100", sweeps]
    found = json.loads(subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout)
    return found["peak"] - found["base"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sweeps", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sim, run = Path(folder) / "sim", Path(folder) / "run"
        program.call("simulate", "--preset", "paper", "--seed", 1, "--out", sim)
        path = sim / "observations.npy"
        words = ["fit", path, "--grid", "100x100", "--noise", "white", "--center", "none", "--sweeps", options.sweeps, "--seed", 1]
        command = peak_of_command([*words, "--out", run, "--quiet"])
        rows = np.load(path, mmap_mode="r")
        print(f"{rows.shape[0]} x {rows.shape[1]} {rows.dtype}, {options.sweeps} sweeps; peak memory of the command {command / 1e6:.0f} MB")
        engine = engine_in_memory(path, options.sweeps)
        print(f"the engine in memory in Rust, with the array: {engine / 1e6:.0f} MB")
        for name, out in (("into a folder", Path(folder) / "own"), ("in memory", "")):
            words = [sys.executable, "-c", CHILD, path, options.sweeps, out]
            show(name, json.loads(subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout), command, engine)


def show(name, found, command, engine):
    share, megabytes = found["inside"] / found["seconds"], {key: found[key] / 1e6 for key in ("base", "peak", "x")}
    with_x = (found["peak"] - found["python"]) / engine
    # The command reads the rows into memory too; in memory a fit keeps its draws and its checkpoint there.
    beside = megabytes["peak"] - megabytes["base"]
    print(
        f"{name}: K {found['K']}, {share:.4f} of {found['seconds']:.1f} s inside the engine; {beside:.0f} MB beside the "
        f"{megabytes['base']:.0f} MB of Python with X ({megabytes['x']:.0f} MB): {beside * 1e6 / command:.2f} of the command's; "
        f"{with_x:.2f} of the engine in memory with the array"
    )


if __name__ == "__main__":
    main()
