"""Data that the tests simulate, and the built command."""

import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

# A shell that runs the tests in the background has Ctrl-C ignored, and what is ignored is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)


GRID = (8, 12)
REPOSITORY = Path(__file__).resolve().parents[2]


def smooth_features(grid=GRID, n_features=3):
    x, y = np.meshgrid(*[np.linspace(0, 1, n) for n in grid], indexing="ij")
    return np.stack([np.sin(np.pi * (k + 1) * x) * np.cos(np.pi * k * y + k) for k in range(n_features)])


def simulated(n_rows=120, grid=GRID, n_features=3, seed=0):
    """Rows made of smooth features, each used by a third of them, and noise."""
    rng = np.random.default_rng(seed)
    features = smooth_features(grid, n_features)
    weights = rng.normal(size=(n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.35)
    return np.tensordot(5 * weights, features, 1) + rng.normal(size=(n_rows, *grid))


@pytest.fixture(scope="session")
def rows():
    return simulated()


@pytest.fixture(scope="session")
def command():
    """Runs the built `issfa`, which must succeed; gives what it prints."""
    program = REPOSITORY / "target/release/issfa"

    def run(*words):
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def assert_same_bits(one, other):
    """Two fits that went the same way."""
    for name in ("components_", "components_sd_", "weights_", "activation_", "presence_", "mean_", "noise_variance_"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype and a.shape == b.shape, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    assert one.n_components_ > 0, "something was found"
    assert_same_trace(one, other)


def assert_same_trace(one, other):
    trace, twin = one._fitted.trace(), other._fitted.trace()
    assert list(trace) == list(twin)
    for name in set(trace) - {"seconds"}:
        np.testing.assert_array_equal(trace[name], twin[name], err_msg=name)
