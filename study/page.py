"""Writes docs/study.md from results.json: no figure on that page is typed by hand."""

from pathlib import Path

import figures
import numpy as np
from trial import pca_error

PAGE = Path("docs/study.md")

INTRO = """# The study: iSSFA against scikit-learn

`study/run` makes this page, its figures and `study/results.json`: it simulates, fits iSSFA and isFA (the model without structure of Knowles
and Ghahramani) with `issfa`, fits PCA and FastICA with scikit-learn on the same arrays, and measures all of them in the same way.
Where a table says a ± b, a is the mean and b the standard deviation over the simulation seeds.

Held-out error: mean over cells of (reconstruction - noise-free truth)² on rows that no method saw. E_r: sum over the true
features of the least squared distance to a feature found, on unit norm and with either sign (0 is perfect, 2 a feature at a
right angle). A feature is found where its cosine with the truth is at least 0.7.
"""

WHY = """### Where these figures differ from the paper's, and why

- **PCA over iSSFA** is larger here. PCA's error is a property of the data and its dimension, and hardly leaves room; so the difference is iSSFA's. The chain
  reaches all features (see [what each move is worth](#what-each-move-is-worth)), reconstructions are averaged over kept draws, and held-out rows are
  inferred with the conditional means of the features and not with single draws of them (docs/model.md, M12), which lowers the
  held-out error by much.
- **E_r.** The paper compares the features of the final sample. A draw from a posterior is farther from the truth than the posterior's mean
  (about twice as far in squared distance), and our ratio for final samples is near the paper's. The posterior mean, which is what `features.npy`
  holds, is better by much. Not so isFA's: draws of most of its features are too unlike each other to be taken for the same feature, so that few persist, and the
  others count as missed. FastICA comes out ahead of isFA either way, as in the paper.
- **Minka's dimension** depends on which way the data are read where there are fewer rows than sites, and we do not know how the paper did. Here the sites are
  the samples then, as the method wants more samples than dimensions. The evidence is flat about its maximum, and so is PCA's held-out error.
- **Kurtosis of FastICA's weights.** FastICA can look for independent weights (the sources are the columns of W) or for independent images (the
  sources are the features). The true weights are sparse, so the first way finds features; the second finds none, and its weights have kurtoses near
  the paper's 1.1, which suggests that the paper's figure was taken that way. For E_r we use the first, the better one; the second table has both.
- **Kurtosis of iSSFA's weights** lies between the truth's and the paper's: extra features that few rows use raise it.
- We do not know the paper's hyperparameters, the length of its chains or FastICA's number of components. Ours are in the commands below; FastICA(50) and
  PCA(50) are told the true number.
"""

GRIDS = {
    "noise": ("Noise", "With little noise every method sees the features, with much none does: the advantage is largest in between. With the most noise few features persist: "
              "draws of the others are too unlike each other to be taken for the same feature. Of isFA none persist with the two largest variances, which makes its E_r 20."),
    "rows": ("Rows", "More rows help everyone; structure is worth most where rows are few."),
    "density": ("Density", "Sparsity is what tells features from their mixtures. Where most rows use a feature (0.8) all chains find the features, nearly as well as the "
                "true weights would give them and far ahead of FastICA and of isFA. So few sweeps are not many there: chains with other seeds may still hold mixtures."),
    "theta": ("Smoothness", "From features that are nearly white, where structure cannot help (and FastICA is a little ahead, since not all ten features persist), to features that vary over the whole image."),
}


def spread(values, digits=2):
    values = np.array(values, dtype=float)
    if len(values) < 2:
        return f"{values.mean():.{digits}f}"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def picture(name, words):
    file = next(figures.OUT.glob(f"{name}.*"))
    return f"![{words}](images/study/{file.name})\n"


def made_with(part):
    versions = part["versions"]
    words = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "cores")
    return f"*Made with {words}; {versions['cores']} cores.*\n"


