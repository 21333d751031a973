"""Functional MRI: maps and time courses of several runs.

    python fmri.py [FOLDER WITH *_bold.nii.gz] [--mask mask.nii.gz] [--out fmri.png]

Needs nibabel and nilearn. `*_confounds.tsv` beside the images are regressed out. Without a folder two runs are simulated.
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
        courses = np.zeros((n_volumes, 3))
        for t in range(1, n_volumes):
            courses[t] = 0.85 * courses[t - 1] + rng.normal(size=3)
        values = 500 * mask + 4 * np.tensordot(courses, networks, 1) + rng.normal(0, 6, (n_volumes, *grid))
        runs.append(nibabel.Nifti1Image(np.moveaxis(values * mask, 0, -1).astype(np.float32), affine))
    return runs, nibabel.Nifti1Image(mask.astype(np.uint8), affine)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--mask")
    parser.add_argument("--out", default="fmri.png")
    parser.add_argument("--sweeps", type=int, default=200)
    options = parser.parse_args()
    if options.folder:
        runs, mask = [str(file) for file in sorted(options.folder.glob("*_bold.nii*"))], options.mask
        confounds = [str(file) for file in sorted(options.folder.glob("*_confounds.tsv"))] or None
    else:
        (runs, mask), confounds = simulated(), None
    model = issfa.images.ISSFA(mask, sweeps=options.sweeps, random_state=0).fit(runs, confounds=confounds)
    print(model.summary())
    n = min(3, model.n_components_)
    figure, axes = plt.subplots(n, 2, figsize=(14, 2.8 * n), squeeze=False, width_ratios=[1.4, 1])
    figure.subplots_adjust(left=0.02, right=0.98, hspace=0.45, wspace=0.1)
    background = image.mean_img(runs[0], copy_header=True)
    for number, (left, right) in enumerate(axes):
        one = image.index_img(model.components_z_img_, number)
        least = 0.3 * np.nanmax(np.abs(one.get_fdata()))
        plotting.plot_stat_map(one, bg_img=background, axes=left, display_mode="z", cut_coords=4, threshold=least, title=f"feature {number + 1}")
        for run, courses in enumerate(model.transform(runs, confounds), 1):
            right.plot(courses[:, number], linewidth=0.8, label=f"run {run}")
        right.set(xlabel="volume", title="time courses")
        right.legend(fontsize=8)
    figure.savefig(options.out, dpi=110)
    print(options.out)


if __name__ == "__main__":
    main()
