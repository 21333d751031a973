"""Temperatures: hourly over the UK, and monthly in the eastern Pacific; hidden cells, their intervals, and known modes."""

from types import SimpleNamespace

import numpy as np
import xarray
import xeofs

from . import figures, linear, ours
from .measures import best_cosines, correlation, measure

WHITE, PPCA, EOF, ROTATED = "issfa, `noise=\"white\"`", "probabilistic PCA", "xeofs EOF", "xeofs rotated EOF"


def eofs(rows, grid, k):
    """Maps of xeofs' EOFs and of its varimax rotation, modes x sites."""
    names = [f"axis_{axis}" for axis in range(len(grid))]
    array = xarray.DataArray(rows.reshape(-1, *grid), dims=["time", *names], coords={"time": np.arange(len(rows))})
    plain = xeofs.single.EOF(n_modes=k, random_state=0).fit(array, dim="time")
    rotated = xeofs.single.EOFRotator(n_modes=k).fit(plain)
    return [model.components().transpose("mode", *names).values.reshape(k, -1) for model in (plain, rotated)]


def fits(training, grid, sweeps, options, seeds, white=False):
    """Every method on the training rows: for each name a list of (maps, weights, model)."""
    mean, found = training.mean(0), {}
    for name, noise in [("issfa", "reference"), (WHITE, "white")][: 1 + white]:
        for seed in seeds:
            model = ours.fit(training.reshape(-1, *grid), sweeps, seed, noise=noise, **options)
            found.setdefault(name, []).append((ours.features(model), model.weights_, model))
    k = linear.chosen_dimension(training)
    maps = linear.principal(training)[:k]
    found[PPCA] = [(maps, (training - mean) @ maps.T, linear.Linear(maps, training))]
    for name, own in zip((EOF, ROTATED), eofs(training, grid, max(k, 2))):
        weights = np.linalg.lstsq(own.T, (training - mean).T, rcond=None)[0].T
        found[name] = [(own, weights, linear.Linear(own, training))]
    return found


def predicted(found, training, test, grid, hidden, kind):
    """R2, coverage (of peers) and numbers of components of every method, in lists."""
    mean = training.mean(0)
    report = {"r2": {}, "coverage": {}, "count": {}}

    def note(name, **values):
        for what, value in values.items():
            report[what].setdefault(name, []).append(value)

    for name, runs in found.items():
        for maps, _, model in runs:
            note(name, count=len(maps))
            if name == WHITE:
                signal, _ = ours.predict(model, test, hidden, grid, kind)
                note(WHITE, r2=linear.r2(signal, test, hidden, mean))
            elif name == "issfa":
                signal, both = ours.predict(model, test, hidden, grid, kind)
                note("issfa", r2=linear.r2(both, test, hidden, mean))
                note("issfa, features alone", r2=linear.r2(signal, test, hidden, mean))
            else:
                means, deviations = linear.predictions(model, test, hidden)
                note(name, r2=linear.r2(means, test, hidden, mean), coverage=linear.covered(means, deviations, test, hidden))
    return report


def explained(maps, weights):
    """Maps that hold at least 1% of the sum of squares of all of a method's parts."""
    sizes = (weights**2).sum(0) * (maps**2).sum(1)
    return sizes >= 0.01 * sizes.sum()


def era5(data, quick):
    rows = np.load(data / "era5_uk/era5_uk_t2m_time744_lat33_lon49.npy").astype(float)[:, ::2, ::2]
    grid, rows = rows.shape[1:], rows.reshape(len(rows), -1)
    cut, sweeps = 595, 20 if quick else 300
    training, test = rows[:cut], rows[cut:]
    hidden = linear.hide(test.shape, 21)
    found = fits(training, grid, sweeps, {}, ours.SEEDS)
    report = predicted(found, training, test, grid, hidden, "path")
    report["coverage"]["issfa"] = ours.coverage(rows, np.concatenate([np.zeros(training.shape, bool), hidden]), grid, sweeps, 1)
    day, day_course = daily_cycle(training)
    like, course, shown = {}, {}, {"daily cycle": (day, "by regression")}
    for name, runs in found.items():
        for maps, weights, _ in runs:
            large = explained(maps, weights)
            cosine, at = (one[0] for one in best_cosines(day[None], maps[large]))
            like.setdefault(name, []).append(cosine)
            course.setdefault(name, []).append(max(abs(correlation(column, day_course)) for column in weights[:, large].T))
            best = maps[large][at]
            shown.setdefault(name, (best * np.sign(best @ day), f"cosine {cosine:.2f}"))
    figures.fields("era5_day", [image for image, _ in shown.values()], grid, [f"{name}\n{words}" for name, (_, words) in shown.items()],
                   "ERA5: the map of each method that is most like the daily cycle's", "longitude (site)", "latitude (site)")
    return {"sweeps": sweeps, "k": report["count"][PPCA][0], "measures": [
        measure("R2 of hidden cells", "higher", report["r2"], 4, 0.0005),
        measure("coverage of 90% intervals", 0.9, report["coverage"], tie=0.01),
        measure("best cosine with the daily cycle's map", "higher", like, 2, 0.01),
        measure("best correlation with the daily cycle", "higher", course, 2, 0.01),
        measure("components", None, report["count"], 0)]}


def daily_cycle(hours):
    """The direction along which the first harmonic of the day moves most, of unit norm, and its course."""
    angle = 2 * np.pi * np.arange(len(hours)) / 24
    wave = np.column_stack([np.cos(angle), np.sin(angle)])
    responses = np.linalg.lstsq(np.column_stack([np.ones(len(hours)), wave]), hours, rcond=None)[0][1:]
    left, _, right = np.linalg.svd(responses, full_matrices=False)
    return right[0], wave @ left[:, 0]


