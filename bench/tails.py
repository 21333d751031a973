"""Whether Student weights are worth having; prints tables and writes bench/tails.json.

    bench/run tails [--data FOLDER] [--only dense haxby localizer right] [--seeds 1 2] [--tails 4] [--binary FILE] [--quick]

Parts:

1. dense      simulated rows that use most of ten smooth features (density 0.8, 32x32 sites, 600 rows), weights Gaussian, Laplace and
              Student with 3 degrees of freedom, two draws each: E_r, true features found (cosine 0.9 or more), and the number of
              features, with normal and Student weights, beside FastICA told the number
2. haxby      twelve runs of a slice, two seeds: how alike their persistent features are (median best cosine of all and of the ten
              largest, share with 0.8 or more), beside two seeds of FastICA told the number
3. localizer  the same for nine slices of a whole head
4. right      what is lost where normal weights are right: `issfa simulate` with density 0.8 and 0.2, two seeds each, by
              `issfa evaluate --truth`
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import program
import numpy as np

sys.path.insert(0, "bench")
from noise import brain_mask, cosines, load  # noqa: E402

LAWS = ("normal", "student")


def agreement(a, b):
    """Median best cosine of all features and of the ten largest, and the share with 0.8 or more."""
    best = np.concatenate([cosines(a, b).max(1), cosines(b, a).max(1)])
    largest = np.concatenate([cosines(a[:10], b).max(1), cosines(b[:10], a).max(1)])
    return {"median": float(np.median(best)), "of_ten": float(np.median(largest)), "alike": float((best >= 0.8).mean())}


def fastica(rows, k, seed, sources):
    """Features of FastICA, largest first, and whether it converged."""
    from sklearn.decomposition import FastICA

    fit = FastICA(k, whiten="unit-variance", max_iter=1000, random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        independent = fit.fit_transform(rows if sources == "weights" else rows.T)
    weights, features = (independent, fit.mixing_.T) if sources == "weights" else (fit.mixing_, independent.T)
    size = np.linalg.norm(features, axis=1) * np.linalg.norm(weights, axis=0)
    return features[np.argsort(-size)], not caught


def fit(args, inputs, options, law, seed, sweeps, out):
    config = out.with_suffix(".toml")
    config.write_text(f"[priors]\nweight_tails = {args.tails}\n" if law == "student" else "")
    start = time.time()
    sweeps = 20 if args.quick else sweeps
    program.call("fit", *inputs, *options, "--config", config, "--weights", law, "--sweeps", sweeps, "--burn-in", sweeps // 2, "--seed", seed,
                 "--out", out, "--overwrite", "--quiet", "--report", "none")
    summary = program.call_json("summary", out)
    return load(out), {"K": summary["quantities"][0]["mean"], "persistent": summary["n_persistent"], "seconds": time.time() - start,
                       "seconds_per_sweep": summary["seconds_per_sweep"]}


def dense(args, scratch):
    from scipy.ndimage import gaussian_filter

    found = {}
    draws = {"gaussian": lambda r, n: r.normal(size=n), "laplace": lambda r, n: r.laplace(size=n) / np.sqrt(2),
             "student(3)": lambda r, n: r.standard_t(3, size=n) / np.sqrt(3)}
    for name, draw in draws.items():
        for seed in (1, 2):
            r = np.random.default_rng(seed)
            truth = np.stack([gaussian_filter(r.normal(size=(32, 32)), 3, mode="nearest") for _ in range(10)]).reshape(10, -1)
            truth /= truth.std(1, keepdims=True)
            weights = draw(r, (600, 10)) * (r.random((600, 10)) < 0.8)
            rows = (weights @ truth + 2 * r.normal(size=(600, 1024))).astype(np.float32)
            np.save(scratch / "rows.npy", rows)
            row, features = {}, {}
            for law in LAWS:
                features[law], row[law] = fit(args, [scratch / "rows.npy"], ["--grid", "32x32", "--noise", "white", "--center", "none"], law,
                                              seed, 600, scratch / law)
            for sources in ("weights", "images"):
                name_of = f"FastICA over {sources}"
                features[name_of], converged = fastica(rows, 10, seed, sources)
                row[name_of] = {"converged": converged}
            for method, of in features.items():
                best = cosines(truth, of).max(1)
                row[method] |= {"E_r": float(np.sum(2 - 2 * best)), "found": int((best >= 0.9).sum()), "n": len(of)}
            found[f"{name} {seed}"] = row
            print(f"{name:10} {seed} " + "; ".join(f"{m} E_r {v['E_r']:.3f} found {v['found']} of 10 with {v['n']}" for m, v in row.items()),
                  flush=True)
    return found


def right(args, scratch):
    found = {}
    for density in (0.8, 0.2):
        for seed in (21, 23):
            sim = scratch / "sim"
            program.call("simulate", "--preset", "small", "--grid", "40x40", "--rows", 400, "--density", density, "--noise", 1, "--theta", "1,100",
                         "--features", 10, "--seed", seed, "--out", sim, "--overwrite", "--quiet")
            row = {}
            for law in LAWS:
                options = ["--grid", "40x40", "--noise", "white", "--center", "none", "--thin", 5, "--keep-draws", 20]
                _, row[law] = fit(args, [sim / "observations.npy"], options, law, seed, 400, scratch / law)
                report = program.call_json("evaluate", scratch / law, "--truth", sim)
                row[law] |= {key: report[key] for key in ("feature_recovery_error", "oracle_feature_recovery_error", "n_found", "heldout_error",
                                                          "feature_coverage", "heldout_coverage")}
            found[f"density {density}, seed {seed}"] = row
            print(f"density {density} seed {seed} " + json.dumps(row), flush=True)
    return found


def seeds(args, scratch, name, inputs, options, sweeps, rows):
    """Two seeds with either law, and FastICA told as many features as persist with normal weights."""
    found, k, varying = {}, None, rows.std(0) > 0
    for law in LAWS:
        fits = [fit(args, inputs, options, law, seed, sweeps, scratch / f"{law}-{seed}") for seed in args.seeds]
        found[law] = agreement(fits[0][0], fits[1][0]) | {key: [f[1][key] for f in fits] for key in fits[0][1]}
        k = k or fits[0][1]["persistent"]
        print(name, law, json.dumps(found[law]), flush=True)
    for sources in ("weights", "images"):
        fits = [fastica(rows[:, varying], k, seed, sources) for seed in args.seeds]
        found[f"FastICA over {sources}"] = agreement(fits[0][0], fits[1][0]) | {"K": k, "converged": [f[1] for f in fits]}
        print(name, "FastICA over", sources, json.dumps(found[f"FastICA over {sources}"]), flush=True)
    return found


def without(values, design):
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def haxby(args, scratch):
    import nibabel

    folder = args.data / "haxby"
    slices, motion = sorted(folder.glob("run-*_slice.nii.gz")), sorted(folder.glob("run-*_motion.txt"))
    rows = []
    for image, table in zip(slices, motion):
        values = nibabel.load(image).get_fdata()
        values = values.reshape(-1, values.shape[-1]).T
        rows.append(without(values, np.column_stack([np.ones(len(values)), np.linspace(-1, 1, len(values)), np.loadtxt(table)])))
    rows = np.concatenate(rows)
    rows[:, rows.std(0) < 1e-6] = 0
    return seeds(args, scratch, "haxby", slices, ["--mask", "auto", "--detrend", "linear", "--confounds", *motion], 1000, rows)


def localizer(args, scratch):
    import nibabel

    volume = nibabel.load(args.data / "localizer/bold.nii.gz")
    part = scratch / "part.nii.gz"
    nibabel.save(nibabel.Nifti1Image(volume.get_fdata()[:, :, 9:18].astype(np.float32), volume.affine), part)
    brain_mask(part, scratch / "mask.nii.gz")
    inside = nibabel.load(scratch / "mask.nii.gz").get_fdata().ravel() > 0
    values = nibabel.load(part).get_fdata()
    values = values.reshape(-1, values.shape[-1]).T
    rows = without(values, np.column_stack([np.ones(len(values)), np.linspace(-1, 1, len(values))])) * inside
    return seeds(args, scratch, "localizer", [part], ["--mask", scratch / "mask.nii.gz", "--detrend", "linear"], 300, rows)


PARTS = {"dense": dense, "haxby": haxby, "localizer": localizer, "right": right}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, nargs=2, default=[1, 2])
    parser.add_argument("--tails", type=float, default=4.0)
    parser.add_argument("--binary", default=program.BINARY)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    program.BINARY = args.binary
    path = Path("target/tails_quick.json" if args.quick else "bench/tails.json")
    results = {}
    for part in args.only:
        print(f"# {part}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            results[part if args.seeds == [1, 2] else f"{part}, seeds {args.seeds}"] = PARTS[part](args, Path(folder))
        earlier = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(earlier | results, indent=1) + "\n")


if __name__ == "__main__":
    main()
