"""A calcium movie: cells that light up now and then, found without saying how many there are.

    python calcium_movie.py [FOLDER WITH *.tif] [--out calcium_movie.png]

Needs tifffile. Without a folder a movie of 600 frames is simulated and written as a TIFF first.
"""

import argparse
import tempfile
from pathlib import Path

import issfa
import matplotlib
import numpy as np
import tifffile

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def simulated(path, n_frames=600, grid=(36, 48), n_cells=8, seed=3):
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(*map(np.arange, grid), indexing="ij")
    places = np.column_stack([rng.uniform(4, n - 4, n_cells) for n in grid])
    cells = np.stack([np.exp(-(((x - a) ** 2 + (y - b) ** 2) / 8) ** 2) for a, b in places])
    spikes = rng.random((n_frames, n_cells)) < 0.015
    decay = np.exp(-np.arange(40) / 8)
    courses = np.stack([np.convolve(one, decay)[:n_frames] for one in spikes.T], axis=1)
    movie = 100 + 25 * np.tensordot(courses, cells, 1)
    movie += rng.normal(0, 1, movie.shape) * np.sqrt(movie) * 0.8
    tifffile.imwrite(path, movie.clip(0).astype(np.uint16))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", default="calcium_movie.png")
    parser.add_argument("--sweeps", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.folder is None:
            options.folder = Path(scratch)
            simulated(options.folder / "movie.tif")
        movie = np.concatenate([tifffile.imread(file) for file in sorted(options.folder.glob("*.tif*"))])
    # What a pixel shows while its cell is silent; cells then only add to it, and no mean has to be taken off.
    baseline = np.median(movie, axis=0)
    model = issfa.ISSFA(sweeps=options.sweeps, center="none", random_state=0).fit(movie - baseline)
    print(model.summary())
    k = min(10, model.n_components_)
    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained", width_ratios=[1, 1, 1.4])
    axes[0].imshow(movie.mean(0), cmap="gray")
    axes[0].set_title("mean of the movie")
    axes[1].imshow(movie.std(0), cmap="gray")
    for number in range(k):
        colour = plt.cm.tab10(number)
        feature = model.components_[number].reshape(movie.shape[1:])
        axes[1].contour(feature, [0.5 * feature.max()], colors=[colour])
        course = model.weights_[:, number]
        axes[2].plot(course / np.abs(course).max() + number, color=colour, linewidth=0.8)
    axes[1].set_title(f"{model.n_components_} features at half their height")
    axes[2].set(title="how strongly each frame uses them", xlabel="frame", yticks=[])
    for axis in axes[:2]:
        axis.set(xticks=[], yticks=[])
    figure.savefig(options.out, dpi=110)
    print(options.out)


if __name__ == "__main__":
    main()
