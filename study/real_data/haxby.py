"""One slice of Haxby's data: maps of two halves, synchrony of runs, decoding of categories and hidden cells of a run left out."""

import nibabel
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from . import figures, linear, ours
from .brain import clean, courses, head, nilearn_maps, on_grid, pca_maps
from .measures import correlation, measure, reproducibility

NEEDS = ["haxby/run-12_slice.nii.gz", "haxby/run-12_motion.txt", "haxby/attributes.txt"]
SWEEPS, LAG, TURNS = 300, 2, 200
LEFT_OUT = (5, 11)
PEERS = [("CanICA", 20), ("CanICA", 40), ("DictLearning", 20), ("DictLearning", 40), ("PCA", 20), ("PCA", 40)]
TITLE = "Haxby"
ABOUT = """One half slice (40 x 20, {sites} sites inside the head) of one person, 12 runs of 121 volumes; pictures of eight categories in blocks that start at the same times
in every run. Mean, straight line and six motion parameters are taken out of every site of every run, which is then divided by its standard deviation: the same rows for
everybody. Runs 6 and 12 are left out in turn (two of twelve, to save time; the numbers are means of both). Hidden cells are those of the run left out. Decoding is of the category of single volumes of that run (8 categories, chance 0.125; labels
{lag} volumes = 5 s late; 144 volumes, so that the standard error is about 0.04) by logistic regression on standardised weights, trained on the other runs; peers' weights are those of least squares on their maps. Reproducibility: maps of runs 1 to
6 and of runs 7 to 12 matched one to one, the mean absolute cosine, over all maps (of the larger set; those without a partner count 0) and over the ten best pairs.
Synchrony: the mean Pearson correlation of a component's time course between all pairs of runs, from fits to all runs; the largest, the mean of the ten largest, and how many
are above the 95% point of {turns} random turns of the runs' courses."""
SETTINGS = """issfa: `ISSFA(sweeps={sweeps}, random_state=1)`, sites outside of the head NaN, else the defaults. nilearn: `CanICA(n_components=k, mask=mask, random_state=0)` and
`DictLearning(n_components=k, mask=mask, random_state=0)`, else the defaults, which smooth (6 and 4 mm), detrend and standardise. scikit-learn: `PCA(k, random_state=0)`; "PCA, by
cross-validation" is probabilistic PCA with the number chosen on training rows in each turn."""
WHY = {
    "hidden": "probabilistic PCA with many components also follows what is neither smooth nor sparse",
    "decoding": "with so few volumes it is about one standard error (0.04); with weights by least squares on issfa's features a third of it goes",
    "reproducibility": "CanICA takes volumes that it smooths by 6 mm and keeps the peaks of its maps only, which are easier to find again than whole maps of volumes as they are; maps of PCA, which are whole too, "
                       "agree less than issfa's or about as much",
    "largest": "issfa divides the response to pictures between features that overlap (see its first two maps), and each of them has a part of it",
}


def load(data):
    """Cleaned runs at the sites of the mask, the mask and the affine."""
    images = [nibabel.load(path) for path in sorted((data / "haxby").glob("run-*_slice.nii.gz"))]
    raw = [np.moveaxis(image.get_fdata(), -1, 0) for image in images]
    inside = head(np.mean([rows.mean(0) for rows in raw], axis=0))
    tables = [np.loadtxt(path)[:, :6] for path in sorted((data / "haxby").glob("run-*_motion.txt"))]
    return [clean(rows[:, inside], table) for rows, table in zip(raw, tables)], inside, images[0].affine


def maps_of(name, k, runs, inside, affine):
    if name == "PCA":
        return pca_maps(np.concatenate(runs), k)
    return nilearn_maps(name, runs, inside, affine, k)


def synchrony(by_run, generator=None):
    """Mean correlation over pairs of runs for each component; courses are turned round by random amounts if a generator is given."""
    by_run = np.array(by_run)
    if generator is not None:
        by_run = np.array([np.roll(run, generator.integers(len(run)), axis=0) for run in by_run])
    z = by_run - by_run.mean(1, keepdims=True)
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    n = len(z)
    return ((z.sum(0) ** 2).sum(0) - n) / (n * (n - 1))


def decode(training, labels, test, test_labels):
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    used, wanted = labels > 0, test_labels > 0
    return float(classifier.fit(training[used], labels[used]).score(test[wanted], test_labels[wanted]))


