"""The paper's simulation, fitted for long and for short, as the tables of docs/validation.md.

    bench/run paper [--seeds 1 2 3] [--fresh 7 8 9]
"""

import argparse
import tempfile
from pathlib import Path

import program

LONG, SHORT, EMPTY = "--sweeps 300 --burn-in 150", "--sweeps 60", "--sweeps 80 --init empty"


def rows(folder, seeds, choices):
    """One table row an option and seed."""
    for options in choices:
        for seed in seeds:
            sim, run = f"{folder}/sim{seed}", f"{folder}/run"
            if not Path(sim).is_dir():
                program.call("simulate", "--preset", "paper", "--seed", str(seed), "--out", sim)
            program.call("fit", f"{sim}/observations.npy", "--noise", "white", "--center", "none", "--grid", "100x100", *options.split(), "--seed", str(seed), "--out", run,
                  "--overwrite", "--quiet")
            found = program.call_json("evaluate", run, "--truth", sim)
            over = found["feature_recovery_error"] / found["oracle_feature_recovery_error"]
            print(f"| `{options}` | {seed} | {found['n_found']} | {found['min_cosine']:.2f} | {found['n_persistent']} "
                  f"| {found['n_features_mean']:.1f} | {found['feature_recovery_error']:.1f} "
                  f"| {over:.3f} | {found['weight_kurtosis']:.0f} ({found['truth_weight_kurtosis']:.0f}) |", flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options.add_argument("--fresh", nargs="+", type=int, default=[7, 8, 9])
    options = options.parse_args()
    print("| options | seed | features found | least cosine | persistent | mean K | recovery error "
          "| over the oracle's | kurtosis of weights (truth) |\n|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        rows(folder, options.seeds, [LONG, SHORT, EMPTY])
        rows(folder, options.fresh, [SHORT, EMPTY])


if __name__ == "__main__":
    main()