FIRST_YEAR = 1950
# Years in which strong El Nino events began (Oceanic Nino Index of 1.5 or more), and the years after them.
STRONG = [1957, 1965, 1972, 1982, 1987, 1991, 1997]


def elnino(data, quick):
    rows = np.load(data / "elnino/elnino_year61_month12.npy").astype(float)
    sweeps, folds = 50 if quick else 1000, 5
    options = {"structure": "cycle(12)"}
    everything, inside = {}, []
    for fold in range(folds):
        out = np.arange(fold * len(rows) // folds, (fold + 1) * len(rows) // folds)
        training, test = np.delete(rows, out, axis=0), rows[out]
        hidden = linear.hide(test.shape, 31 + fold)
        report = predicted(fits(training, (12,), sweeps, options, (1,), white=True), training, test, (12,), hidden, "cycle")
        whole = np.zeros(rows.shape, bool)
        whole[out] = hidden
        inside.append(ours.coverage(rows, whole, (12,), sweeps, 1, kind="cycle", **options))
        for what, methods in report.items():
            for name, values in methods.items():
                everything.setdefault(what, {}).setdefault(name, []).append(float(np.mean(values)))
    everything["coverage"]["issfa"] = inside
    years = FIRST_YEAR + np.arange(len(rows))
    begins, ends = np.isin(years, STRONG).astype(float), np.isin(years - 1, STRONG).astype(float)
    onset, decay, lines = {}, {}, {}
    for name, runs in fits(rows, (12,), sweeps, options, ours.SEEDS, white=True).items():
        for maps, weights, _ in runs:
            of_begin = [abs(correlation(column, begins)) for column in weights.T] or [0]
            of_end = [abs(correlation(column, ends)) for column in weights.T] or [0]
            onset.setdefault(name, []).append(max(of_begin))
            decay.setdefault(name, []).append(max(of_end))
            if len(maps):
                lines.setdefault(name, [signed(maps[int(np.argmax(of))]) for of in (of_begin, of_end)])
    figures.months("elnino_modes", lines)
    return {"sweeps": sweeps, "measures": [
        measure("R2 of hidden cells", "higher", everything["r2"], 3, 0.005),
        measure("coverage of 90% intervals", 0.9, everything["coverage"], tie=0.01),
        measure("correlation with years of onset", "higher", onset, 2, 0.02),
        measure("correlation with years after", "higher", decay, 2, 0.02),
        measure("components", None, everything["count"], 1)]}


def signed(line):
    return line / np.linalg.norm(line) * np.sign(line.sum())


WHY_ERA5 = {"daily cycle": "it shares the daily cycle out between several features that are local and that only some days use"}
WHY_ELNINO = {
    "hidden": "rows are years, and measured on differences of rows that follow each other the noise is all that differs from one year to the next, which is nearly all there is; little is left "
              "for features to explain. The row with `noise=\"white\"` shows what this costs",
    "coverage": "the noise that it measured is too large, so its intervals are too wide",
    "correlation": "with the noise taken for so large, few features are left",
}

EOF_SETTINGS = ("`xeofs.single.EOF(n_modes=k, random_state=0)` and `xeofs.single.EOFRotator(n_modes=k)` (varimax), with k as for probabilistic PCA; "
                "both span the same space, so that their predictions are the same. Cosine weights of latitudes are not used, as the file has no coordinates.")
ERA5 = SimpleNamespace(
    TITLE="ERA5 over the UK", NEEDS=["era5_uk/era5_uk_t2m_time744_lat33_lon49.npy"], run=era5, WHY=WHY_ERA5,
    ABOUT="""744 hours of 2 m temperature over the UK, March 2019; of the 33 x 49 sites every second along each axis (17 x 25), to save time. The first 595 hours (80%) are for fitting, the last 149 for testing.
The known mode is the daily cycle: the direction of the map along which the first harmonic of 24 hours moves most, by regression on the
training hours. Of every method those components count that hold at least 1% of the sum of squares of all of its parts, and the best of them is taken.""",
    SETTINGS="issfa: `ISSFA(sweeps={sweeps}, random_state=1 and 2)`, `path x path`, else the defaults; coverage with seed 1. Probabilistic PCA: k = {k} by cross-validation. " + EOF_SETTINGS,
    figure_words=lambda _: [("era5_day", "Maps of the daily cycle by each method")])
ELNINO = SimpleNamespace(
    TITLE="El Niño", NEEDS=["elnino/elnino_year61_month12.npy"], run=elnino, WHY=WHY_ELNINO,
    ABOUT="""61 years (1950 to 2010) x 12 months of sea surface temperature off Peru (0-10 S, 90-80 W), rows are years. Five stretches of years are left out in
turn; the table has means over them. The known modes are strong El Niño events (Oceanic Niño Index of 1.5 or more: they began in 1957, 1965, 1972, 1982,
1987, 1991, 1997): the best correlation of one component's weights with the years in which they began, and with the years after, from fits to all years (two seeds of issfa).""",
    SETTINGS="issfa: `ISSFA(structure=\"cycle(12)\", sweeps={sweeps}, random_state=1)`, for the known modes also 2, else the defaults. Probabilistic PCA: k by cross-validation in each fold. " + EOF_SETTINGS,
    figure_words=lambda _: [("elnino_modes", "Months of the component most like each known mode")])
