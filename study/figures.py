"""The figures of docs/study.md, into docs/images/study."""

import csv
from pathlib import Path

import program
import matplotlib
import numpy as np
import peers
from sklearn.decomposition import PCA
from trial import pca_error

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

OUT = Path("docs/images/study")
NAMES = {"issfa": "iSSFA", "isfa": "isFA", "pca_minka": "PCA (Minka)", "pca_true": "PCA (true K)", "pca_best": "PCA (best)",
         "fastica": "FastICA", "oracle": "true weights known", "truth": "truth"}
COLOURS = {"issfa": "#0072b2", "isfa": "#d55e00", "pca_minka": "#009e73", "pca_true": "#56b4e9", "fastica": "#cc79a7", "oracle": "#555555",
           "truth": "#000000"}
AXES = {"noise": "noise variance", "rows": "rows T", "density": "share of rows that use a feature", "theta": "roughness / ridge"}

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9,
                     "legend.frameon": False, "figure.constrained_layout.use": True})


def save(figure, name, ending="png"):
    """Photographs of noise are small as .jpg, lines as .png."""
    OUT.mkdir(parents=True, exist_ok=True)
    options = {"pil_kwargs": {"quality": 85}} if ending == "jpg" else {"metadata": {"Software": None}}
    figure.savefig(OUT / f"{name}.{ending}", dpi=130, **options)
    plt.close(figure)


