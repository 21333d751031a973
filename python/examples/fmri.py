"""Functional MRI: maps and time courses of several runs.

    python fmri.py [FOLDER WITH *bold.nii.gz] [--mask mask.nii.gz] [--out fmri.png]

Needs nibabel and nilearn. `*_confounds.tsv` beside the images are regressed out. Without a folder two runs are simulated. Shown are
the smoothest of the features that hold 95% of what is explained: those that are not smooth are what moves and beats.
"""

import argparse
from pathlib import Path

import issfa
import matplotlib
import nibabel
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from nilearn import image, plotting


def simulated(n_volumes=120, grid=(20, 24, 18), seed=4):
    """Two runs of a round brain with three networks, and its mask."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in grid], indexing="ij"))
    mask = (places**2).sum(0) < 0.9

    def spot(*centre):
        return np.exp(-((places - np.reshape(centre, (3, 1, 1, 1))) ** 2).sum(0) / 0.05)

    networks = np.stack([spot(0.5, 0, 0) + spot(-0.5, 0, 0), spot(0, -0.6, 0.2), spot(0.3, 0.5, 0.3) - spot(-0.3, 0.4, -0.3)])
    affine = np.diag([4.0, 4, 4, 1])
    affine[:3, 3] = [-38, -46, -34]
    runs = []
    for _ in range(2):
        # In blocks of four volumes, about as many up as down: runs are centred and detrended.
        signs = np.repeat([1, -1], n_volumes // 8)
        blocks = np.stack([rng.permutation(signs) for _ in range(3)], axis=1) * (rng.random((n_volumes // 4, 3)) < 0.3)
        courses = 4 * np.repeat(blocks, 4, axis=0) * rng.uniform(0.5, 1.5, (n_volumes, 3))
        values = 500 * mask + 4 * np.tensordot(courses, networks, 1) + rng.normal(0, 6, (n_volumes, *grid))
        runs.append(nibabel.Nifti1Image(np.moveaxis(values * mask, 0, -1).astype(np.float32), affine))
    return runs, nibabel.Nifti1Image(mask.astype(np.uint8), affine)


def smoothest(estimator, n):
    """Places of the smoothest features among those that hold 95% of what is explained, the largest first."""
    table, shares = estimator.features_, np.cumsum(estimator.explained_variance_ratio_)
    large = range(np.searchsorted(shares, 0.95 * shares[-1]) + 1) if len(shares) else []
    widths = np.mean([np.asarray(table[f"smoothness_{axis}"]) for axis in (1, 2, 3)], axis=0)
    return sorted(sorted(large, key=lambda at: -widths[at])[:n])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--mask")
    parser.add_argument("--out", default="fmri.png")
    parser.add_argument("--sweeps", type=int, default=200)
    options = parser.parse_args()
    if options.folder:
        runs, mask = [str(file) for file in sorted(options.folder.glob("*bold.nii*"))], options.mask
        if not runs:
            parser.error(f"there is no *bold.nii or *bold.nii.gz in {options.folder}")
        confounds = [str(file) for file in sorted(options.folder.glob("*_confounds.tsv"))] or None
    else:
        (runs, mask), confounds = simulated(), None
    model = issfa.images.ISSFA(mask, sweeps=options.sweeps, random_state=0).fit(runs, confounds=confounds)
    print(model.summary())
    shown = smoothest(model.estimator_, 3)
    if not shown:
        parser.exit(message="no feature was found\n")
    figure, axes = plt.subplots(len(shown), 2, figsize=(14, 2.6 * len(shown)), squeeze=False, width_ratios=[1.4, 1])
    figure.subplots_adjust(left=0.02, right=0.98, top=0.9, bottom=0.1, hspace=0.5, wspace=0.1)
    background = image.mean_img(runs[0], copy_header=True)
    for number, (left, right) in zip(shown, axes):
        one = image.index_img(model.components_z_img_, number)
        least = 0.3 * np.nanmax(np.abs(one.get_fdata()))
        plotting.plot_stat_map(one, bg_img=background, axes=left, display_mode="z", cut_coords=4, threshold=least)
        left.set_title(f"feature {number + 1} of {model.n_components_}, in standard deviations of the noise", fontsize=10)
        for run, courses in enumerate(model.weights_, 1):
            right.plot(courses[:, number], linewidth=0.8, label=f"run {run}")
        right.set_title("how strongly each volume uses it", fontsize=10)
        right.legend(fontsize=8)
    axes[-1, 1].set_xlabel("volume")
    figure.savefig(options.out, dpi=110)
    print(options.out)


if __name__ == "__main__":
    main()
