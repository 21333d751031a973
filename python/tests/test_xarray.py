"""Labelled data in and out."""

import issfa
import numpy as np
import pytest
from conftest import assert_same_bits, simulated

xr = pytest.importorskip("xarray")

N_TIMES = 90
LATITUDES, LONGITUDES = np.linspace(-60, 60, 9), np.arange(0, 360, 30.0)


def labelled(seed=0, n_times=N_TIMES):
    """Months of temperature with land, which is NaN."""
    values = simulated(n_times, (len(LATITUDES), len(LONGITUDES)), seed=seed) + 15
    values[:, 3:5, 2:4] = np.nan
    times = np.datetime64("2000-01") + np.arange(n_times)
    coordinates = {"time": times.astype("datetime64[ns]"), "lat": LATITUDES, "lon": LONGITUDES}
    data = xr.DataArray(values, coordinates, ("time", "lat", "lon"), name="sst", attrs={"units": "degC"})
    data["lat"].attrs["units"] = "degrees_north"
    return data


@pytest.fixture(scope="module")
def data():
    return labelled()


@pytest.fixture(scope="module")
def model(data):
    return issfa.xarray.ISSFA(sweeps=50, random_state=1, reconstruction=True).fit(data, dim="time")


def test_coordinates_names_and_units_are_kept(model, data):
    components, scores = model.components(), model.scores()
    assert components.dims == ("mode", "lat", "lon") and components.sizes["mode"] > 0
    assert scores.dims == ("mode", "time") and scores.attrs["units"] == "degC"
    for found in (components, model.components_sd(), model.mean(), model.noise_variance(), model.reconstruct()):
        xr.testing.assert_equal(found["lat"], data["lat"])
        assert found["lat"].attrs["units"] == "degrees_north"
        assert np.isnan(found.values[..., 3:5, 2:4]).all()
        assert np.isfinite(found.values[..., :3, :]).all()
    xr.testing.assert_equal(scores["time"], data["time"])
    back = model.reconstruct()
    assert (back.name, back.dims, back.attrs["units"]) == ("sst", data.dims, "degC")
    assert model.noise_variance().attrs["units"] == "(degC)^2"
    assert model.explained_variance_ratio().dims == model.presence().dims == ("mode",)
    assert set(np.unique(np.isfinite(model.activation()))) == {True}
    assert "persistent" in str(model.summary())


def test_a_longitude_that_closes_is_a_cycle(model, data):
    assert model.structure == "path x cycle"
    assert model.estimator._fitted.structure == "path(9) x cycle(12)"
    assert model.estimator.structure is None, "the parameter is the user's"
    half = issfa.xarray.ISSFA(sweeps=3, random_state=0).fit(data.isel(lon=slice(0, 6)), dim="time")
    assert half.structure == "path x path"
    own = issfa.xarray.ISSFA(sweeps=3, random_state=0, structure="iid x path").fit(data, dim="time")
    assert own.estimator.structure == own.structure == "iid x path"


def test_bits_are_those_of_the_array(model, data):
    plain = issfa.ISSFA(sweeps=50, random_state=1, structure="path x cycle", reconstruction=True).fit(data.values)
    assert_same_bits(model.estimator, plain)
    turned = issfa.xarray.ISSFA(sweeps=50, random_state=1, reconstruction=True).fit(data.transpose("lat", "lon", "time"), dim="time")
    assert_same_bits(turned.estimator, plain)


def test_new_samples_go_there_and_back(model, data):
    new = labelled(seed=5, n_times=12)
    scores = model.transform(new)
    assert scores.dims == ("mode", "time") and scores.sizes["time"] == 12
    back = model.inverse_transform(scores)
    assert back.dims == ("time", "lat", "lon") and back.attrs["units"] == "degC"
    denoised = model.reconstruct(new)
    inside = np.isfinite(back.values)
    assert np.corrcoef(back.values[inside], denoised.values[inside])[0, 1] > 0.95
    # Some modes only: the others are 0.
    first = model.inverse_transform(scores.sel(mode=[1]))
    expected = model.mean() + model.components().sel(mode=1) * scores.sel(mode=1)
    np.testing.assert_allclose(first.values, expected.transpose(*first.dims).values, rtol=1e-5)
    with pytest.raises(issfa.UseError, match="lat is not that of the fit"):
        model.transform(new.assign_coords(lat=LATITUDES + 1))
    with pytest.raises(issfa.UseError, match="lack lon"):
        model.transform(new.isel(lon=0))


