"""The figures of docs/study-real.md, into docs/images/study-real."""

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

OUT = Path("docs/images/study-real")
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9,
                     "legend.frameon": False, "figure.constrained_layout.use": True})


def save(figure, name):
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def bare(place):
    place.set(xticks=[], yticks=[])
    for spine in place.spines.values():
        spine.set_visible(False)


def images(name, rows, shape, title, n, captions=None, origin="upper", size=0.95):
    """A row of images for each method, each on its own symmetric colour scale."""
    figure, places = plt.subplots(len(rows), n, figsize=(size * n * max(1, shape[1] / shape[0]) + 1, (size + 0.15) * len(rows) + 0.5), squeeze=False)
    for at, (label, images_of) in enumerate(rows.items()):
        for column in range(n):
            place = places[at][column]
            bare(place)
            if column == 0:
                place.set_ylabel(label.replace(", ", ",\n"))
            if column >= len(images_of) or images_of[column] is None:
                continue
            image = np.asarray(images_of[column], float).reshape(shape)
            limit = np.nanmax(np.abs(image)) or 1
            place.imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit, origin=origin, interpolation="nearest")
            if captions and captions.get(label):
                place.set_xlabel(captions[label][column], fontsize=7, labelpad=1)
    figure.suptitle(title, fontsize=10)
    save(figure, name)


def fields(name, maps, shape, titles, title, x, y):
    """Maps side by side, each on its own symmetric scale, with axes."""
    figure, places = plt.subplots(1, len(maps), figsize=(2.4 * len(maps) + 0.4, 2.7), squeeze=False, sharey=True)
    for place, image, words in zip(places[0], maps, titles):
        image = np.asarray(image).reshape(shape)
        limit = np.abs(image).max()
        place.imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        place.set(title=words, xlabel=x)
    places[0][0].set_ylabel(y)
    figure.suptitle(title, fontsize=10)
    save(figure, name)


def months(name, lines):
    """The twelve months of the components most like onset and decay, a line a method."""
    figure, places = plt.subplots(1, 2, figsize=(8.5, 3), sharey=True)
    for method, styles in zip(lines, ("-", "-", "--", "-.", ":")):
        for place, line in zip(places, lines[method]):
            place.plot(range(1, 13), line, styles, marker="o", markersize=3, label=method.replace("`", ""))
    for place, words in zip(places, ("most like the years of onset", "most like the years after")):
        place.axhline(0, color="black", linewidth=0.6)
        place.set(xlabel="month", title=words, xticks=range(1, 13))
    places[0].set_ylabel("component (unit norm)")
    places[1].legend(fontsize=8, loc="upper right")
    save(figure, name)


def cells(name, truth, loud, shown, grid, found, matched):
    """For each kind of noise and method: outlines of loud cells, green where found, and of false features, red."""
    from .measures import best_cosines

    kinds, methods = list(shown), list(next(iter(shown.values())))
    figure, places = plt.subplots(len(kinds), len(methods), figsize=(2.1 * len(methods) + 0.3, 2.2 * len(kinds) + 0.5), squeeze=False)
    outline = lambda place, image, colour, width: place.contour(np.abs(image).reshape(grid), [np.abs(image).max() * 0.5], colors=colour, linewidths=width)  # noqa: E731
    for row, kind in enumerate(kinds):
        for column, method in enumerate(methods):
            place, features = places[row][column], shown[kind][method]
            best, _ = best_cosines(truth, features)
            nearest, _ = best_cosines(features, truth)
            for image in features[nearest < matched] if len(features) else []:
                outline(place, image, "#d55e00", 0.5)
            for cell in np.flatnonzero(loud):
                outline(place, truth[cell], "#009e73" if best[cell] >= found else "#000000", 1.6 if best[cell] >= found else 0.8)
            bare(place)
            place.set(xlim=(0, grid[1] - 1), ylim=(grid[0] - 1, 0), aspect="equal")
            for spine in place.spines.values():
                spine.set_visible(True)
            place.set_title(f"{method}: {int((best[loud] >= found).sum())} of {loud.sum()}, {int((nearest < matched).sum())} false", fontsize=8)
            if column == 0:
                place.set_ylabel(f"noise: {kind}")
    figure.suptitle("Loud cells at half of their height (green: found, black: not), and features that are no cell (orange)", fontsize=10)
    save(figure, name)


