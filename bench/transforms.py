"""Time of one transform against SciPy's dctn, one thread each, taken in turns within one run.

    bench/run transforms
"""

import subprocess
import time

import numpy as np
import scipy
from scipy.fft import dctn

GRIDS = [(100, 100), (61, 73, 61), (64, 64, 29), (1021, 1021)]
ROUNDS = 7


def seconds_of_scipy(image):
    """Seconds of one orthonormal DCT-II, as the mean over about a fifth of a second."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < 0.2:
        dctn(image, norm="ortho", workers=1)
        count += 1
    return (time.perf_counter() - start) / count


def seconds_of_issfa(grid):
    """The same, by crates/issfa/examples/time_transform.rs."""
    text = " x ".join(f"path({n})" for n in grid)
    return float(subprocess.check_output(["target/release/examples/time_transform", text]))


def main():
    print(f"SciPy {scipy.__version__}, NumPy {np.__version__}; medians of {ROUNDS} rounds taken in turns, one thread\n")
    print("| grid | SciPy dctn, ms | issfa, ms | SciPy / issfa |")
    print("|---|---|---|---|")
    for grid in GRIDS:
        image = np.random.default_rng(1).standard_normal(grid)
        pairs = [(seconds_of_scipy(image), seconds_of_issfa(grid)) for _ in range(ROUNDS)]
        theirs, ours = np.median(pairs, axis=0) * 1000
        ratio = np.median([a / b for a, b in pairs])
        print(f"| {'x'.join(map(str, grid))} | {theirs:.3f} | {ours:.3f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