def gallery(rows, name, title, shape, captions=None, shared=True):
    """Rows of images: a list of (label, images); `captions` holds a text for each image of each row but the first.

    One colour scale a column (`shared`), so that rows compare; else one an image.
    """
    n = len(rows[0][1])
    figure, places = plt.subplots(len(rows), n, figsize=(1.02 * n + 0.6, 1.13 * len(rows) + 0.5), squeeze=False)
    limits = np.array([[np.abs(image).max() for image in images] for _, images in rows])
    for at, (label, images) in enumerate(rows):
        for column, image in enumerate(images):
            place = places[at][column]
            limit = limits[-len(rows) + 1:, column].max() if shared else limits[at, column]
            if shared and label == "observed":
                limit = limits[at, column]
            place.imshow(image.reshape(shape), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            place.set(xticks=[], yticks=[])
            for spine in place.spines.values():
                spine.set_visible(False)
            if captions and at > 0:
                place.set_xlabel(captions[at - 1][column], labelpad=1, fontsize=7)
            if column == 0:
                place.set_ylabel(label)
    figure.suptitle(title, fontsize=10)
    save(figure, name, "jpg")


def paper(part, folder, seed):
    """The paper's own figures, of the first seed, whose files are still there."""
    sim, record = folder / "sim", part["records"][0]
    shape = np.load(sim / "truth_features.npy").shape[1:]
    minka = record["issfa"]["minka_dimension"]
    truth = peers.load(sim, "truth_features")
    pca = PCA(len(truth), random_state=seed).fit(peers.load(sim, "observations"))
    found = {name: peers.load(folder / name, "features") for name in ("issfa", "isfa")}
    _, ica, ica_weights = peers.fastica(sim, seed, len(truth), "weights")
    reconstructions(folder, sim, shape, pca, minka)
    features(truth, [(NAMES["issfa"], found["issfa"]), (f"FastICA({len(truth)})", ica), (f"PCA({len(truth)})", pca.components_),
                     (NAMES["isfa"], found["isfa"])], shape)
    dimensionality(folder / "issfa/eigenvalues.csv", minka, len(truth))
    weights = {"truth": (peers.load(sim, "truth_weights"), record["issfa"]["truth_weight_kurtosis"]),
               "issfa": (peers.load(folder / "issfa", "weights"), record["issfa"]["weight_kurtosis"]),
               "fastica": (ica_weights, record["fastica_weights"]["weight_kurtosis"])}
    histograms(weights)


def reconstructions(folder, sim, shape, pca, minka, n=10):
    """Ten held-out rows with a signal, taken in order."""
    noisy, clean = peers.load(sim, "heldout"), peers.load(sim, "truth_heldout")
    chosen = np.flatnonzero(np.any(clean != 0, axis=1))[:n]
    rows = [("observed", noisy[chosen]), ("latent", clean[chosen])]
    components = pca.components_[:minka]
    rows.append((f"PCA({minka})", pca.mean_ + (noisy[chosen] - pca.mean_) @ components.T @ components))
    for name in ("issfa", "isfa"):
        out = folder / f"{name}-heldout"
        program.call("transform", folder / name, sim / "heldout.npy", "--out", out, "--overwrite", "--quiet")
        rows.append((NAMES[name], peers.load(out, "reconstruction")[chosen]))
    errors = [[f"{np.mean((image - clean[at]) ** 2):.4f}" for image, at in zip(images, chosen)] for _, images in rows[1:]]
    errors[0] = [""] * len(chosen)
    gallery(rows, "reconstructions", "Ten held-out images, with the mean squared error of their reconstructions", shape, errors)


def features(truth, methods, shape, n=10):
    rows, captions = [("true", truth[:n])], []
    for label, images in methods:
        cosines = peers.cosines(truth[:n], images)
        best = np.abs(cosines).argmax(axis=1)
        along = cosines[np.arange(n), best]
        rows.append((label, np.sign(along)[:, None] * peers.unit(images)[best]))
        captions.append([f"cos {abs(value):.2f}" for value in along])
    gallery(rows, "features", "The first ten true features and the best match of each method", shape, captions, shared=False)


def dimensionality(path, minka, n_true, shown=150):
    with open(path) as file:
        table = list(csv.DictReader(file))[:shown]
    component = [int(row["component"]) for row in table]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True)
    top.plot(component, [float(row["eigenvalue"]) for row in table], color=COLOURS["issfa"], marker=".", markersize=3)
    top.set(ylabel="eigenvalue", title="Eigenvalues of the data and Minka's evidence for the number of principal components")
    evidence = np.array([float(row["ln_evidence"]) for row in table])
    bottom.plot(component, evidence - evidence.max(), color=COLOURS["issfa"], marker=".", markersize=3)
    bottom.set(ylabel="ln evidence, less its largest", xlabel="components")
    for place in (top, bottom):
        place.axvline(minka, color=COLOURS["pca_minka"], linestyle="--", label=f"evidence is largest: {minka}")
        place.axvline(n_true, color="black", linestyle=":", label=f"true features: {n_true}")
    top.legend()
    save(figure, "dimensionality")


def histograms(weights):
    figure, places = plt.subplots(1, len(weights), figsize=(9, 2.7), sharey=True)
    widest = max(np.abs(values).max() for values, _ in weights.values())
    for place, (name, (values, kurtosis)) in zip(places, weights.items()):
        values = values.ravel()
        place.hist(values, bins=np.linspace(-widest, widest, 80), weights=np.full(values.size, 1 / values.size), color=COLOURS[name])
        place.set(title=f"{NAMES[name]}: excess kurtosis {kurtosis:.1f}", xlabel="weight", yscale="log")
    places[0].set_ylabel("share of weights")
    save(figure, "weights")


def traces(part):
    """Held-out error and K sweep by sweep under both priors, with the peers' errors as lines."""
    record = part["records"][0]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 4.8), sharex=True)
    for name in ("issfa", "isfa"):
        trace = part["traces"][name]
        top.plot(trace["sweep"], trace["heldout_error"], color=COLOURS[name], label=f"{NAMES[name]}, each sweep's state")
        bottom.plot(trace["sweep"], trace["n_features"], color=COLOURS[name], label=NAMES[name])
        top.axhline(record[name]["heldout_error"], color=COLOURS[name], linestyle="--", label=f"{NAMES[name]}, mean over kept draws")
    minka = record["issfa"]["minka_dimension"]
    top.axhline(pca_error(record, "minka"), color=COLOURS["pca_minka"], linestyle="--", label=f"PCA({minka})")
    bottom.axhline(record["issfa"]["n_true"], color="black", linestyle=":", label="truth")
    burn_in = int(part["fit"][part["fit"].index("--burn-in") + 1])
    for place in (top, bottom):
        place.axvline(burn_in, color="#aaaaaa", linewidth=0.8)
        place.legend(ncols=2, fontsize=7)
    lowest, highest = top.get_ylim()
    top.set(ylabel="held-out error", yscale="log", ylim=(lowest, 2 * highest), title="Held-out error and number of features (the grey line ends burn-in)")
    bottom.set(ylabel="features K", xlabel="sweep")
    save(figure, "traces")


