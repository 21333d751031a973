"""Labelled data: DataArrays in, DataArrays out, with coordinates, names and units."""

import numpy as np

from ._errors import UseError, need
from ._estimator import ISSFA as Estimator

xr = need("xarray", "xarray", "issfa.xarray")

LONGITUDES = {"lon", "longitude", "nav_lon", "x_lon"}
LATITUDES = {"lat", "latitude", "nav_lat"}
# Sites of less weight say nothing, and could not be divided by it.
LEAST_WEIGHT = 1e-6


class ISSFA:
    """Infinite structured sparse factor analysis of labelled data, with the methods that xeofs' models have.

    Parameters
    ----------
    n_modes : int, optional
        The most features there may be (``max_features``); their number is learned.
    weights : "coslat" or DataArray, optional
        What sites are multiplied by before the fit; ``"coslat"`` is the root of the cosine of the latitude. Where the noise
        is measured (``noise="reference"``) sites are divided by it anyway, and weights matter little.
    use_coslat : bool
        The same as ``weights="coslat"``.
    **parameters
        Those of ``issfa.ISSFA``. Without ``structure`` every axis is a ``path``, and a longitude that closes a ``cycle``.
    """

    def __init__(self, n_modes=None, *, weights=None, use_coslat=False, **parameters):
        if n_modes is not None:
            parameters["max_features"] = n_modes
        self.weights = "coslat" if use_coslat and weights is None else weights
        self.estimator = Estimator(**parameters)

    def __repr__(self):
        return f"issfa.xarray.{self.estimator!r}"

    def fit(self, data, dim, weights=None, **options):
        """Fits data whose samples lie along ``dim`` (a name, or several). NaN in all samples, as over land, is left out."""
        array = self._labelled(data)
        dims = [dim] if isinstance(dim, str) else list(dim)
        absent = [name for name in dims if name not in array.dims]
        if absent:
            raise UseError(f"dim = {dim!r}: the data have {', '.join(map(str, array.dims))}")
        self._name = data.name if isinstance(data, xr.DataArray) else next(iter(data.data_vars))
        self._is_dataset = isinstance(data, xr.Dataset)
        self._sample_dims = dims
        self._dims = [name for name in array.dims if name not in dims]
        if not self._dims:
            raise UseError(f"dim = {dim!r}: no axis is left for the sites")
        self._attributes = dict(array.attrs)
        self._units = array.attrs.get("units")
        self._place = array.isel({name: 0 for name in dims}, drop=True)
        self._weight = self._weights_of(weights if weights is not None else self.weights)
        values, self._samples = self._values(array)
        own = self.estimator.structure is None
        if own:
            self.estimator.structure = " x ".join(_structure(array[name]) if name in array.coords else "path" for name in self._dims)
        try:
            self.estimator.fit(values, **options)
        finally:
            # The parameter is the user's.
            self._structure, self.estimator.structure = self.estimator.structure, None if own else self.estimator.structure
        return self

    @property
    def structure(self):
        """The structure that was fitted."""
        return self._structure

    def fit_transform(self, data, dim, weights=None, **options):
        return self.fit(data, dim, weights, **options).transform(data)

    # What was found

    def components(self):
        """Features: mode x the axes of the sites; scores times components, and the mean, make the data."""
        return self._out(self._images(self.estimator.components_, "components", "posterior mean of the feature"))

    def components_sd(self):
        """Their posterior standard deviations."""
        return self._out(self._images(self.estimator.components_sd_, "components_sd", "posterior standard deviation"))

    def scores(self):
        """How strongly each sample uses them: mode x samples, in the units of the data."""
        return self._scores(self.estimator.weights_, self._samples, "scores")

    def activation(self):
        """How probably each sample uses them."""
        found = self._scores(self.estimator.activation_, self._samples, "activation")
        found.attrs.pop("units", None)
        return found

    def explained_variance_ratio(self):
        """The share of the sum of squares of each."""
        return self._by_mode(self.estimator.explained_variance_ratio_, "explained_variance_ratio")

    def presence(self):
        """The share of kept sweeps in which each was there."""
        return self._by_mode(self.estimator.presence_, "presence")

    def mean(self):
        """What was taken off the sites."""
        return self._out(self._image(self.estimator.mean_, "mean"))

    def noise_variance(self):
        """The variance of the noise at each site."""
        found = self._image(self.estimator.noise_variance_, "noise_variance", power=2)
        return self._out(found)

    def summary(self):
        return self.estimator.summary()

    def posterior(self, probes=None):
        return self.estimator.posterior(probes)

    def save(self, folder):
        self.estimator.save(folder)

    # New samples

    def transform(self, data):
        """Scores of new samples."""
        values, samples = self._values(self._labelled(data))
        return self._scores(self.estimator.transform(values), samples, "scores")

    def reconstruct(self, data=None):
        """Denoised samples; without data those of the fit (which then needs ``reconstruction=True``)."""
        if data is None:
            return self._rows(self.estimator.reconstruction_, self._samples)
        values, samples = self._values(self._labelled(data))
        return self._rows(self.estimator.reconstruct(values), samples)

    def inverse_transform(self, scores):
        """From scores back to data."""
        samples = [name for name in scores.dims if name != "mode"]
        stacked = scores.transpose(*samples, "mode")
        flat = np.asarray(stacked.values, dtype=float).reshape(-1, scores.sizes["mode"])
        places = np.asarray(scores["mode"].values, dtype=int) - 1 if "mode" in scores.coords else np.arange(flat.shape[1])
        weights = np.zeros((len(flat), self.estimator.n_components_))
        weights[:, places] = flat
        rows = self.estimator.inverse_transform(weights)
        sample = xr.Coordinates({name: scores[name] for name in samples if name in scores.coords})
        shape = [scores.sizes[name] for name in samples]
        return self._rows(rows, (samples, shape, sample))

    # Between labels and arrays

    def _labelled(self, data):
        if isinstance(data, xr.Dataset):
            names = list(data.data_vars)
            if len(names) != 1:
                raise UseError(f"the dataset has the variables {', '.join(map(str, names))}; choose one")
            return data[names[0]]
        if not isinstance(data, xr.DataArray):
            raise UseError(f"give a DataArray, not a {type(data).__name__}; issfa.ISSFA takes arrays")
        return data

    def _values(self, array):
        """Samples x sites, weighted, and what the samples are."""
        absent = [name for name in [*self._sample_dims, *self._dims] if name not in array.dims]
        if absent:
            raise UseError(f"the data lack {', '.join(map(str, absent))}; the fit had {', '.join(map(str, self._dims))}")
        for name in self._dims:
            if name in array.coords and name in self._place.coords and not array[name].equals(self._place[name]):
                raise UseError(f"{name} is not that of the fit; interpolate the data first")
        array = array.transpose(*self._sample_dims, *self._dims)
        samples = [array.sizes[name] for name in self._sample_dims]
        values = array.values.reshape(-1, *array.shape[len(samples) :])
        if self._weight is not None:
            values = values * self._weight.astype(values.dtype if values.dtype.kind == "f" else float)
        own = {name: array[name] for name in array.coords if set(array[name].dims) <= set(self._sample_dims)}
        return values, (self._sample_dims, samples, xr.Coordinates(own))

    def _weights_of(self, weights):
        """What the sites are multiplied by, on their axes; NaN leaves a site out."""
        if weights is None:
            return None
        if isinstance(weights, str):
            if weights != "coslat":
                raise UseError(f'weights = {weights!r}: give "coslat" or a DataArray')
            name = next((name for name in self._dims if _is_latitude(self._place, name)), None)
            if name is None:
                raise UseError(f'weights="coslat" needs a latitude among {", ".join(map(str, self._dims))}')
            weights = np.sqrt(np.cos(np.deg2rad(self._place[name])).clip(0, 1))
        elif not isinstance(weights, xr.DataArray):
            raise UseError('weights: give "coslat" or a DataArray')
        whole = weights.broadcast_like(self._place.drop_vars(set(self._place.coords) - set(weights.coords)))
        whole = whole.transpose(*self._dims).values.astype(float)
        return np.where(whole > LEAST_WEIGHT, whole, np.nan)

    def _image(self, values, name, power=1):
        values = np.asarray(values, dtype=float).reshape(self.estimator.grid_)
        if self._weight is not None:
            values = values / self._weight**power
        found = xr.DataArray(values, dims=self._dims, coords=self._site_coordinates(), name=name)
        if self._units:
            found.attrs["units"] = self._units if power == 1 else f"({self._units})^{power}"
        return found

    def _images(self, values, name, meaning):
        values = values.reshape(-1, *self.estimator.grid_)
        if self._weight is not None:
            values = values / self._weight
        found = xr.DataArray(values, dims=("mode", *self._dims), coords=self._site_coordinates(), name=name)
        found.attrs["long_name"] = meaning
        return found.assign_coords(mode=np.arange(1, len(values) + 1))

    def _scores(self, values, samples, name):
        dims, shape, coordinates = samples
        values = np.moveaxis(np.asarray(values).reshape(*shape, -1) if values.size else np.zeros((*shape, 0)), -1, 0)
        found = xr.DataArray(values, dims=("mode", *dims), coords=coordinates, name=name)
        if self._units:
            found.attrs["units"] = self._units
        return found.assign_coords(mode=np.arange(1, len(values) + 1))

    def _rows(self, values, samples):
        dims, shape, coordinates = samples
        values = np.asarray(values).reshape(*shape, *self.estimator.grid_)
        if self._weight is not None:
            values = values / self._weight.astype(values.dtype)
        found = xr.DataArray(values, dims=(*dims, *self._dims), coords=coordinates, name=self._name, attrs=self._attributes)
        return self._out(found.assign_coords(self._site_coordinates()))

    def _by_mode(self, values, name):
        return xr.DataArray(values, dims="mode", coords={"mode": np.arange(1, len(values) + 1)}, name=name)

    def _site_coordinates(self):
        return {name: self._place[name] for name in self._place.coords if set(self._place[name].dims) <= set(self._dims)}

    def _out(self, found):
        """A dataset for whoever gave one."""
        return found.to_dataset(name=self._name) if self._is_dataset else found


def _is_latitude(array, name):
    attributes = array[name].attrs if name in array.coords else {}
    return str(name).lower() in LATITUDES or attributes.get("standard_name") == "latitude" or attributes.get("units") == "degrees_north"


def _structure(axis):
    """``cycle`` for a longitude whose last site is the neighbour of its first, else ``path``."""
    attributes = axis.attrs
    is_longitude = (
        str(axis.name).lower() in LONGITUDES
        or attributes.get("standard_name") == "longitude"
        or attributes.get("units") == "degrees_east"
    )
    if not is_longitude or axis.ndim != 1 or axis.size < 3:
        return "path"
    values = np.asarray(axis.values, dtype=float)
    steps = np.abs(np.diff(values))
    is_even = np.allclose(steps, steps.mean(), rtol=1e-2)
    return "cycle" if is_even and np.isclose(axis.size * steps.mean(), 360, rtol=1e-3) else "path"
