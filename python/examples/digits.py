"""Handwritten digits: settings chosen by hidden pixels, then the strokes that digits are made of.

    python digits.py [--out digits.png] [--page digits.html]

The 1797 images of 8 x 8 come with scikit-learn.
"""

import argparse

import issfa
import matplotlib
import numpy as np
from sklearn.datasets import load_digits

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", default="digits.png")
    parser.add_argument("--page", default="digits.html")
    parser.add_argument("--sweeps", type=int, default=500)
    options = parser.parse_args()
    digits = load_digits()
    choice = issfa.choose(digits.images, random_state=0)
    print(choice)
    model = issfa.ISSFA(sweeps=options.sweeps, **choice.settings).fit(digits.images)
    print(model.summary())
    # Which digits a stroke tells apart: the mean of its weights in the images of each.
    means = np.stack([model.weights_[digits.target == digit].mean(0) for digit in range(10)])
    figure, axes = plt.subplots(5, 8, figsize=(11, 8), layout="constrained")
    for number, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if number < model.n_components_:
            stroke = model.components_[number].reshape(8, 8)
            size = np.abs(stroke).max()
            axis.imshow(stroke, cmap="RdBu_r", vmin=-size, vmax=size)
            axis.set_title(f"more in {means[:, number].argmax()}, less in {means[:, number].argmin()}", fontsize=8)
    figure.suptitle(f"The largest of {model.n_components_} strokes, and the digits that use them most and least")
    figure.savefig(options.out, dpi=110)
    print(options.out)
    print(model.write_report(options.page, name="digits"))


if __name__ == "__main__":
    main()
