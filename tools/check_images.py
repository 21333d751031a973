"""Opens everything that issfa writes for brain images with nibabel and nilearn: shapes, affines, values.

    cargo build --release && tools/python tools/check_images.py

Part of ./test. The images are made here: three runs of unequal length, an oblique affine, a spherical mask, two smooth
features of which one follows the same blocks in every run.
"""

import tempfile
from pathlib import Path

import program
import nibabel
import nilearn.image
import nilearn.maskers
import numpy as np
import pandas

GRID = (9, 10, 8)
LENGTHS = {"sub-01": 60, "sub-02": 50, "sub-03": 70}
TR = 2.5
DROPPED = 2
AFFINE = nibabel.affines.from_matvec(
    np.array([[-3.0, 0.2, 0.0], [0.2, 2.9, -0.5], [0.0, 0.6, 3.5]]), [20.0, -30.0, -10.0]
)


def mask():
    places = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in GRID], indexing="ij"))
    return (places**2).sum(0) < 1.1


def bump(middle, width=2.0):
    places = np.stack(np.meshgrid(*map(np.arange, GRID), indexing="ij"))
    return np.exp(-((places - np.reshape(middle, (3, 1, 1, 1))) ** 2).sum(0) / (2 * width**2))


def save(path, values, tr=None):
    image = nibabel.Nifti1Image(values, AFFINE)
    image.set_sform(AFFINE, code=4)
    image.set_qform(AFFINE, code=1, strip_shears=True)
    image.header.set_xyzt_units("mm", "sec")
    if tr:
        image.header["pixdim"][4] = tr
    nibabel.save(image, path)