def synchronous(name, shown, inside, task):
    """The four most synchronous maps of each method, and the mean course of the first beside the blocks of pictures."""
    figure, places = plt.subplots(len(shown), 5, figsize=(10.5, 1.15 * len(shown) + 0.7), squeeze=False, gridspec_kw={"width_ratios": [1, 1, 1, 1, 2.6]})
    for row, (method, (maps, values, course)) in enumerate(shown.items()):
        for column in range(4):
            place = places[row][column]
            bare(place)
            if column == 0:
                place.set_ylabel(method, rotation=0, ha="right", va="center")
            if column < len(maps):
                image = np.full(inside.shape, np.nan)
                image[inside] = maps[column]
                limit = np.nanmax(np.abs(image))
                place.imshow(image.reshape(inside.shape[:2]).T, cmap="RdBu_r", vmin=-limit, vmax=limit, origin="lower", aspect="auto", interpolation="nearest")
                place.set_title(f"{values[column]:.2f}", fontsize=8, pad=2)
        place = places[row][4]
        place.fill_between(np.arange(len(task)) * 2.5, -3, 3, where=task > 0.5, color="#dddddd", linewidth=0)
        place.plot(np.arange(len(course)) * 2.5, course, color="#0072b2", linewidth=1)
        place.set(ylim=(-3, 3), yticks=[-2, 0, 2])
        if row < len(shown) - 1:
            place.set_xticklabels([])
        else:
            place.set_xlabel("seconds (grey: pictures)")
    figure.suptitle("The four most synchronous maps with their synchrony; right: the mean course over runs of the first, in standard deviations", fontsize=10)
    save(figure, name)


def brains(name, shown, background, inside):
    """Three slices through the largest value of the visual and of the auditory map of each method, over the mean image."""
    kinds = ["visual", "auditory"]
    figure, places = plt.subplots(len(shown), 6, figsize=(11, 1.9 * len(shown) + 0.6), squeeze=False)
    for row, (method, maps) in enumerate(shown.items()):
        for at, kind in enumerate(kinds):
            values, part = maps[kind]
            volume = np.zeros(inside.shape)
            volume[inside] = values / np.sqrt((values**2).mean())
            volume *= np.sign(volume.flat[np.abs(volume).argmax()])
            weight = np.abs(volume) ** 2
            centre = [int(np.argmax(weight.sum(tuple(a for a in range(3) if a != axis)))) for axis in range(3)]
            for column, axis in enumerate((0, 1, 2)):
                place = places[row][3 * at + column]
                under = np.take(background, centre[axis], axis).T
                over = np.take(volume, centre[axis], axis).T
                place.imshow(under, cmap="gray", origin="lower", aspect="equal")
                place.imshow(np.ma.masked_where(np.abs(over) < 2, over), cmap="RdBu_r", vmin=-8, vmax=8, origin="lower", interpolation="nearest")
                bare(place)
                if column == 1:
                    place.set_title(f"{kind}: share {part:.2f}", fontsize=9)
                if at == 0 and column == 0:
                    place.set_ylabel(method)
                if row == len(shown) - 1:
                    place.set_xlabel(("from the side", "from behind", "from above")[axis], fontsize=8)
    figure.suptitle("Localizer: maps above 2 root mean squares, in slices that hold most of their squares, over the mean image", fontsize=10)
    save(figure, name)


def matches(name, shown, grid, n, title):
    """The first row's first features, and of every other row the most alike, with its cosine."""
    from .measures import cosines, unit

    rows, captions = {}, {}
    truth = next(iter(shown.values()))[:n]
    for label, features in shown.items():
        along = cosines(truth, features)
        best = np.abs(along).argmax(1)
        size = along[np.arange(n), best]
        rows[label] = np.sign(size)[:, None] * unit(features)[best]
        captions[label] = [f"cosine {abs(value):.2f}" for value in size]
    captions[next(iter(shown))] = [""] * n
    images(name, rows, grid, title, n, captions, size=1.1)
