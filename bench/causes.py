"""Why the noise reference leaves what it leaves (docs/validation.md, Noise that is not white); writes bench/causes.json.

    bench/run causes [--data FOLDER] [--only seeds rows tails coverage] [--keep FOLDER]

1. seeds     R-hat of the number of features over four chains, which scatters less than over two, and its effective draws
2. rows      mouse_calcium as it is, with every row divided by the level of its own differences, and simulated: what its features
             that more than 24 rows use say, in Gaussian noise of the reference that is alike in all rows, or as strong as theirs;
             all with one level a run (row_levels = false)
3. tails     features in independent noise with heavier and heavier tails (Student, d degrees of freedom): how many are found
4. coverage  90% intervals of features where sites differ in noise, by fifths of the sites from quiet to loud, with features of
             unit norm in the data's units and in those of the noise; mean squares of the errors over what the intervals claim

--keep takes the folder where runs stay: those that are there are not made again.
"""

import argparse
import csv
import json
import tempfile
from pathlib import Path

import program
import numpy as np
from noise import cosines, rows_of
from scipy.fft import dctn, idctn
from settle import stored

SEEDS = [1, 2, 3, 4]


def fit(out, *words):
    if not (out / "features.npy").exists():
        program.call("fit", *words, "--out", out, "--overwrite", "--quiet")
    return out


def of_features(run):
    return next(q for q in program.call_json("summary", run)["quantities"] if q["name"] == "features")


