"""Sea surface temperature: patterns of anomalies with their time courses, land left out, longitude closed.

    python sea_temperature.py [FOLDER WITH *.nc] [--variable sst] [--out sea_temperature.png]

Needs xarray (and h5netcdf or netCDF4 for files). Without a folder, 40 years of months on a 6-degree globe are simulated.
"""

import argparse
from pathlib import Path

import issfa
import matplotlib
import numpy as np
import xarray as xr

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def simulated(n_years=40, seed=2):
    rng = np.random.default_rng(seed)
    latitudes, longitudes = np.arange(-57, 60, 6.0), np.arange(0, 360, 6.0)
    times = np.datetime64("1980-01") + np.arange(12 * n_years)
    y, x = np.meshgrid(latitudes, longitudes, indexing="ij")

    def spot(lat, lon, height, width):
        east = (x - lon + 180) % 360 - 180
        return np.exp(-(((y - lat) / height) ** 2) - (east / width) ** 2)

    patterns = np.stack([spot(0, 230, 10, 50), spot(40, 190, 14, 35) - spot(25, 220, 10, 30), spot(-30, 0, 12, 30)])
    # Events: a pattern is there for a year or two, warm or cold, and then is not.
    courses = np.zeros((len(times), 3))
    for pattern in range(3):
        for start in rng.choice(len(times) - 24, 9, replace=False):
            length = rng.integers(10, 24)
            courses[start : start + length, pattern] += rng.normal(0, 2) * np.sin(np.pi * np.arange(length) / length)
    year = np.cos(2 * np.pi * np.arange(len(times)) / 12)
    values = 28 * np.cos(np.deg2rad(y)) ** 2 + np.tensordot(courses, patterns, 1)
    values = values + year[:, None, None] * 4 * np.sin(np.deg2rad(y)) + rng.normal(0, 0.5, (len(times), *y.shape))
    land = (spot(5, 20, 30, 20) + spot(50, 60, 14, 50) + spot(45, 260, 14, 30) + spot(-15, 300, 25, 15)) > 0.5
    coordinates = {"time": times.astype("datetime64[ns]"), "lat": latitudes, "lon": longitudes}
    return xr.DataArray(np.where(land, np.nan, values), coordinates, ("time", "lat", "lon"), name="sst", attrs={"units": "degC"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--variable", default="sst")
    parser.add_argument("--out", default="sea_temperature.png")
    parser.add_argument("--sweeps", type=int, default=300)
    options = parser.parse_args()
    if options.folder:
        parts = [xr.open_dataset(file)[options.variable] for file in sorted(options.folder.glob("*.nc"))]
        data = xr.concat(parts, "time")
    else:
        data = simulated()
    anomalies = data.groupby("time.month") - data.groupby("time.month").mean()
    anomalies.attrs.update(data.attrs)
    model = issfa.xarray.ISSFA(sweeps=options.sweeps, random_state=0).fit(anomalies, dim="time")
    print(model.structure)
    print(model.summary())
    components, scores = model.components(), model.scores()
    n = min(4, components.sizes["mode"])
    figure, axes = plt.subplots(n, 2, figsize=(13, 2.3 * n), layout="constrained", squeeze=False, width_ratios=[1, 1.3])
    for mode, (left, right) in zip(components["mode"].values[:n], axes):
        course = scores.sel(mode=mode)
        size = float(course.std())
        (size * components.sel(mode=mode)).plot(ax=left, cmap="RdBu_r", cbar_kwargs={"label": data.attrs.get("units", "")})
        left.set_facecolor("0.6")
        left.set_title(f"feature {mode} at one standard deviation")
        right.plot(course["time"], course / size, linewidth=0.8)
        right.set_ylabel("standard deviations")
        right.set_title(f"{float(model.explained_variance_ratio().sel(mode=mode)):.0%} of the sum of squares", fontsize=9)
    figure.savefig(options.out, dpi=110)
    print(options.out)


if __name__ == "__main__":
    main()
