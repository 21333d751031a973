"""What methods are measured by: cosines, matches, and the record of a measure."""

import numpy as np
from peers import cosines, unit  # noqa: F401
from scipy.optimize import linear_sum_assignment


def measure(name, better, values, digits=3, tie=0.0):
    """A column of a table: `better` is "higher", "lower", or a number that should be met; `values` a list for each method.

    `tie` is the difference up to which methods count as equal.
    """
    listed = {method: [float(x) for x in np.atleast_1d(value)] for method, value in values.items()}
    return {"name": name, "better": better, "values": listed, "digits": digits, "tie": tie}


def best_cosines(truth, features):
    """For every true feature the largest absolute cosine, and which feature has it."""
    if len(features) == 0:
        return np.zeros(len(truth)), np.zeros(len(truth), int)
    alike = np.abs(cosines(truth, features))
    return alike.max(axis=1), alike.argmax(axis=1)


def pairs(one, two):
    """Absolute cosines of the features of two fits that are matched one to one, so that their sum is largest."""
    if len(one) == 0 or len(two) == 0:
        return np.zeros(0)
    alike = np.abs(cosines(one, two))
    rows, columns = linear_sum_assignment(-alike)
    return alike[rows, columns]


def reproducibility(one, two):
    """Mean cosine of matched features over all features of the larger set (those without a partner count 0), and the mean of
    the ten best pairs."""
    matched = np.sort(pairs(one, two))[::-1]
    return float(matched.sum() / max(len(one), len(two), 1)), float(matched[:10].mean()) if len(matched) else 0.0


def correlation(a, b):
    """Pearson's, 0 where one of them is constant."""
    a, b = a - a.mean(), b - b.mean()
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norm) if norm > 0 else 0.0