def paper(part):
    records = part["records"]
    minka = [record["issfa"]["minka_dimension"] for record in records]

    def of(*path, over=None):
        def value(record, path):
            for name in path:
                record = record[name]
            return record
        values = [value(record, path) for record in records]
        return values if over is None else [a / b for a, b in zip(values, over)]

    held = of("issfa", "heldout_error")
    ratio = lambda dimension: [pca_error(record, dimension) / ours for record, ours in zip(records, held)]  # noqa: E731
    ica, ica_minka = of("fastica_weights", "recovery_error"), of("fastica_minka", "recovery_error")
    mean, final = "feature_recovery_error", "final_sample_recovery_error"
    ratios = lambda peer, name, kind: spread([a / b for a, b in zip(peer, of(name, kind))])  # noqa: E731
    quantiles = lambda name: " to ".join(f"{np.mean([q[i] for q in of(name, 'n_features_quantiles')]):.0f}" for i in (0, 2))  # noqa: E731
    measures = [
        ["held-out error, PCA(Minka) / iSSFA", "1.67", spread(ratio("minka"))],
        ["held-out error, PCA(50) / iSSFA", "", spread(ratio(50))],
        ["held-out error, PCA at its best dimension / iSSFA", "", spread(ratio("best"))],
        ["held-out error, isFA / iSSFA", "", spread(of("isfa", "heldout_error", over=held))],
        ["E_r, FastICA(50) / iSSFA, final sample", "1.41", ratios(ica, "issfa", final)],
        ["E_r, FastICA(50) / iSSFA, posterior mean", "", ratios(ica, "issfa", mean)],
        ["E_r, FastICA(50) / isFA, final sample", "0.87", ratios(ica, "isfa", final)],
        ["E_r, FastICA(50) / isFA, posterior mean", "", ratios(ica, "isfa", mean)],
        ["E_r, FastICA(Minka) / iSSFA, final sample", "", ratios(ica_minka, "issfa", final)],
        ["E_r, FastICA(Minka) / iSSFA, posterior mean", "", ratios(ica_minka, "issfa", mean)],
        ["E_r, iSSFA's posterior mean / knowing the true weights", "",
         spread(of("issfa", mean, over=of("issfa", "oracle_feature_recovery_error")), 3)],
        ["excess kurtosis of the weights, truth", "", spread(of("issfa", "truth_weight_kurtosis"), 1)],
        ["excess kurtosis of the weights, iSSFA", "73.8", spread(of("issfa", "weight_kurtosis"), 1)],
        ["excess kurtosis of the weights, isFA", "", spread(of("isfa", "weight_kurtosis"), 1)],
        ["excess kurtosis of the weights, FastICA(50), independent weights", "", spread(of("fastica_weights", "weight_kurtosis"), 1)],
        ["excess kurtosis of the weights, FastICA(50), independent images", "1.1", spread(of("fastica_images", "weight_kurtosis"), 1)],
        ["dimension by Minka's evidence", "33", spread(minka, 1)],
        ["K of iSSFA, mean; 5% to 95% (truth 50)", "", f"{spread(of('issfa', 'n_features_mean'), 1)}; {quantiles('issfa')}"],
        ["persistent features of iSSFA", "", spread(of("issfa", "n_persistent"), 1)],
        ["K of isFA, mean; 5% to 95%", "", f"{spread(of('isfa', 'n_features_mean'), 1)}; {quantiles('isfa')}"],
        ["persistent features of isFA", "", spread(of("isfa", "n_persistent"), 1)],
    ]
    methods = [[label, spread(of(name, "heldout_error"), 5), spread(of(name, mean), 1), spread(of(name, final), 1), spread(of(name, "n_found"), 1),
                f"{records[0][name]['sweeps']} sweeps", spread(of(name, "seconds"), 1)] for name, label in (("issfa", "iSSFA"), ("isfa", "isFA"))]
    methods.append(["PCA(50)", spread([pca_error(record, 50) for record in records], 5), spread(of("pca", "recovery_error"), 1), "", "", "",
                    spread(of("pca", "seconds"), 1)])
    methods.append(["PCA(Minka)", spread([pca_error(record, "minka") for record in records], 5), "", "", "", "", ""])
    for name, label in (("fastica_weights", "FastICA(50), independent weights"), ("fastica_images", "FastICA(50), independent images"),
                        ("fastica_minka", "FastICA(Minka), independent weights")):
        stopped = sum(not record[name]["converged"] for record in records)
        count = f"{np.mean(of(name, 'iterations')):.0f} iterations" + (f" ({stopped} of {len(records)} did not converge)" if stopped else "")
        error = spread(of(name, "heldout_error"), 5) if "heldout_error" in records[0][name] else ""
        methods.append([label, error, spread(of(name, "recovery_error"), 1), "", spread(of(name, "n_found"), 1), count,
                        spread(of(name, "seconds"), 1)])
    methods.append(["true weights, noise and theta known", "", spread(of("issfa", "oracle_feature_recovery_error"), 1), "", "", "", ""])
    figures.traces(part)
    seeds = ", ".join(str(record["seed"]) for record in records)
    return "\n".join([
        "## The paper's comparison\n",
        f"3000 images of 100 x 100 made of 50 features, each used by 5% of the images, noise variance 1; seeds {seeds}.\n",
        table(["measure", "paper", f"here, {len(records)} seeds"], measures),
        table(["method", "held-out error", "E_r, posterior mean", "E_r, final sample", "found of 50", "work", "seconds, whole fit"], methods),
        "Seconds are those of the whole command for iSSFA and isFA (reading, sampling, summaries, figures) and of `fit` for scikit-learn, all on the same "
        "machine in the same run. PCA and FastICA answer once; iSSFA also gives uncertainties and the number of features.\n",
        WHY, picture("reconstructions", "Held-out images and their reconstructions"),
        "PCA's reconstructions keep noise that looks like signal, isFA's keep the grain of the noise in each feature, iSSFA's show the shapes of the truth, somewhat smoothed.\n",
        picture("features", "True features and their matches"),
        picture("traces", "Traces of held-out error and number of features"),
        picture("dimensionality", "Eigenvalues and evidence"),
        "`issfa summary` and `figures/dimensionality.svg` of every run give this dimension and curve for the user's own data.\n",
        picture("weights", "Histograms of weights"), made_with(part)])


