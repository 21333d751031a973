"""Brain images as nilearn has them."""

import issfa
import numpy as np
import pytest
from conftest import assert_same_bits

nibabel = pytest.importorskip("nibabel")
pytest.importorskip("nilearn")

GRID = (7, 8, 6)
AFFINE = np.diag([3.0, 3, 4, 1])


def volumes(n, seed):
    rng = np.random.default_rng(seed)
    x, y, z = np.meshgrid(*[np.linspace(0, 1, m) for m in GRID], indexing="ij")
    features = np.stack([np.sin(3 * x + k) * np.cos(2 * k * y + z) for k in range(2)])
    courses = np.cumsum(rng.normal(size=(n, 2)), axis=0)
    return (100 + np.tensordot(courses, features, 1) + 0.5 * rng.normal(size=(n, *GRID))).astype(np.float32)


@pytest.fixture(scope="module")
def study():
    runs = [volumes(60, 1), volumes(50, 2)]
    inside = np.zeros(GRID, np.uint8)
    inside[1:6, 1:7, 1:5] = 1
    images = [nibabel.Nifti1Image(np.moveaxis(run, 0, -1), AFFINE) for run in runs]
    return images, nibabel.Nifti1Image(inside, AFFINE), runs


@pytest.fixture(scope="module")
def model(study):
    images, mask, _ = study
    return issfa.images.ISSFA(mask, sweeps=40, random_state=1).fit(images)


def test_images_come_out(model, study):
    images, mask, runs = study
    k = model.n_components_
    assert k > 0
    for found in (model.components_img_, model.components_z_img_, model.components_sd_img_):
        assert found.shape == (*GRID, k)
        np.testing.assert_allclose(found.affine, AFFINE)
        assert (found.get_fdata()[np.asarray(mask.dataobj) == 0] == 0).all()
    assert [weights.shape for weights in model.weights_] == [(60, k), (50, k)]
    courses = model.transform(images)
    assert [one.shape for one in courses] == [(60, k), (50, k)]
    np.testing.assert_array_equal(model.transform(images[1])[0], courses[1])
    back = model.inverse_transform(courses)
    assert back[0].shape == images[0].shape
    np.testing.assert_array_equal(model.masker_.transform(model.components_img_), model.components_.astype(np.float32))
    assert "path(7) x path(8) x path(6)" in str(model.summary())


def test_bits_are_those_of_the_command(model, study, command, tmp_path):
    images, mask, _ = study
    names = [tmp_path / f"sub-{at}_bold.nii.gz" for at in (1, 2)]
    for one, name in zip([*images, mask], [*names, tmp_path / "mask.nii.gz"]):
        nibabel.save(one, name)
    words = ["--mask", tmp_path / "mask.nii.gz", "--detrend", "linear", "--sweeps", 40, "--seed", 1, "--out", tmp_path / "run"]
    command("fit", *names, *words)
    assert_same_bits(model.estimator_, issfa.open(tmp_path / "run"))
    from_files = issfa.images.ISSFA(tmp_path / "mask.nii.gz", sweeps=40, random_state=1).fit([str(name) for name in names])
    assert_same_bits(from_files.estimator_, model.estimator_)


def test_confounds_from_frames_and_files(study, tmp_path):
    pandas = pytest.importorskip("pandas")
    images, mask, _ = study
    rng = np.random.default_rng(0)
    frames = [pandas.DataFrame(rng.normal(size=(n, 2)), columns=["motion", "motion_derivative"]) for n in (60, 50)]
    frames[0].loc[0, "motion_derivative"] = np.nan
    files = [tmp_path / f"{at}.tsv" for at in (0, 1)]
    for frame, file in zip(frames, files):
        frame.to_csv(file, sep="\t", index=False, na_rep="n/a", float_format="%.17g")
    make = lambda: issfa.images.ISSFA(mask, sweeps=20, random_state=1)
    one, other = make().fit(images, confounds=frames), make().fit(images, confounds=files)
    assert_same_bits(one.estimator_, other.estimator_)
    assert [course.shape[0] for course in one.transform(images, frames)] == [60, 50]
    with pytest.raises(issfa.UseError, match="the run had confounds taken out"):
        one.transform(images)
    with pytest.raises(issfa.UseError, match="confounds has 1 tables for 2 images"):
        make().fit(images, confounds=frames[:1])


def test_maps_plot_with_nilearn(model, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from nilearn import image, plotting

    display = plotting.plot_stat_map(image.index_img(model.components_z_img_, 0), bg_img=None, display_mode="z", cut_coords=2)
    display.savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000


def test_wrong_use_is_named(study):
    images, mask, _ = study
    with pytest.raises(issfa.UseError, match="has 3 axes; give 4-D images"):
        issfa.images.ISSFA(mask).fit([mask])
    moved = nibabel.Nifti1Image(np.asarray(images[0].dataobj), 2 * AFFINE)
    with pytest.raises(issfa.UseError, match="does not lie where"):
        issfa.images.ISSFA(mask).fit([images[0], moved])
    with pytest.raises(issfa.UseError, match="empty"):
        issfa.images.ISSFA(mask).fit([])