def make(folder):
    """Runs as int16 with a slope, a mask, and confounds with a missing first value."""
    rng = np.random.default_rng(4)
    synchronous, own = bump((3, 3, 4)), bump((6, 7, 4))
    for name, n in LENGTHS.items():
        time = np.arange(n)
        blocks = ((time // 10) % 2 == 1).astype(float)
        confound = rng.normal(size=n).cumsum()
        sparse = np.where(rng.random(n) < 0.3, rng.normal(size=n) * 3, 0)
        data = 500 + 40 * np.multiply.outer(synchronous, blocks) + 20 * np.multiply.outer(own, sparse)
        data += 3 * confound + 0.5 * time + rng.normal(size=(*GRID, n)) * 5
        image = nibabel.Nifti1Image(np.round(data * 8).astype(np.int16), AFFINE)
        image.set_sform(AFFINE, code=4)
        image.header.set_xyzt_units("mm", "sec")
        image.header["pixdim"][4] = TR
        image.header.set_slope_inter(0.125, 0)
        nibabel.save(image, folder / f"{name}_bold.nii.gz")
        table = pandas.DataFrame({"drift": confound, "diff": np.diff(confound, prepend=np.nan)})
        table.to_csv(folder / f"{name}_confounds.tsv", sep="\t", na_rep="n/a", index=False)
    save(folder / "mask.nii.gz", mask().astype(np.uint8))


def opened(path, shape):
    """Opens an image both ways and checks its place."""
    image = nibabel.load(path)
    assert image.shape == shape, (path, image.shape, shape)
    np.testing.assert_allclose(image.affine, AFFINE, atol=1e-4)
    assert image.header["sform_code"] == 4 and image.header.get_xyzt_units()[0] == "mm", path
    again = nilearn.image.load_img(str(path))
    np.testing.assert_array_equal(again.get_fdata(), image.get_fdata())
    return image


def check_run(run):
    features = np.load(run / "features.npy")
    k = len(features)
    assert k >= 2, f"{k} features"
    inside = mask()
    volumes = opened(run / "features.nii.gz", (*GRID, k)).get_fdata()
    np.testing.assert_allclose(np.moveaxis(volumes, -1, 0)[:, inside], features[:, inside], rtol=1e-6)
    assert np.isnan(features[:, ~inside]).all(), "arrays are NaN outside of the mask"
    np.testing.assert_allclose(np.nansum(features**2, (1, 2, 3)), 1, atol=1e-4)
    assert (volumes[~inside] == 0).all() and (volumes[inside] != 0).any()
    z = opened(run / "features_z.nii.gz", (*GRID, k)).get_fdata()
    assert (np.sign(z[inside]) == np.sign(volumes[inside])).all() and np.abs(z).max() > 1
    for name in ["features_sd", "features_exceedance"]:
        values = opened(run / f"{name}.nii.gz", (*GRID, k)).get_fdata()
        np.testing.assert_allclose(np.moveaxis(values, -1, 0), np.nan_to_num(np.load(run / f"{name}.npy")), rtol=1e-6)
        assert values.min() >= 0 and (values[~inside] == 0).all()
    assert np.nanmax(np.load(run / "features_exceedance.npy")) <= 1
    thresholded = opened(run / "features_thresholded.nii.gz", (*GRID, k)).get_fdata()
    size = 2 * np.abs(volumes[inside]).mean(0)
    np.testing.assert_allclose(thresholded[inside], np.where(np.abs(volumes[inside]) >= size, volumes[inside], 0))
    np.testing.assert_array_equal(opened(run / "mask.nii.gz", GRID).get_fdata() > 0, inside)
    mean = opened(run / "mean.nii.gz", GRID).get_fdata()
    kept = [nibabel.load(run.parent / f"{name}_bold.nii.gz").get_fdata()[..., DROPPED:] for name in LENGTHS]
    np.testing.assert_allclose(mean[inside], np.concatenate(kept, -1).mean(-1)[inside], rtol=1e-5)
    melodic = opened(run / "melodic_IC.nii.gz", (*GRID, k)).get_fdata()
    sd = np.moveaxis(np.load(run / "features_sd.npy"), 0, -1)
    np.testing.assert_allclose(melodic[inside], volumes[inside] / sd[inside], rtol=1e-4)
    mix = np.loadtxt(run / "melodic_mix", ndmin=2)
    np.testing.assert_allclose(mix, np.load(run / "weights.npy"), rtol=1e-5)
    masker = nilearn.maskers.NiftiMasker(mask_img=str(run / "mask.nii.gz"), standardize=None).fit()
    assert masker.transform(str(run / "features.nii.gz")).shape == (k, inside.sum())


def check_tables(run, columns, runs):
    ids = pandas.read_csv(columns / "features.tsv", sep="\t")["id"]
    for kind in ["weights", "activation"]:
        whole = np.load(run / f"{kind}.npy")
        tables = [pandas.read_csv(run / f"{kind}_{name}.tsv", sep="\t", na_values="n/a") for name in runs]
        assert [len(table) for table in tables] == [LENGTHS[name.split("_")[0]] - DROPPED for name in runs]
        for table in tables:
            assert list(table.columns) == [f"feature_{id}" for id in ids]
        np.testing.assert_allclose(np.concatenate(tables), whole, atol=1e-5)


def check_ranking(run):
    """The feature of the blocks is the one that is alike in all runs."""
    ranking = pandas.read_csv(run / "synchrony.tsv", sep="\t")
    ids = list(pandas.read_csv(run / "features.tsv", sep="\t")["id"])
    top = np.nan_to_num(np.load(run / "features.npy")[ids.index(ranking["id"][0])])
    truth = bump((3, 3, 4)) * mask()
    cosine = (top * truth).sum() / np.linalg.norm(truth)
    assert cosine > 0.9 and ranking["correlation"][0] > 0.8 and ranking["p"][0] < 0.01, (cosine, ranking)


def check_transform(folder, run, name):
    """New images come back denoised, in their own place, and without the features that are dropped."""
    image = opened(folder / f"reconstruction_{name}.nii.gz", (*GRID, LENGTHS["sub-01"] - DROPPED))
    assert abs(image.header.get_zooms()[3] - TR) < 1e-6
    inside, values = mask(), image.get_fdata()
    array = np.moveaxis(np.load(folder / "reconstruction.npy"), 0, -1)
    np.testing.assert_allclose(values[inside], array[inside], rtol=1e-6)
    assert np.isnan(array[~inside]).all() and (values[~inside] == 0).all()
    raw = nibabel.load(run.parent / "sub-01_bold.nii.gz").get_fdata()[..., DROPPED:]
    np.testing.assert_allclose(values[inside].mean(), raw[inside].mean(), rtol=0.01)
    return values[inside]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        run, runs = folder / "run", [f"{name}_bold" for name in LENGTHS]
        program.call("fit", folder / "sub-*_bold.nii.gz", "--mask", folder / "mask.nii.gz", "--confounds",
                   folder / "sub-*_confounds.tsv", "--detrend", "linear", "--drop-volumes", DROPPED, "--melodic",
                   "--sweeps", 300, "--burn-in", 200, "--seed", 1, "--out", run, "--quiet")
        check_run(run)
        check_tables(run, run, runs)
        check_ranking(run)
        new, confounds = folder / "sub-01_bold.nii.gz", folder / "sub-01_confounds.tsv"
        common = [run, new, "--confounds", confounds, "--center-new", "own", "--quiet"]
        program.call("transform", *common, "--out", folder / "all")
        ranking = pandas.read_csv(run / "synchrony.tsv", sep="\t")
        alike = ",".join(map(str, ranking["id"][ranking["q"] < 0.05]))
        program.call("transform", *common, "--out", folder / "without", "--drop", alike)
        check_tables(folder / "all", run, runs[:1])
        whole, without = (check_transform(folder / part, run, runs[0]) for part in ["all", "without"])
        blocks = ((np.arange(LENGTHS["sub-01"]) // 10) % 2 == 1)[DROPPED:]
        effect = lambda values: np.abs(values[:, blocks].mean(1) - values[:, ~blocks].mean(1)).max()
        assert effect(without) < 0.2 * effect(whole), (effect(without), effect(whole))
    print("every image and table opens in nibabel, nilearn and pandas, with the right values")


if __name__ == "__main__":
    main()
