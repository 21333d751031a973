"""Fits that are stopped at random moments: so many times by Ctrl-C and so many times by a callback that raises, in memory and
into a folder. Each time the process must live, the object or the checkpoint must be usable, and going on must give the bits
of a fit that was never stopped.

    tools/package && tools/python bench/interrupts.py [--times 100] [--seed 0]
"""

import argparse
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import issfa
import numpy as np

SWEEPS = 150
SETTINGS = dict(sweeps=SWEEPS, burn_in=30, thin=2, random_state=5, checkpoint_every="0.05s")


class Odd(Exception):
    """What the callback raises."""


def simulated():
    rng = np.random.default_rng(1)
    x, y = np.meshgrid(np.linspace(0, 1, 24), np.linspace(0, 1, 30), indexing="ij")
    features = np.stack([np.sin(3 * (k + 1) * x) * np.cos(2 * k * y + k) for k in range(5)])
    weights = rng.normal(size=(300, 5)) * (rng.random((300, 5)) < 0.3)
    return np.tensordot(5 * weights, features, 1) + rng.normal(size=(300, 24, 30))


def bits(model):
    trace = model._fitted.trace()
    arrays = [model.components_, model.components_sd_, model.weights_, model.activation_]
    return [array.tobytes() for array in arrays] + [trace[name].tobytes() for name in trace if name != "seconds"]


def interrupted(model, rows, out, seconds):
    """By Ctrl-C, after some time."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        model.fit(rows, out=out)
        # One that comes after the end of the fit is not the fit's.
        timer.cancel()
        timer.join()
        time.sleep(0.01)
        return False
    except KeyboardInterrupt:
        return True


def raised(model, rows, out, sweep):
    """By the callback, after a sweep."""

    def callback(seen):
        if seen.sweep == sweep:
            raise Odd(sweep)

    try:
        model.fit(rows, out=out, callback=callback)
    except Odd as error:
        return error.args == (sweep,)
    return False


def go_on(model, rows, out, chance):
    """From the object, its pickle, or its folder; from the start where nothing was fitted yet."""
    if not hasattr(model, "components_"):
        if out is not None and out.exists():
            raise AssertionError("nothing was fitted, but there is a folder")
        return model.fit(rows, out=out), "while rows were prepared"
    before = model.n_iter_
    if out is not None:
        model = issfa.open(out)
    elif chance < 0.5:
        model = pickle.loads(pickle.dumps(model))
    assert model.n_iter_ == before
    return model.resume(rows), "after the end" if before == SWEEPS else "within sweeps"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # A shell that runs this in the background has Ctrl-C ignored, and what is ignored is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance, rows = random.Random(options.seed), simulated()
    whole = bits(issfa.ISSFA(**SETTINGS).fit(rows))
    wrong = 0
    for how in ("Ctrl-C", "callback"):
        # The time that a fit takes, as the last one that was not stopped took it: the machine may be busy.
        counts, n_stopped, seconds = Counter(), 0, 0.0
        while n_stopped < options.times:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "run" if n_stopped % 2 else None
                model = issfa.ISSFA(**SETTINGS)
                start = time.monotonic()
                if how == "callback":
                    was_stopped = raised(model, rows, out, chance.randint(1, SWEEPS))
                else:
                    was_stopped = interrupted(model, rows, out, chance.uniform(0, seconds) if seconds else 60.0)
                seconds = seconds if was_stopped else time.monotonic() - start
                model, when = go_on(model, rows, out, chance.random())
                counts[when if was_stopped else "never"] += 1
                n_stopped += was_stopped
                if bits(model) != whole:
                    counts["other bits"] += 1
                    wrong += 1
        print(f"{how}: {n_stopped} fits were stopped, {dict(counts)}", flush=True)
    print("all went on with the same bits" if wrong == 0 else f"{wrong} went on with other bits")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
