"""Brain images: lists of NIfTI images in, images and time courses out, as nilearn's decompositions have them."""

import os

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from . import _inputs
from ._errors import UseError, need
from ._estimator import ISSFA as Estimator

nibabel = need("nibabel", "images", "issfa.images")
image = need("nilearn.image", "images", "issfa.images")
masking = need("nilearn.masking", "images", "issfa.images")
maskers = need("nilearn.maskers", "images", "issfa.images")


class ISSFA(TransformerMixin, BaseEstimator):
    """Infinite structured sparse factor analysis of brain images.

    Parameters
    ----------
    mask : image, path or None
        Which voxels take part; None: nilearn's mask for echo-planar images over all runs.
    standardize : bool
        Whether voxels are divided by their standard deviation; of no effect where the noise is measured, the default, since
        they are divided by that.
    detrend : bool
        Whether a straight line is taken out of every voxel in each run.
    smoothing_fwhm : float, optional
        In millimetres; the model learns how smooth features are, so it is seldom needed.
    parameters : dict, optional
        Further ones of ``issfa.ISSFA``, such as ``{"max_features": 40}``.

    Attributes
    ----------
    components_img_, components_sd_img_, components_z_img_ : 4-D images, a volume a feature
        Posterior means (of unit norm), their standard deviations, and what features are in noise units.
    masker_ : the NiftiMasker of the mask
    mask_img_ : the mask
    estimator_ : the ``issfa.ISSFA`` with everything else
    weights_ : a list of (volumes x features) arrays, one a run
    """

    def __init__(
        self,
        mask=None,
        *,
        standardize=False,
        detrend=True,
        smoothing_fwhm=None,
        sweeps=1000,
        burn_in=None,
        thin=None,
        chains=1,
        noise="reference",
        random_state=None,
        n_jobs=None,
        out=None,
        progress=False,
        parameters=None,
    ):
        self.mask = mask
        self.standardize = standardize
        self.detrend = detrend
        self.smoothing_fwhm = smoothing_fwhm
        self.sweeps = sweeps
        self.burn_in = burn_in
        self.thin = thin
        self.chains = chains
        self.noise = noise
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.out = out
        self.progress = progress
        self.parameters = parameters

    def fit(self, imgs, y=None, confounds=None, callback=None):
        """Fits one 4-D image, or a list with one a run; ``confounds`` has a table (array, frame or file) for each."""
        images = self._images(imgs)
        tables = self._tables(confounds, len(images))
        self.mask_img_ = self._mask(images)
        self.masker_ = maskers.NiftiMasker(mask_img=self.mask_img_, standardize=None).fit()
        self.n_elements_ = int(np.asarray(self.mask_img_.dataobj, dtype=bool).sum())
        own = {name: getattr(self, name) for name in ("sweeps", "burn_in", "thin", "chains", "noise", "random_state", "n_jobs", "out", "progress")}
        self.estimator_ = Estimator(
            mask=np.asarray(self.mask_img_.dataobj) != 0,
            scale=bool(self.standardize),
            detrend="linear" if self.detrend else "none",
            **{**own, **(self.parameters or {})},
        )
        try:
            self.estimator_.fit([self._volumes(one) for one in images], confounds=tables, callback=callback)
        finally:
            # Also of a fit that was stopped.
            if hasattr(self.estimator_, "components_"):
                self._take([_n_volumes(one) for one in images])
        return self

    def _take(self, lengths):
        found = self.estimator_
        self.n_components_ = found.n_components_
        self.components_ = self._inside(found.components_)
        self.components_img_ = self.masker_.inverse_transform(self.components_) if found.n_components_ else None
        sds = self._inside(found.components_sd_)
        self.components_sd_img_ = self.masker_.inverse_transform(sds) if found.n_components_ else None
        dropped = found.drop_volumes
        ends = np.cumsum([n - dropped for n in lengths])
        self.weights_ = np.split(found.weights_, ends[:-1])

    @property
    def components_z_img_(self):
        """Features in standard deviations of the noise, where that was measured."""
        check_is_fitted(self, "components_")
        return self.masker_.inverse_transform(self._inside(self.estimator_.components_z_))

    def transform(self, imgs, confounds=None):
        """Time courses of the features: a list with one array (volumes x features) for each image, which is centred and
        detrended by itself."""
        check_is_fitted(self, "components_")
        images = self._images(imgs)
        tables = self._tables(confounds, len(images)) or [None] * len(images)
        infer = lambda one, table: self.estimator_.infer(self._volumes(one), confounds=table, center_new="own")
        return [infer(one, table)[0] for one, table in zip(images, tables)]

    def fit_transform(self, imgs, y=None, confounds=None):
        return self.fit(imgs, confounds=confounds).transform(imgs, confounds)

    def inverse_transform(self, loadings):
        """Time courses back to images."""
        check_is_fitted(self, "components_")
        return [self.masker_.inverse_transform(self._inside(self.estimator_.inverse_transform(one))) for one in loadings]

    def summary(self):
        check_is_fitted(self, "components_")
        return self.estimator_.summary()

    # Between images and arrays

    def _images(self, imgs):
        several = isinstance(imgs, (list, tuple))
        loaded = [image.load_img(os.fspath(one) if _inputs.is_path(one) else one) for one in (imgs if several else [imgs])]
        if not loaded:
            raise UseError("imgs is empty; give at least one image")
        for at, one in enumerate(loaded):
            if one.ndim != 4:
                raise UseError(f"imgs[{at}] has {one.ndim} axes; give 4-D images, one a run (nilearn.image.concat_imgs joins volumes)")
            if one.shape[:3] != loaded[0].shape[:3] or not np.allclose(one.affine, loaded[0].affine, atol=1e-3):
                raise UseError(f"imgs[{at}] does not lie where imgs[0] does; bring the images into one space first")
        return loaded

    def _volumes(self, one):
        """Volumes x grid, a view of the image's values."""
        if self.smoothing_fwhm is not None:
            one = image.smooth_img(one, self.smoothing_fwhm)
        return np.moveaxis(one.get_fdata(dtype=np.float32, caching="unchanged"), -1, 0)

    def _mask(self, images):
        if self.mask is None:
            return masking.compute_multi_epi_mask(images)
        mask = image.load_img(os.fspath(self.mask) if _inputs.is_path(self.mask) else self.mask)
        if mask.shape[:3] != images[0].shape[:3] or not np.allclose(mask.affine, images[0].affine, atol=1e-3):
            mask = image.resample_to_img(mask, images[0], interpolation="nearest", force_resample=True, copy_header=True)
        inside = (np.nan_to_num(mask.get_fdata()) != 0).reshape(images[0].shape[:3])
        return image.new_img_like(images[0], inside.astype(np.uint8))

    def _inside(self, rows):
        return rows[:, np.asarray(self.mask_img_.dataobj).ravel() != 0]

    def _tables(self, confounds, n_images):
        if confounds is None:
            return None
        tables = list(confounds) if isinstance(confounds, (list, tuple)) else [confounds]
        if len(tables) != n_images:
            raise UseError(f"confounds has {len(tables)} tables for {n_images} images; give one for each")
        return [_read_table(table) if _inputs.is_path(table) else table for table in tables]


def _n_volumes(one):
    return one.shape[3]


def _read_table(path):
    """A table of confounds, as fMRIPrep writes it."""
    pandas = need("pandas", "images", "a file of confounds")
    return pandas.read_csv(path, sep="\t" if os.fspath(path).endswith(".tsv") else ",")
