"""Handwritten digits: hidden cells of later writers' digits, and a linear classifier on the weights."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF, PCA, FastICA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from . import figures, linear, ours
from .measures import measure

NEEDS = ["digits/digits_img1797_h8_w8.npy"]
SWEEPS = 500
CANDIDATES = [10, 20, 30, 40, 50]
TITLE = "Digits"
ABOUT = """1797 handwritten digits of 8 x 8. The first 1437 (80%) are for fitting, the last 360, of other writers, for testing. A fifth of
their cells is hidden and predicted. The classifier is logistic regression (scikit-learn's defaults, 5000 iterations at most)
on standardised weights, trained on the 1437. PCA, FastICA and NMF are given as many components as predict the hidden cells of
training rows best, and as many as issfa found with seed 1."""
SETTINGS = """issfa: `ISSFA(sweeps={sweeps}, random_state=1 and 2)`, else the defaults. scikit-learn: `PCA(k, random_state=0)`; `FastICA(k, whiten="unit-variance", max_iter=2000, random_state=0)`; `NMF(k, init="nndsvda", max_iter=500, random_state=0)`. The peers get the
pixels that vary: FastICA of scikit-learn loses components where the first pixel is constant, as it is here (the signs of components are made to agree there by multiplication with the sign of its value, which is 0)."""
WHY = {
    "hidden": "digits are strokes without noise; many components that need not stand out of any noise predict them better than fewer that must",
    "accuracy": "it is not the number of components, since PCA with as many does better; partly it is the weights, which are sparse and shrunk (see the row with least squares on the same features), and "
                "partly the features, which are found in units of a noise that, measured on digits that follow each other, holds most of what tells digits apart",
}


def accuracy(training, labels, test, test_labels):
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    return float(classifier.fit(training, labels).score(test, test_labels))


def peer(kind, k):
    return {"PCA": lambda: PCA(k, random_state=0),
            "FastICA": lambda: FastICA(k, whiten="unit-variance", max_iter=2000, random_state=0),
            "NMF": lambda: NMF(k, init="nndsvda", max_iter=500, random_state=0)}[kind]()


def components(fit):
    return fit.mixing_.T if isinstance(fit, FastICA) else fit.components_


def run(data, quick):
    images = np.load(data / NEEDS[0]).astype(float).reshape(-1, 64)
    bunch = load_digits()
    assert np.array_equal(bunch.data, images), "the digits are not those of scikit-learn, whose labels are used"
    cut, labels = 1437, bunch.target
    training, test = images[:cut], images[cut:]
    hidden = linear.hide(test.shape, 11)
    mean = training.mean(0)
    sweeps = 20 if quick else SWEEPS
    r2, right, count, shown = {}, {}, {}, {}
    for seed in ours.SEEDS:
        model = ours.fit(training.reshape(-1, 8, 8), sweeps, seed)
        signal, both = ours.predict(model, test, hidden, (8, 8))
        weights = [model.infer(rows.reshape(-1, 8, 8))[0] for rows in (training, test)]
        r2.setdefault("issfa", []).append(linear.r2(both, test, hidden, mean))
        r2.setdefault("issfa, features alone", []).append(linear.r2(signal, test, hidden, mean))
        right.setdefault("issfa", []).append(accuracy(weights[0], labels[:cut], weights[1], labels[cut:]))
        plain = [np.linalg.lstsq(ours.features(model).T, (rows - mean).T, rcond=None)[0].T for rows in (training, test)]
        right.setdefault("issfa, weights by least squares", []).append(accuracy(plain[0], labels[:cut], plain[1], labels[cut:]))
        count.setdefault("issfa", []).append(model.n_components_)
        shown.setdefault("issfa", ours.features(model))
    best = linear.choose(training, linear.probabilistic, CANDIDATES)
    best_nmf = linear.choose(training, lambda rows, ks: [linear.Linear(peer("NMF", k).fit(rows).components_, rows) for k in ks], CANDIDATES)
    for kind in ("PCA", "FastICA", "NMF"):
        for k, label in ((best_nmf if kind == "NMF" else best, "by cross-validation"), (count["issfa"][0], "as many as issfa")):
            name = f"{kind}, {label}"
            varying = training.std(0) > 0
            fit = peer(kind, k).fit(training[:, varying])
            features = np.zeros((k, 64))
            features[:, varying] = components(fit)
            r2[name] = linear.r2(linear.predictions(linear.Linear(features, training), test, hidden)[0], test, hidden, mean)
            right[name] = accuracy(fit.transform(training[:, varying]), labels[:cut], fit.transform(test[:, varying]), labels[cut:])
            count[name] = k
            shown[kind] = features
    right["all 64 pixels"] = accuracy(training, labels[:cut], test, labels[cut:])
    figures.images("digits", {name: rows for name, rows in shown.items()}, (8, 8),
                   "Digits: the first twelve features of each method (with as many components as issfa found)", 12)
    return {"sweeps": sweeps, "bars": ["all 64 pixels"], "measures": [
        measure("R2 of hidden cells", "higher", r2, tie=0.002),
        measure("accuracy of the classifier", "higher", right, tie=0.005),
        measure("components", None, count, 0)]}


def figure_words(_):
    return [("digits", "Features of digits by four methods")]