def position(axis, value):
    """Where a grid's value stands on its axis: theta is shown as roughness over ridge."""
    if axis != "theta":
        return float(value)
    ridge, roughness = map(float, value.split(","))
    return roughness / ridge


def along(part, axis):
    """The cells of one axis, all else as in the base, in order."""
    others = {key: value for key, value in part["base"].items() if key != axis}
    cells = [cell for cell in part["cells"] if all(cell["values"][key] == value for key, value in others.items())]
    return sorted(cells, key=lambda cell: position(axis, cell["values"][axis]))


def grid(part, axis):
    cells, n_true = along(part, axis), part["features"]
    x = [position(axis, cell["values"][axis]) for cell in cells]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.1))

    def line(place, name, of):
        values = np.array([[of(record) for record in cell["records"]] for cell in cells])
        mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1)
        place.plot(x, mean, color=COLOURS[name], marker="o", markersize=3, label=NAMES[name])
        place.fill_between(x, mean - spread, mean + spread, color=COLOURS[name], alpha=0.15, linewidth=0)

    ours = lambda record: record["issfa"]["heldout_error"]  # noqa: E731
    line(left, "isfa", lambda record: record["isfa"]["heldout_error"] / ours(record))
    line(left, "pca_minka", lambda record: pca_error(record, "minka") / ours(record))
    line(left, "pca_true", lambda record: pca_error(record, n_true) / ours(record))
    left.axhline(1, color="black", linewidth=0.8)
    left.set(xscale="log", yscale="log", xlabel=AXES[axis], ylabel="held-out error over iSSFA's", title="above 1: iSSFA is better")
    ticks = [tick for tick in (0.5, 1, 2, 3, 5, 10, 20, 50, 100) if left.get_ylim()[0] <= tick <= left.get_ylim()[1]]
    left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    for name, of in (("issfa", lambda r: r["issfa"]["feature_recovery_error"]), ("isfa", lambda r: r["isfa"]["feature_recovery_error"]),
                     ("fastica", lambda r: r["fastica_weights"]["recovery_error"]),
                     ("oracle", lambda r: r["issfa"]["oracle_feature_recovery_error"])):
        line(right, name, lambda record, of=of: of(record) / n_true)
    right.set(xscale="log", xlabel=AXES[axis], ylabel="E_r / number of features", ylim=(0, 2), title="0: exact, 2: nothing found")
    for place in (left, right):
        place.set_xticks(x, [f"{value:g}" for value in x])
        place.minorticks_off()
        place.legend(fontsize=7)
    save(figure, f"grid_{axis}")


def mixing(part):
    figure, place = plt.subplots(figsize=(7, 3.4))
    for number, (name, runs) in enumerate(part["variants"].items()):
        for run in runs:
            found = run["n_found"]
            label = name if run is runs[0] else None
            place.plot(range(1, len(found) + 1), found, color=f"C{number}", linewidth=1, label=label)
    place.axhline(part["n_true"], color="black", linestyle=":")
    place.set(xscale="log", xlabel="sweep", ylabel="true features found",
              title=f"A line a seed; found: some feature of the state has a cosine of at least {part['bar']}")
    place.legend(fontsize=8, loc="lower right")
    save(figure, "mixing")
