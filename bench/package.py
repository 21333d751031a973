"""What the Python package costs beside the engine: the share of time inside the engine, and memory, at the paper's size.

    tools/package && tools/python bench/package.py [--sweeps 30]

A child of its own fits 3000 images on 100 x 100 in Python, another the same in a file by the command.
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
path, sweeps = sys.argv[1], int(sys.argv[2])
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
model = issfa.ISSFA(sweeps=sweeps, noise="white", center="none", random_state=1).fit(x)
seconds = time.perf_counter() - start
print(json.dumps(dict(seconds=seconds, inside=inside, swept=float(model._fitted.trace()["seconds"].sum()), base=1024 * base,
                      peak=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, x=x.nbytes, K=int(model.n_components_))))
"""


def peak_of_command(words):
    """Its peak memory in bytes, and seconds of its sweeps."""
    child = subprocess.Popen([program.BINARY, *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"issfa {' '.join(map(str, words))} failed")
    return 1024 * usage.ru_maxrss


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
        found = json.loads(subprocess.run([sys.executable, "-c", CHILD, path, str(options.sweeps)], check=True, capture_output=True, text=True).stdout)
        rows = np.load(path, mmap_mode="r")
    megabytes = {name: round(found[name] / 1e6) for name in ("base", "peak", "x")}
    print(f"{rows.shape[0]} x {rows.shape[1]} {rows.dtype}, {options.sweeps} sweeps, K {found['K']}")
    print(f"inside the engine: {found['inside'] / found['seconds']:.4f} of {found['seconds']:.2f} s; sweeps {found['swept'] / found['seconds']:.4f}")
    print(f"memory: the command {command / 1e6:.0f} MB; Python {megabytes}")
    # The command holds the rows it has read, Python those it was given, and both the program itself.
    beside = found["peak"] - found["base"]
    print(f"what the fit adds in Python is {beside / 1e6:.0f} MB, {beside / command:.2f} of the command's")


if __name__ == "__main__":
    main()
