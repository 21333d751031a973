"""Many noisy images: how many features made them, and what they look like.

    python images.py [FOLDER WITH images.npy] [--out images.png]

Without a folder the images are simulated: 600 of 32 x 32, made of 6 blobs, each used by a tenth of them.
"""

import argparse
from pathlib import Path

import issfa
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def simulated(n_images=600, side=32, n_blobs=6, seed=1):
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    centres, widths = rng.uniform(4, side - 4, (n_blobs, 2)), rng.uniform(2, 5, n_blobs)
    blobs = [np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * w**2)) for (a, b), w in zip(centres, widths)]
    uses = rng.random((n_images, n_blobs)) < 0.1
    weights = uses * rng.normal(0, 2.5, (n_images, n_blobs))
    return np.tensordot(weights, np.stack(blobs), 1) + rng.normal(0, 1, (n_images, side, side))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", default="images.png")
    parser.add_argument("--sweeps", type=int, default=300)
    options = parser.parse_args()
    images = np.load(options.folder / "images.npy") if options.folder else simulated()
    model = issfa.ISSFA(sweeps=options.sweeps, random_state=0).fit(images)
    print(model.summary())
    # Those that use most.
    images = images[np.argsort(-model.activation_.sum(1))[:6]]
    denoised = model.reconstruct(images)
    n = min(6, model.n_components_)
    figure, axes = plt.subplots(3, 6, figsize=(12, 6.4), layout="constrained")
    grid = images.shape[1:]
    size = np.abs(denoised).max()
    for column in range(6):
        pictures = [(images[column], size), (denoised[column], size)]
        if column < n:
            feature = model.components_[column].reshape(grid)
            pictures.append((feature, np.abs(feature).max()))
        for axis, (picture, limit) in zip(axes[:, column], pictures):
            axis.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
        for axis in axes[:, column]:
            axis.set_axis_off()
        if column < n:
            axes[2, column].set_title(f"in {model.activation_[:, column].mean():.0%} of images", fontsize=9)
    for axis, text in zip(axes[:, 0], ["images", "denoised", f"{model.n_components_} features"]):
        axis.set_axis_on()
        axis.set(xticks=[], yticks=[], ylabel=text)
    figure.savefig(options.out, dpi=110)
    print(options.out)


if __name__ == "__main__":
    main()
