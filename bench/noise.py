"""What the noise reference does, on real data and on simulated ones; prints tables and writes bench/noise.json.

    bench/run noise [--data FOLDER] [--only table neurons hidden simulated rows levels table_by_row] [--sets digits ...] [--quick]

Real data are not part of the project: FOLDER (default ../shared/data) holds them, as its README says. Parts:

1. table      real data sets, two seeds each, as one would fit them: features, those that persist, R-hat of their number over both
              chains, seconds per sweep, and how alike the features of the two seeds are (median of the best absolute cosine of all
              persistent features, and of the ten largest)
2. neurons    movies of real footprints and traces under four kinds of noise, two windows each: the share of loud cells found
              (rms weight above 10, cosine 0.7 or more), the share of features without a match (best cosine below 0.5), beside
              FastICA and NMF told the number of cells, and PCA of as many components
3. hidden     a fifth of the cells of rows left out of the fit is predicted: reference, white, and probabilistic PCA
4. simulated  the paper's simulation with white, site, smooth and both kinds of noise: reference and white
5. rows       whether noise that differs between rows would earn its place: haxby with every row divided by the root of its own
              residual variance (of a first fit, over the mean of its run), beside rows as they are, by the hidden cells of a run
              left out, which is the same for both
6. levels     levels of rows, (--row-noise) beside one level a run: K and hidden cells, as in 3, of two seeds; and how much
              rows differ by the reference of every data set that is a series, movies of neurons included

--sets takes some data sets of the table or of levels only; the others stay as they are in bench/noise.json.
--quick takes few sweeps, to see whether the script works: its numbers mean nothing, and go to target/noise_quick.json.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import program
import numpy as np
from settle import stored

FOUND, MATCHED, LOUD = 0.7, 0.5, 10
# Cells that were looked at while the recipe was tried are those of the window 35,35,100 and frames 0 to 1500.
# Those of 60,0,100 and 0,60,100 (frames 1500 to 3000) were looked at when components were first taken out of series.
WINDOWS = [("70,70,100", "0,1500", 21), ("10,10,100", "1500,3000", 22)]


def rows_of(data):
    """Name, input and options of the real data sets."""
    haxby = data / "haxby"
    slices = sorted(haxby.glob("run-*_slice.nii.gz"))
    return {
        "mouse_calcium": ([data / "mouse_calcium/camouse_time500_64_64.npy"], [], 1000),
        "haxby slice": (slices, ["--mask", "auto", "--detrend", "linear", "--confounds", *sorted(haxby.glob("run-*_motion.txt"))], 1000),
        "localizer": ([data / "localizer/bold.nii.gz"], ["--mask", "MASK", "--detrend", "linear"], 600),
        "digits": ([data / "digits/digits_img1797_h8_w8.npy"], [], 1000),
        "era5_uk": ([data / "era5_uk/era5_uk_t2m_time744_lat33_lon49.npy"], [], 1000),
        "elnino": ([data / "elnino/elnino_year61_month12.npy"], ["--structure", "cycle(12)"], 1000),
    }


def brain_mask(image, out):
    """A mask of the head: sites brighter than a third of the 98% point of the mean."""
    import nibabel

    volume = nibabel.load(image)
    mean = volume.get_fdata().mean(-1)
    inside = mean > np.quantile(mean, 0.98) / 3
    nibabel.save(nibabel.Nifti1Image(inside.astype(np.uint8), volume.affine), out)
    return int(inside.sum())


def load(run):
    features = np.load(Path(run) / "features.npy")
    return np.nan_to_num(features.reshape(len(features), -1))


def cosines(a, b):
    norm = lambda x: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    return np.abs(norm(a) @ norm(b).T)


def agreement(a, b):
    if len(a) == 0 or len(b) == 0:
        return float("nan"), float("nan")
    best = np.concatenate([cosines(a, b).max(1), cosines(b, a).max(1)])
    largest = np.concatenate([cosines(a[:10], b).max(1), cosines(b[:10], a).max(1)])
    return float(np.median(best)), float(np.median(largest))


def shared_by_both(runs):
    """Of the features that hold 95% of what features explain: how many the other run has at a cosine of 0.8, how many more lie within
    what its features span (0.95), and how many there are."""
    shares = []
    for own, other in (runs, runs[::-1]):
        with open(Path(own) / "features.tsv") as file:
            explained = np.array([float(row["variance_explained"]) for row in csv.DictReader(file, delimiter="\t")])
        order = np.argsort(-explained)
        held = np.cumsum(explained[order]) / explained.sum()
        largest = order[: int(np.searchsorted(held, 0.95)) + 1]
        own, other = load(own)[largest], load(other)
        has = cosines(own, other).max(1, initial=0.0) >= 0.8
        directions, _ = np.linalg.qr(other.T.astype(float))
        within = np.linalg.norm(own @ directions, axis=1) >= 0.95 * np.linalg.norm(own, axis=1)
        shares.append((int(has.sum()), int((within & ~has).sum()), len(largest)))
    return shares


def table(data, scratch, quick, sets=None, more=()):
    """Two seeds of every data set, merged for R-hat."""
    found = {}
    for name, (inputs, options, sweeps) in rows_of(data).items():
        if sets and name not in sets:
            continue
        if "MASK" in options:
            mask = scratch / "mask.nii.gz"
            brain_mask(inputs[0], mask)
            options = [mask if word == "MASK" else word for word in options]
        sweeps = 20 if quick else sweeps
        runs = [scratch / f"{name}-{seed}" for seed in (1, 2)]
        for seed, run in zip((1, 2), runs):
            program.call("fit", *inputs, *options, *more, "--sweeps", sweeps, "--burn-in", sweeps // 2, "--seed", seed, "--out", run,
                         "--overwrite", "--quiet")
        merged = scratch / f"{name}-merged"
        program.call("merge", *runs, "--out", merged, "--overwrite", "--quiet")
        overview = program.call_json("summary", merged)
        features = next(q for q in overview["quantities"] if q["name"] == "features")
        parts = [program.call_json("summary", run) for run in runs]
        alike, largest = agreement(*map(load, runs))
        found[name] = {
            "rows": overview["n_rows"], "sweeps": sweeps, "K": [p["quantities"][0]["mean"] for p in parts],
            "persistent": [p["n_persistent"] for p in parts], "r_hat": features["split_r_hat"],
            "r_hat_each": [p["quantities"][0]["split_r_hat"] for p in parts],
            "seconds_per_sweep": [p["seconds_per_sweep"] for p in parts], "agreement": alike, "agreement_of_ten": largest,
            "of_those_that_hold_95%": shared_by_both(runs),
        }
        row = found[name]
        print(f"{name:15} T {row['rows']:5} K {row['K'][0]:7.1f} {row['K'][1]:7.1f} persistent {row['persistent']} R-hat {row['r_hat']:.3f} "
              f"(each {row['r_hat_each'][0]:.3f} {row['r_hat_each'][1]:.3f}) {row['seconds_per_sweep'][0]:.3f} s/sweep "
              f"agreement {alike:.2f}, ten largest {largest:.2f}; of those that hold 95% at 0.8: "
              f"{', '.join(f'{has} of {n}, {within} more within the span' for has, within, n in row['of_those_that_hold_95%'])}", flush=True)
    return found


def score(features, truth, weights):
    loud = np.sqrt((weights**2).mean(0)) > LOUD
    if len(features) == 0:
        return 0.0, 0.0
    c = cosines(truth, features)
    return float((c[loud].max(1) >= FOUND).mean()), float((c.max(0) < MATCHED).mean())


def make_movie(data, movie, window, frames, noise, seed):
    options = ["--window", window, "--frames", frames, "--noise", noise, "--seed", str(seed)]
    subprocess.run([sys.executable, data / "neurons/make_movie.py", movie, *options], check=True, capture_output=True)


def neurons(data, scratch, quick):
    from sklearn.decomposition import NMF, PCA, FastICA

    found = {}
    for noise in ["white", "sites", "smooth", "both"]:
        for window, frames, seed in WINDOWS:
            movie = scratch / f"movie-{noise}-{seed}"
            make_movie(data, movie, window, frames, noise, seed)
            truth = np.load(movie / "truth_features.npy")
            truth, weights = truth.reshape(len(truth), -1), np.load(movie / "truth_weights.npy")
            run = scratch / f"run-{noise}-{seed}"
            start = time.time()
            program.call("fit", movie / "movie.npy", "--sweeps", 20 if quick else 500, "--seed", seed, "--out", run, "--overwrite", "--quiet")
            results = {"issfa": (*score(load(run), truth, weights), len(load(run)), time.time() - start)}
            values = np.load(movie / "movie.npy").reshape(len(weights), -1)
            values = values - values.mean(0)
            k = len(truth)
            peers = {
                "FastICA": lambda: FastICA(k, max_iter=500, random_state=0).fit(values).mixing_.T,
                "NMF": lambda: NMF(k, init="nndsvda", max_iter=300, random_state=0).fit(values - values.min()).components_,
                "PCA": lambda: PCA(k, random_state=0).fit(values).components_,
            }
            for name, make in peers.items():
                start = time.time()
                results[name] = (*score(make(), truth, weights), k, time.time() - start)
            loud = int((np.sqrt((weights**2).mean(0)) > LOUD).sum())
            found[f"{noise} {window}"] = {name: dict(zip(("found", "unmatched", "n", "seconds"), r)) for name, r in results.items()} | {
                "cells": k, "loud": loud}
            print(f"{noise:7} {window:9} {k} cells, {loud} loud: " + "; ".join(
                f"{name} found {r[0]:.2f} unmatched {r[1]:.2f} of {r[2]}" for name, r in results.items()), flush=True)
    return found


def hidden(data, scratch, quick):
    found = {}
    for name, (inputs, options, new, how) in hidden_cases(data, scratch).items():
        row = {}
        for noise in ["reference", "white"]:
            # White fits run away: they are given as many sweeps as end in reasonable time.
            sweeps = 20 if quick else 400 if noise == "reference" else 60
            run = scratch / f"{name}-{noise}"
            program.call("fit", *inputs, *options, "--noise", noise, "--sweeps", sweeps, "--seed", 1, "--out", run, "--overwrite", "--quiet")
            report = program.call_json("evaluate", run, "--data", new, "--hide", 0.2, "--seed", 1, *how)
            row[noise] = {key: report[key] for key in ("r2", "signal_r2", "pca_r2", "pca_dimension", "pca_error_ratio")}
            row[noise]["K"] = program.call_json("summary", run)["quantities"][0]["mean"]
        found[name] = row
        r, w = row["reference"], row["white"]
        print(f"{name:20} R2 with reference {r['r2']:.4f} (features alone {r['signal_r2']:.4f}, K {r['K']:.0f}); white {w['r2']:.4f} "
              f"(K {w['K']:.0f}); probabilistic PCA {r['pca_r2']:.4f} with {r['pca_dimension']}; its error over ours {r['pca_error_ratio']:.3f}",
              flush=True)
    return found


def simulated(_, scratch, quick):
    """Noise of each kind, fitted with the reference, as white noise, and with a reference measured on the noise itself, which nobody
    has outside of a simulation: the best that any reference can do."""
    found = {}
    size = ["--preset", "small"] if quick else ["--preset", "paper"]
    grid = "48x48" if quick else "100x100"
    for kind in ["white", "sites", "smooth", "both"]:
        sim = scratch / f"sim-{kind}"
        program.call("simulate", *size, "--noise-kind", kind, "--seed", 5, "--out", sim, "--overwrite", "--quiet")
        for noise in ["reference", "white", "of the noise itself"]:
            explodes = noise == "white" and kind != "white"
            sweeps = 40 if quick or explodes else 400
            run = scratch / f"sim-{kind}-run"
            taken = perfect_reference(sim, scratch, grid) if noise == "of the noise itself" else noise
            program.call("fit", sim / "observations.npy", "--grid", grid, "--center", "none", "--noise", taken, "--sweeps", sweeps, "--seed", 5, "--out", run, "--overwrite", "--quiet",
                       "--max-features", 400, "--keep-draws", 40)
            report = program.call_json("evaluate", run, "--truth", sim)
            found[f"{kind} noise, --noise {noise}"] = report
            print(f"{kind:6} noise, --noise {noise:19} K {report['n_features_mean']:.1f} found {report['n_found']}/{report['n_true']} held-out error "
                  f"{report['heldout_error']:.5f} E_r {report['feature_recovery_error']:.2f} coverage: features "
                  f"{report['feature_coverage']} rows {report['training_coverage']} held-out {report['heldout_coverage']}", flush=True)
    return found


def perfect_reference(sim, scratch, grid):
    """The reference measured on what the truth leaves of simulated rows."""
    rows, features, weights = (np.load(sim / f"{name}.npy") for name in ("observations", "truth_features", "truth_weights"))
    noise = rows.reshape(len(rows), -1) - weights @ features.reshape(len(features), -1)
    np.save(scratch / "noise_alone.npy", noise.astype(np.float32))
    program.call("noise", scratch / "noise_alone.npy", "--grid", grid, "--center", "none", "--out", scratch / "noise_alone", "--overwrite", "--quiet")
    return scratch / "noise_alone/noise_reference.safetensors"


def rows(data, scratch, quick):
    import nibabel

    haxby = data / "haxby"
    slices, motion = sorted(haxby.glob("run-*_slice.nii.gz")), sorted(haxby.glob("run-*_motion.txt"))
    found = {}
    for name, with_confounds in [("trend and motion taken out", True), ("trend taken out", False)]:
        runs, means = [], []
        for image, table in zip(slices, motion):
            values = nibabel.load(image).get_fdata()
            grid, values = values.shape[:2], values.reshape(-1, values.shape[-1]).T
            confounds = np.loadtxt(table)[:, : 6 if with_confounds else 0]
            design = np.column_stack([np.ones(len(values)), np.linspace(-1, 1, len(values)), confounds - confounds.mean(0)])
            means.append(values.mean(0))
            runs.append(values - design @ np.linalg.lstsq(design, values, rcond=None)[0])
        mean = np.mean(means, 0)
        inside = mean > np.quantile(mean, 0.98) / 3
        np.save(scratch / "mask.npy", inside.reshape(grid).astype(np.uint8))

        def save(prefix, list_of_runs):
            paths = [scratch / f"{prefix}-{at + 1:02}.npy" for at in range(len(list_of_runs))]
            for path, values in zip(paths, list_of_runs):
                np.save(path, values.reshape(-1, *grid).astype(np.float32))
            return paths

        plain = save("plain", runs)
        row = {"as they are": [], "divided": [], "sd of ln variance": [], "by chance": float(np.sqrt(2 / inside.sum()))}
        for seed in (1, 2):
            def fit(paths, out):
                program.call("fit", *paths, "--mask", scratch / "mask.npy", "--sweeps", 20 if quick else 800, "--seed", seed, "--reconstruct",
                           "--out", out, "--overwrite", "--quiet")
                report = program.call_json("evaluate", out, "--data", plain[-1], "--hide", 0.2, "--seed", 1)
                return {"r2": report["r2"], "K": program.call_json("summary", out)["quantities"][0]["mean"]}

            row["as they are"].append(fit(plain[:-1], scratch / "plain"))
            denoised = np.load(scratch / "plain/reconstruction.npy").reshape(-1, inside.size)
            left = np.concatenate(runs[:-1])[:, inside] - denoised[:, inside]
            variance = ((left / left.std(0)) ** 2).mean(1)
            ends = np.cumsum([len(values) for values in runs[:-1]])
            of_rows = [part / part.mean() for part in np.split(variance, ends[:-1])]
            row["sd of ln variance"].append(float(np.log(np.concatenate(of_rows)).std()))
            divided = [values / np.sqrt(own)[:, None] for values, own in zip(runs, of_rows)]
            row["divided"].append(fit(save("divided", divided), scratch / "divided"))
        found[name] = row
        show = lambda key: ", ".join(f"{fit['r2']:.4f} (K {fit['K']:.0f})" for fit in row[key])
        print(f"{name:28} sd of ln variance over rows {row['sd of ln variance'][0]:.3f} ({row['by chance']:.3f} by chance); R2 as they are "
              f"{show('as they are')}; divided {show('divided')}", flush=True)
    return found


def hidden_cases(data, scratch):
    """Name, inputs and options of a fit, and new rows with their options, of which cells will be hidden."""
    haxby = data / "haxby"
    slices, motion = sorted(haxby.glob("run-*_slice.nii.gz")), sorted(haxby.glob("run-*_motion.txt"))
    options = ["--mask", "auto", "--detrend", "linear", "--confounds", *motion[:11]]
    cases = {"haxby slice, run 12": (slices[:11], options, slices[11], ["--confounds", motion[11], "--center-new", "own"])}
    for name, path, options, share in [
        ("mouse_calcium", data / "mouse_calcium/camouse_time500_64_64.npy", [], 0.8),
        ("era5_uk", data / "era5_uk/era5_uk_t2m_time744_lat33_lon49.npy", [], 0.8),
        ("elnino", data / "elnino/elnino_year61_month12.npy", ["--structure", "cycle(12)"], 0.8),
    ]:
        values = np.load(path).astype(np.float32)
        cut = int(share * len(values))
        parts = [scratch / f"{name}-{part}.npy" for part in ("train", "test")]
        np.save(parts[0], values[:cut])
        np.save(parts[1], values[cut:])
        cases[name] = ([parts[0]], options, parts[1], [])
    return cases


def levels(data, scratch, quick, sets=None):
    found = {"how much rows differ": {}, "hidden": {}}

    def look(name, inputs, options):
        out = scratch / "noise"
        program.call("noise", *inputs, *options, "--row-noise", "--out", out, "--overwrite", "--quiet")
        reference = stored(out / "noise_reference.safetensors")
        spread = float(np.log(reference["row_factors"]).std()) if "row_factors" in reference else None
        found["how much rows differ"][name] = spread
        print(f"{name:20} {'alike' if spread is None else f'sd of ln levels {spread:.3f}'}", flush=True)

    for name, (inputs, options, _) in rows_of(data).items():
        if sets and name not in sets:
            continue
        if "MASK" in options:
            brain_mask(inputs[0], scratch / "mask.nii.gz")
            options = [scratch / "mask.nii.gz" if word == "MASK" else word for word in options]
        look(name, inputs, options)
    for noise in ["white", "sites", "smooth", "both"]:
        for window, frames, seed in WINDOWS:
            movie = scratch / f"movie-{noise}-{seed}"
            if sets:
                continue
            make_movie(data, movie, window, frames, noise, seed)
            look(f"neurons, {noise} {window}", [movie / "movie.npy"], [])
    for name, (inputs, options, new, how) in hidden_cases(data, scratch).items():
        if found["how much rows differ"].get(name.split(",")[0]) is None:
            continue
        row = {"a level a row": [], "a level a run": []}
        for kind, more in [("a level a row", ["--row-noise"]), ("a level a run", [])]:
            for seed in (1, 2):
                run = scratch / "levels"
                how_long = ["--sweeps", 20 if quick else 400, "--seed", seed]
                program.call("fit", *inputs, *options, *more, *how_long, "--out", run, "--overwrite", "--quiet")
                report = program.call_json("evaluate", run, "--data", new, "--hide", 0.2, "--seed", 1, *how)
                summary = program.call_json("summary", run)
                row[kind].append({key: report[key] for key in ("r2", "signal_r2", "pca_r2")} | {
                    "K": summary["quantities"][0]["mean"], "persistent": summary["n_persistent"]})
        found["hidden"][name] = row
        for kind, fits in row.items():
            print(f"{name:20} {kind}: " + "; ".join(
                f"R2 {fit['r2']:.4f}, features alone {fit['signal_r2']:.4f}, K {fit['K']:.0f}, {fit['persistent']} persistent"
                for fit in fits), flush=True)
    return found


def table_by_row(data, scratch, quick, sets=None):
    """The same with levels of rows."""
    return table(data, scratch, quick, sets, ["--row-noise"])


PARTS = {"levels": levels, "rows": rows, "table": table, "table_by_row": table_by_row, "neurons": neurons, "hidden": hidden, "simulated": simulated}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="of the table or of levels")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", type=Path, help="a folder where the runs stay")
    args = parser.parse_args()
    path = Path("target/noise_quick.json" if args.quick else "bench/noise.json")
    results = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        folder = args.keep or Path(folder)
        folder.mkdir(exist_ok=True)
        for part in args.only:
            print(f"# {part}", flush=True)
            if part.startswith("table") and args.sets:
                results.setdefault(part, {}).update(PARTS[part](args.data, folder, args.quick, args.sets))
            elif part == "levels" and args.sets:
                for key, new in levels(args.data, folder, args.quick, args.sets).items():
                    results.setdefault(part, {}).setdefault(key, {}).update(new)
            else:
                results[part] = PARTS[part](args.data, folder, args.quick)
            path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