def seeds(data, scratch):
    found = {}
    for name in ["elnino", "haxby slice", "mouse_calcium", "era5_uk"]:
        inputs, options, sweeps = rows_of(data)[name]
        how = [*inputs, *options, "--sweeps", sweeps, "--burn-in", sweeps // 2]
        runs = [fit(scratch / f"{name}-{seed}", *how, "--seed", seed) for seed in SEEDS]
        merged = scratch / f"{name}-of-four"
        program.call("merge", *runs, "--out", merged, "--overwrite", "--quiet")
        all_four, each = of_features(merged), [of_features(run) for run in runs]
        quarters = []
        for run in runs:
            with open(run / "trace.csv") as file:
                k = [float(row["n_features"]) for row in csv.DictReader(file)]
            quarters.append([float(np.mean(part)) for part in np.array_split(np.array(k), 4)])
        found[name] = {"r_hat": all_four["split_r_hat"], "each": [q["split_r_hat"] for q in each], "K": [q["mean"] for q in each],
                       "K by quarter of the sweeps": quarters}
        print(f"{name:15} R-hat of four {all_four['split_r_hat']:.3f}, each {[round(q['split_r_hat'], 2) for q in each]}, "
              f"K {[round(q['mean'], 1) for q in each]}, by quarters {np.round(quarters, 1).tolist()}", flush=True)
    return found


class Reference:
    """A stored reference of rows on a grid of paths without a mask."""

    def __init__(self, path, grid):
        arrays = stored(path)
        values = sum(np.ix_(*[2 - 2 * np.cos(np.pi * np.arange(n) / n) for n in grid]))
        self.powers = arrays["powers"][np.searchsorted(arrays["band_ends"], values)]
        self.scales, self.level = arrays["site_scales"].reshape(grid), float(arrays["run_levels"][0])
        self.unit, self.grid = float(arrays["unit"][0]), grid

    def white(self, rows):
        axes = (1, 2)
        return dctn(rows / self.scales, axes=axes, norm="ortho") / np.sqrt(self.powers) / self.level

    def shown(self, spectra):
        return idctn(spectra.reshape(-1, *self.grid) * np.sqrt(self.powers), axes=(1, 2), norm="ortho") * self.scales


def draws_of(run):
    return [stored(path) for path in sorted((run / "draws").glob("draw-*.safetensors"))]


def weights_of(draw):
    weights = np.zeros((len(draw["active_per_row"]), len(draw["feature_ids"])))
    rows = np.repeat(np.arange(len(weights)), draw["active_per_row"].astype(int))
    weights[rows, draw["active_features"].astype(int)] = draw["active_weights"]
    return weights


def rows(data, scratch):
    path = data / "mouse_calcium/camouse_time500_64_64.npy"
    values = np.load(path).astype(float)
    mean = values.mean(0)
    how = ["--init", "empty", "--start", "full", "--sweeps", 500, "--burn-in", 250, "--seed", 1]
    first = fit(scratch / "mouse-as-it-is", path, *how)
    reference = Reference(first / "noise_reference.safetensors", values.shape[1:])
    draws = draws_of(first)
    signal = 0
    for draw in draws:
        weights = weights_of(draw)
        many = (weights != 0).sum(0) > 24
        signal = signal + weights[:, many] @ draw["feature_means"][many].astype(float) * reference.unit / len(draws)
    left = reference.white(values - mean).reshape(len(values), -1) - signal
    of_rows = (left**2).mean(1)
    differences = np.diff(values - mean, axis=0) / np.sqrt(2)
    white = idctn(reference.white(differences), axes=(1, 2), norm="ortho")
    of_differences = (np.clip(white, -3, 3) ** 2).mean((1, 2))
    own = np.concatenate([of_differences[:1], (of_differences[:-1] + of_differences[1:]) / 2, of_differences[-1:]])
    normal = np.random.default_rng(1).standard_normal(signal.shape)
    back = lambda spectra: reference.shown(spectra) * reference.level + mean
    root = np.sqrt(of_rows / of_rows.mean())[:, None]
    divided = mean + (values - mean) / np.sqrt(own / own.mean())[:, None, None]
    sets = {"as it is": None, "rows over the levels of their differences": divided,
            "simulated, rows alike": back(signal + normal), "simulated, rows as strong as they are": back(signal + normal * root)}
    found = {"sd of ln variance of rows": float(np.log(of_rows).std()), "by chance": float(np.sqrt(2 / left.shape[1]))}
    for name, made in sets.items():
        run = first
        if made is not None:
            np.save(scratch / "mouse.npy", made.astype(np.float32))
            run = fit(scratch / f"mouse-{name}", scratch / "mouse.npy", *how)
        found[name] = of_features(run)["mean"]
        print(f"{name:42} K {found[name]:.0f}", flush=True)
    print(f"sd of ln variance of rows {found['sd of ln variance of rows']:.3f} ({found['by chance']:.3f} by chance)", flush=True)
    return found


def tails(_, scratch):
    program.call("simulate", "--preset", "small", "--seed", 5, "--out", scratch / "sim", "--overwrite", "--quiet")
    truth, weights = np.load(scratch / "sim/truth_features.npy").reshape(-1, 48 * 48), np.load(scratch / "sim/truth_weights.npy")
    generator, found = np.random.default_rng(3), {}
    for freedom in [None, 8, 6, 5, 4]:
        shape = (len(weights), truth.shape[1])
        noise = generator.standard_normal(shape) if freedom is None else generator.standard_t(freedom, shape)
        noise *= 1 if freedom is None else np.sqrt(1 - 2 / freedom)
        np.save(scratch / "tails.npy", (weights @ truth + noise).astype(np.float32))
        how = ["--grid", "48x48", "--center", "none", "--sweeps", 60, "--seed", 1]
        run = fit(scratch / f"tails-{freedom}", scratch / "tails.npy", *how)
        reference = Reference(run / "noise_reference.safetensors", (48, 48))
        level = reference.level**2 * float((reference.scales**2).mean() * reference.powers.mean())
        images = np.load(run / "features.npy").reshape(-1, truth.shape[1])
        n = int((cosines(truth, images).max(1) >= 0.7).sum()) if len(images) else 0
        found[str(freedom)] = {"K": of_features(run)["mean"], "found": n, "variance": float((noise**2).mean()), "measured": level}
        own = found[str(freedom)]
        print(f"d {freedom}: variance {own['variance']:.3f}, measured {level:.3f}; K {own['K']:.0f}, {n} of {len(truth)} found",
              flush=True)
    return found


def coverage(_, scratch):
    found = {}
    for kind in ["white", "sites"]:
        sim, n = scratch / f"sim-{kind}", 48
        program.call("simulate", "--preset", "small", "--noise-kind", kind, "--seed", 5, "--out", sim, "--overwrite", "--quiet")
        how = ["--grid", "48x48", "--center", "none", "--sweeps", 400, "--seed", 5, "--keep-draws", 100, "--thin", 1]
        run = fit(scratch / f"run-{kind}", sim / "observations.npy", *how)
        reference = Reference(run / "noise_reference.safetensors", (n, n))
        truth = np.load(sim / "truth_features.npy").reshape(-1, n * n).astype(float)
        scales = reference.scales.ravel()
        order = np.array_split(np.argsort(scales), 5)
        found[kind] = {}
        for units, divisor in [("data", np.ones(n * n)), ("noise", scales)]:
            unit = lambda images: images / divisor / np.linalg.norm(images / divisor, axis=1, keepdims=True)
            true, draws = unit(truth), []
            for draw in draws_of(run)[-59:]:
                images = unit(reference.shown(draw["features"].astype(float)).reshape(-1, n * n))
                along = true @ images.T
                best = np.abs(along).argmax(1)
                draws.append(images[best] * np.sign(along[np.arange(len(true)), best])[:, None])
            draws = np.sort(np.array(draws), axis=0)
            # Of 59 exchangeable draws, the third from either end.
            inside = (true >= draws[2]) & (true <= draws[-3])
            errors, claims = ((draws.mean(0) - true) ** 2).mean(0), draws.var(0).mean(0)
            fifths = [float(inside[:, part].mean()) for part in order]
            found[kind][units] = {"coverage": float(inside.mean()), "by fifths": fifths,
                                  "errors over claims": [float(errors[part].mean() / claims[part].mean()) for part in order]}
            show = lambda values: " ".join(f"{x:.2f}" for x in values)
            own = found[kind][units]
            print(f"{kind:6} unit norm in units of the {units:5}: {own['coverage']:.3f}; quiet to loud {show(own['by fifths'])}; "
                  f"errors over claims {show(own['errors over claims'])}", flush=True)
    return found


PARTS = {"seeds": seeds, "rows": rows, "tails": tails, "coverage": coverage}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--keep", type=Path, help="a folder where the runs stay")
    args = parser.parse_args()
    path = Path("bench/causes.json")
    results = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        folder = args.keep or Path(folder)
        folder.mkdir(exist_ok=True)
        for part in args.only:
            print(f"# {part}", flush=True)
            results[part] = PARTS[part](args.data, folder)
            path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
