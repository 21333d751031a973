"""Hidden cells by linear models: one rule for every peer, and probabilistic principal components."""

import numpy as np

HIDDEN = 0.2
DIMENSIONS = [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90, 110, 130, 150, 175, 200]
FOLDS = 3
MOST_ROWS = 100
WIDE = 1.6448536269514722  # of a central 90% interval, in standard deviations


def hide(shape, seed):
    """Which cells are hidden: the same for every method."""
    return np.random.default_rng(seed).random(shape) < HIDDEN


class Linear:
    """Rows as `mean + w S + noise`: w normal in the span of the components S, noise alike at all sites.

    In an orthonormal basis of the span the weights of training rows (least squares on all of their cells) have a mean and a covariance
    C; the variance s of the noise is the mean square of what they leave, by degrees of freedom; and w has the covariance C - s I,
    with eigenvalues of at least 0. With principal components this is probabilistic PCA.
    """

    def __init__(self, components, training):
        self.mean = training.mean(0)
        centred = training - self.mean
        _, sizes, basis = np.linalg.svd(np.asarray(components, float), full_matrices=False)
        basis = basis[sizes > 1e-8 * sizes.max()]
        weights = centred @ basis.T
        k, (n_rows, n) = len(basis), training.shape
        total = np.sum(centred**2)
        self.noise = max((total - np.sum(weights**2)) / (n_rows * max(n - k, 1)), 1e-9 * total / training.size)
        values, vectors = np.linalg.eigh(weights.T @ weights / n_rows)
        self.components = vectors.T @ basis
        self.variances = np.maximum(values - self.noise, 0)

    def predict(self, row, hidden):
        """Means and variances of the hidden cells of a row given the others."""
        seen, wanted = self.components[:, ~hidden], self.components[:, hidden]
        spread = self.variances[:, None] * seen
        gram = spread @ seen.T + self.noise * np.eye(len(seen))
        weights = np.linalg.solve(gram, spread @ (row - self.mean)[~hidden])
        left = self.noise * np.linalg.solve(gram, np.diag(self.variances))
        return self.mean[hidden] + weights @ wanted, np.sum(wanted * (left @ wanted), axis=0) + self.noise


def principal(training):
    """All principal components, by variance."""
    return np.linalg.svd(training - training.mean(0), full_matrices=False)[2]


def predictions(model, rows, hidden):
    """Predicted rows and standard deviations; what is visible is left as it is."""
    predicted, deviations = np.array(rows, dtype=float), np.zeros(rows.shape)
    for at in range(len(rows)):
        predicted[at, hidden[at]], variance = model.predict(rows[at], hidden[at])
        deviations[at, hidden[at]] = np.sqrt(variance)
    return predicted, deviations


def r2(predicted, rows, hidden, mean):
    """One minus the squared error of the hidden cells over their squares about the training means."""
    truth = rows[hidden]
    left = truth - np.broadcast_to(mean, rows.shape)[hidden]
    return float(1 - np.sum((predicted[hidden] - truth) ** 2) / np.sum((left - left.mean()) ** 2))


def covered(predicted, deviations, rows, hidden):
    """The share of hidden cells within their central 90% interval."""
    return float(np.mean(np.abs(predicted - rows)[hidden] <= WIDE * deviations[hidden]))


def choose(training, make, candidates, seed=0):
    """The number of components with the least error on hidden cells of training rows, each third left out once.

    `make(rows, numbers)` gives a model for each number. Thirds are stretches of rows that follow each other.
    """
    errors = np.zeros(len(candidates))
    for fold in range(FOLDS):
        out = np.arange(fold * len(training) // FOLDS, (fold + 1) * len(training) // FOLDS)
        models = make(np.delete(training, out, axis=0), candidates)
        rows = training[out[:: max(1, -(-len(out) // MOST_ROWS))]]
        hidden = hide(rows.shape, 1000 + seed + fold)
        for at, model in enumerate(models):
            errors[at] += np.sum((predictions(model, rows, hidden)[0] - rows) ** 2)
    return candidates[int(errors.argmin())]


def probabilistic(training, candidates):
    """Probabilistic principal components of several numbers, of one decomposition."""
    components = principal(training)
    return [Linear(components[:number], training) for number in candidates]


def chosen_dimension(training):
    """For probabilistic principal components, by cross-validation on the training rows."""
    return choose(training, probabilistic, [d for d in DIMENSIONS if d < min(training.shape) * (1 - 1 / FOLDS)])