def test_weights_by_latitude(data):
    model = issfa.xarray.ISSFA(sweeps=40, random_state=1, noise="white", weights="coslat").fit(data, dim="time")
    weight = np.sqrt(np.cos(np.deg2rad(LATITUDES)))[:, None]
    plain = issfa.ISSFA(sweeps=40, random_state=1, noise="white", structure="path x cycle").fit(data.values * weight)
    assert_same_bits(model.estimator, plain)
    # What comes back is in the units of the data.
    assert abs(float(model.mean().sel(lat=-60).mean()) - 15) < 1
    back = model.inverse_transform(model.transform(data))
    assert float(((back - data) ** 2).mean()) < float(((data - data.mean("time")) ** 2).mean())
    given = xr.DataArray(weight[:, 0], {"lat": LATITUDES}, ("lat",))
    assert_same_bits(issfa.xarray.ISSFA(sweeps=40, random_state=1, noise="white").fit(data, "time", weights=given).estimator, plain)
    poles = data.assign_coords(lat=np.linspace(-90, 90, 9))
    found = issfa.xarray.ISSFA(sweeps=5, random_state=1, use_coslat=True).fit(poles, dim="time")
    assert np.isnan(found.mean().sel(lat=90)).all(), "a site of no weight is left out"


def test_the_first_example_of_xeofs_runs(data):
    t2m = data.fillna(15).to_dataset()
    model = issfa.xarray.ISSFA(n_modes=10, sweeps=30, random_state=0)
    model.fit(t2m, dim="time")
    comps = model.components()
    scores = model.scores()
    assert list(comps.data_vars) == ["sst"] and 0 < comps.sizes["mode"] <= 10
    assert scores.sizes == {"mode": comps.sizes["mode"], "time": N_TIMES}


def test_several_sample_axes(data):
    blocks = data.values.reshape(9, 10, *data.shape[1:])
    array = xr.DataArray(blocks, dims=("year", "month", "lat", "lon"), coords={"lat": LATITUDES, "lon": LONGITUDES})
    model = issfa.xarray.ISSFA(sweeps=30, random_state=1).fit(array, dim=("year", "month"))
    assert model.scores().dims == ("mode", "year", "month")
    assert model.reconstruct(array).dims == array.dims
    np.testing.assert_array_equal(
        model.scores().values.reshape(model.estimator.n_components_, -1).T, model.estimator.weights_
    )


def test_wrong_use_is_named(data):
    make = issfa.xarray.ISSFA
    with pytest.raises(issfa.UseError, match="dim = 'tiem': the data have time, lat, lon"):
        make().fit(data, dim="tiem")
    with pytest.raises(issfa.UseError, match="give a DataArray"):
        make().fit(data.values, dim="time")
    with pytest.raises(issfa.UseError, match="choose one"):
        make().fit(xr.Dataset({"a": data, "b": data}), dim="time")
    with pytest.raises(issfa.UseError, match='weights="coslat" needs a latitude'):
        make(weights="coslat").fit(data.rename(lat="row").drop_vars("row"), dim="time")
    with pytest.raises(issfa.UseError, match='missing="impute"'):
        hole = data.copy()
        hole[3, 0, 0] = np.nan
        make(sweeps=3).fit(hole, dim="time")


def test_netcdf_comes_in_this_way(data, tmp_path):
    pytest.importorskip("h5netcdf")
    data.to_netcdf(tmp_path / "sst.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "sst.nc", engine="h5netcdf") as stored:
        model = issfa.xarray.ISSFA(sweeps=10, random_state=0).fit(stored, dim="time")
    assert_same_trace = model.estimator.trace_["n_features"].tolist()
    twin = issfa.xarray.ISSFA(sweeps=10, random_state=0).fit(data, dim="time")
    assert assert_same_trace == twin.estimator.trace_["n_features"].tolist()
