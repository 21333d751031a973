"""What the two brain data sets share: images in and out of arrays, nilearn's decompositions, and cleaning."""

import warnings

import nibabel
import numpy as np
from nilearn.decomposition import CanICA, DictLearning
from sklearn.decomposition import PCA


def head(mean):
    """Sites brighter than a third of the 98% point of the mean image."""
    return mean > np.quantile(mean, 0.98) / 3


def clean(rows, confounds=None):
    """Mean, straight line and confounds taken out of every site by least squares; then every site of unit variance."""
    columns = [np.ones(len(rows)), np.linspace(-1, 1, len(rows))]
    if confounds is not None:
        columns += list((confounds - confounds.mean(0)).T)
    design = np.column_stack(columns)
    rows = rows - design @ np.linalg.lstsq(design, rows, rcond=None)[0]
    return rows / np.maximum(rows.std(0), 1e-12)


def on_grid(rows, inside, outside=np.nan):
    """Rows at the sites of a mask as rows x grid."""
    whole = np.full((len(rows), *inside.shape), outside)
    whole[:, inside] = rows
    return whole


def nilearn_maps(kind, runs, inside, affine, k, seed=0):
    """Maps (k x sites of the mask) of CanICA or DictLearning at nilearn's defaults."""
    mask = nibabel.Nifti1Image(inside.astype(np.uint8), affine)
    images = [nibabel.Nifti1Image(np.moveaxis(on_grid(rows, inside, 0.0), 0, -1).astype(np.float32), affine) for rows in runs]
    make = {"CanICA": CanICA, "DictLearning": DictLearning}[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = make(n_components=k, mask=mask, random_state=seed).fit(images)
    maps = np.moveaxis(np.asarray(fit.components_img_.dataobj), -1, 0)[:, inside].astype(float)
    return maps[np.abs(maps).max(1) > 0]


def pca_maps(rows, k, seed=0):
    return PCA(k, random_state=seed).fit(rows).components_


def courses(maps, rows):
    """Weights of rows by least squares on maps."""
    return np.linalg.lstsq(maps.T, rows.T, rcond=None)[0].T