def leave_one_out(runs, inside, affine, labels, sweeps, turns):
    """Hidden-cell R2, accuracy and number of components of every method for each run left out."""
    report = {}

    def note(name, **values):
        for what, value in values.items():
            report.setdefault(what, {}).setdefault(name, []).append(value)

    for turn in turns:
        training, test = [run for at, run in enumerate(runs) if at != turn], runs[turn]
        rows = np.concatenate(training)
        own = np.concatenate([label for at, label in enumerate(labels) if at != turn])
        hidden = linear.hide(test.shape, 41 + turn)
        model = ours.fit([on_grid(run, inside) for run in training], sweeps, 1)
        whole, holes = on_grid(test, inside).reshape(len(test), -1), np.zeros((len(test), inside.size), bool)
        holes[:, inside.ravel()] = hidden
        signal, both = (part[:, inside.ravel()] for part in ours.predict(model, whole, holes, inside.shape))
        weights = [np.concatenate([model.infer(on_grid(run, inside), center_new="own")[0] for run in part]) for part in (training, [test])]
        note("issfa", r2=linear.r2(both, test, hidden, 0.0), accuracy=decode(weights[0], own, weights[1], labels[turn]),
             count=model.n_components_)
        maps = ours.features(model)[:, inside.ravel()]
        note("issfa, weights by least squares", accuracy=decode(courses(maps, rows), own, courses(maps, test), labels[turn]))
        note("issfa, features alone", r2=linear.r2(signal, test, hidden, 0.0))
        for kind, k in PEERS:
            maps = maps_of(kind, k, training, inside, affine)
            peer = linear.Linear(maps, rows)
            note(f"{kind}, {k}", r2=linear.r2(linear.predictions(peer, test, hidden)[0], test, hidden, 0.0), count=len(maps),
                 accuracy=decode(courses(maps, rows), own, courses(maps, test), labels[turn]))
        k = linear.chosen_dimension(rows)
        maps = linear.principal(rows)[:k]
        peer = linear.Linear(maps, rows)
        note("PCA, by cross-validation", r2=linear.r2(linear.predictions(peer, test, hidden)[0], test, hidden, 0.0), count=k,
             accuracy=decode(courses(maps, rows), own, courses(maps, test), labels[turn]))
        note("all sites", accuracy=decode(rows, own, test, labels[turn]))
        print(f"  run {turn + 1}: " + ", ".join(f"{name} {values[-1]:.3f}" for name, values in report["r2"].items()), flush=True)
    return report


def run(data, quick):
    runs, inside, affine = load(data)
    labels = np.loadtxt(data / "haxby/attributes.txt", dtype=int)[:, 0].reshape(len(runs), -1)
    labels = [np.concatenate([np.zeros(LAG, int), own[:-LAG]]) for own in labels]
    sweeps = 20 if quick else SWEEPS
    report = leave_one_out(runs, inside, affine, labels, sweeps, LEFT_OUT[:1] if quick else LEFT_OUT)
    repeated, best_ten, most, ten, above, shown = {}, {}, {}, {}, {}, {}
    methods = [("issfa", None), *PEERS]
    for kind, k in methods:
        name = kind if k is None else f"{kind}, {k}"
        found = []
        for part in (runs[:6], runs[6:], runs):
            if k is None:
                model = ours.fit([on_grid(rows, inside) for rows in part], sweeps, 1)
                found.append((ours.features(model)[:, inside.ravel()], model.weights_))
            else:
                maps = maps_of(kind, k, part, inside, affine)
                found.append((maps, courses(maps, np.concatenate(part))))
        repeated[name], best_ten[name] = reproducibility(found[0][0], found[1][0])
        by_run = np.split(found[2][1], len(runs))
        values = synchrony(by_run)
        generator = np.random.default_rng(5)
        null = np.quantile([synchrony(by_run, generator) for _ in range(TURNS)], 0.95, axis=0)
        order = np.argsort(-values)
        most[name], ten[name], above[name] = values[order[0]], values[order[:10]].mean(), int((values > null).sum())
        top = order[:4]
        mean_course = np.mean(by_run, axis=0)[:, order[0]]
        task = np.mean([own > 0 for own in labels], axis=0)
        sign = np.sign(correlation(mean_course, task)) or 1
        shown[name] = (found[2][0][top], values[top], sign * mean_course / mean_course.std())
    figures.synchronous("haxby", shown, inside, task)
    return {"sweeps": sweeps, "sites": int(inside.sum()), "lag": LAG, "turns": TURNS, "bars": ["all sites"], "measures": [
        measure("R2 of hidden cells", "higher", {name: np.mean(values) for name, values in report["r2"].items()}, 3, 0.003),
        measure("decoding", "higher", {name: np.mean(values) for name, values in report["accuracy"].items()}, 3, 0.01),
        measure("reproducibility, all maps", "higher", repeated, 2, 0.01),
        measure("reproducibility, ten best", "higher", best_ten, 2, 0.01),
        measure("largest synchrony", "higher", most, 2, 0.01), measure("ten largest synchronies", "higher", ten, 2, 0.01),
        measure("synchronous components", None, above, 0),
        measure("components", None, {name: np.mean(values) for name, values in report["count"].items()}, 0)]}


def figure_words(_):
    return [("haxby", "The most synchronous maps of each method, and the time course of the first")]