def grids(part):
    parts = ["## When the advantage grows, and when it goes\n",
             f"A small study ({part['base']['rows']} rows on {part['grid']}, {part['features']} features, each used by "
             f"{100 * part['base']['density']:.0f}% of the rows, noise variance {part['base']['noise']}, theta {part['base']['theta']}), varied along one "
             f"axis at a time; {len(part['cells'][0]['records'])} seeds, bands of one standard deviation.\n"]
    for axis, (title, words) in GRIDS.items():
        figures.grid(part, axis)
        cells = figures.along(part, axis)
        rows = []
        for cell in cells:
            records = cell["records"]
            ours = np.array([record["issfa"]["heldout_error"] for record in records])
            over = lambda of: spread(np.array([of(record) for record in records]) / ours)  # noqa: E731, B023
            error = lambda name: spread([record[name]["feature_recovery_error"] for record in records])  # noqa: E731, B023
            rows.append([cell["values"][axis], over(lambda r: r["isfa"]["heldout_error"]), over(lambda r: pca_error(r, "minka")),
                         over(lambda r: pca_error(r, part["features"])), error("issfa"), error("isfa"),
                         spread([record["fastica_weights"]["recovery_error"] for record in records]),
                         spread([record["issfa"]["oracle_feature_recovery_error"] for record in records]),
                         spread([record["issfa"]["n_persistent"] for record in records], 1)])
        name = "ridge, roughness" if axis == "theta" else figures.AXES[axis]
        parts += [f"### {title}\n", words + "\n", picture(f"grid_{axis}", f"Held-out error and E_r along {name}"),
                  table([name, "isFA / iSSFA", "PCA(Minka) / iSSFA", f"PCA({part['features']}) / iSSFA", "E_r iSSFA", "E_r isFA", "E_r FastICA",
                         "E_r, true weights known", "persistent features"], rows)]
    return "\n".join(parts + [made_with(part)])


def structures(part):
    rows = []
    keys = []
    for record in part["records"]:
        key = (record["structure"], record["curve"], record["theta"])
        keys += [] if key in keys else [key]
    for key in keys:
        records = [record for record in part["records"] if (record["structure"], record["curve"], record["theta"]) == key]
        for fit in records[0]["fits"]:
            of = lambda name: [record[fit][name] for record in records]  # noqa: E731, B023
            right = fit == records[0]["fits"][0]
            rows.append([f"`{key[0]}`, `{key[1]}`, {key[2]}" if right else "", f"`{fit}`" + (" (the truth)" if right else ""),
                         spread(of("heldout_error"), 4), spread(of("feature_recovery_error")), spread(of("n_found"), 1), spread(of("n_persistent"), 1),
                         spread(of("heldout_coverage"), 3)])
        pca = [min(record["pca"]["heldout_errors"]) for record in records]
        rows.append(["", "PCA at its best dimension", spread(pca, 4), spread([record["pca"]["recovery_error"] for record in records]), "", "", ""])
        rows.append(["", "FastICA, true number", spread([record["fastica_weights"]["heldout_error"] for record in records], 4),
                     spread([record["fastica_weights"]["recovery_error"] for record in records]), "", "", ""])
    return "\n".join([
        "## When the structure is wrong\n",
        "Simulated under one structure, curve and theta, fitted under that and under others. Theta is learned, so the wrong structure costs little where "
        "it can imitate the right one: `path` fitted to white features learns a roughness near 0, and a cycle or a wavelet is a fair stand-in "
        "for a path.\n",
        table(["truth: structure, curve, theta", "fitted with", "held-out error", "E_r", "found of 10", "persistent", "coverage, held-out rows"], rows), made_with(part)])


def coverage(results):
    rows = []

    def add(label, records):
        of = lambda name: spread([record["issfa"][name] for record in records if record["issfa"][name] is not None], 3)  # noqa: E731
        rows.append([label, of("feature_coverage"), of("training_coverage"), of("heldout_coverage")])

    add("the paper's simulation", results["paper"]["records"])
    for axis in GRIDS:
        for cell in figures.along(results["grids"], axis):
            if cell["values"] == results["grids"]["base"]:
                if axis == "noise":
                    add("the small study", cell["records"])
                continue
            name = "theta" if axis == "theta" else figures.AXES[axis]
            add(f"small, {name} {cell['values'][axis]}", cell["records"])
    return "\n".join([
        "## Are the intervals honest?\n",
        "The share of sites at which the central 90% interval of the posterior holds the truth: of found features (on unit norm), of noise-free training "
        "rows, and of noise-free held-out rows. Intervals come from 19 or 39 kept draws, by ranks: if the truth were one more draw, exactly 90% would "
        "hold it ([crates/issfa/src/evaluate/coverage.rs](../crates/issfa/src/evaluate/coverage.rs)). `issfa evaluate --truth` gives these figures.\n",
        table(["study", "features", "training rows", "held-out rows"], rows),
        "Reconstructions are near 90% throughout. Features are too, but for the smoothest, which are few numbers each and so alike that some are mixed or missed. "
        "Features that are found count: with much noise or few rows not all are. The simulation draws "
        "weights with standard deviations of 7 to 10 around 1 and normalises the features, neither of which is the prior, and kept draws of one "
        "chain are not independent; neither seems to matter much.\n"])


def mixing(part):
    figures.mixing(part)
    sweeps = part["sweeps"]
    n = len(next(iter(part["variants"].values())))

    def when(values):
        reached = [value for value in values if value is not None]
        if not reached:
            return f"never in {sweeps}"
        return f"{np.mean(reached):.0f} ({min(reached)} to {max(reached)})" + ("" if len(reached) == len(values) else f"; {len(values) - len(reached)} of {len(values)} never")

    rows = [[name, when([run["sweeps_to_most"] for run in runs]), when([run["sweeps_to_all"] for run in runs]),
             spread([run["n_found"][-1] for run in runs], 1)]
            for name, runs in part["variants"].items()]
    return "\n".join([
        "## What each move is worth\n",
        f"The paper's simulation, {n} seeds, from k-means with 15 clusters, all modes from the first sweep, each move switched off in turn, without the help that "
        "burn-in gets in ordinary fits (but in the last row). The sweep at which 45 and all 50 true features are first found, mean and range:\n",
        table(["sweep", "45 found", "50 found", f"found at sweep {sweeps}"], rows),
        "None of these moves is needed any more to find the features: rows that are offered features, and features that few rows use that gain and lose rows (M5, M20), "
        "find them as soon whichever is switched off. They hold several times too many features on the way; burn-in leaves offers out while it looks for a start, which takes more sweeps of this kind. What makes an ordinary "
        "fit fast is its start at the smoothest modes ([performance](performance.md)).\n",
        "`features_one_by_one` in place of `features`, `birth_rounds = 1`, and `kernels` without `rescale` are settings of every fit (docs/formats.md).\n",
        picture("mixing", "True features found, sweep by sweep"), made_with(part)])


def commands(results):
    paper, small = results["paper"], results["grids"]
    return "\n".join([
        "## The commands\n",
        "    study/run                  # all of this page", "    study/run --quick          # a minute: the orderings, asserted; part of ./test\n",
        "They call, for the paper's comparison:\n",
        f"    issfa simulate --seed S --out sim --grid 100x100 {' '.join(paper['simulation'])}",
        f"    issfa fit sim/observations.npy --noise white --center none --grid 100x100 --seed S --out run {' '.join(paper['fit'])} [--preset isfa]",
        "    issfa report run", "    issfa evaluate run --truth sim --json", "    issfa summary run --json\n",
        "and for the small studies, with one value changed at a time:\n",
        f"    issfa simulate --preset small --grid {small['grid']} --features {small['features']} --heldout-rows 200 "
        + " ".join(f"--{name} {value}" for name, value in small["base"].items()) + " --seed S --out sim",
        f"    issfa fit sim/observations.npy --noise white --center none --grid {small['grid']} --seed S --out run {' '.join(small['fit'])}\n",
        "scikit-learn: `PCA(50, random_state=S)`, `FastICA(n, whiten=\"unit-variance\", max_iter=1000, random_state=S)`.\n"])


def write(results):
    missing = [name for name in ("paper", "grids", "structures", "mixing") if name not in results]
    if missing:
        print(f"docs/study.md needs the parts {', '.join(missing)} too: study/run --only {' '.join(missing)}")
        return
    text = [INTRO, paper(results["paper"]), grids(results["grids"]), structures(results["structures"]), coverage(results), mixing(results["mixing"]),
            commands(results)]
    PAGE.write_text("\n".join(text))
    print(f"written: {PAGE}")
