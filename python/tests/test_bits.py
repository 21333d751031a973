"""Python and the command line on the same data, settings and seed: the same bits; and folders go from one to the other."""

import shutil
import subprocess
import time

import issfa
import numpy as np
import pytest
from conftest import GRID, REPOSITORY, assert_same_bits, simulated

KINDS = {
    "plain": ({}, []),
    "white, both centred, detrended": (
        {"noise": "white", "center": "both", "detrend": "linear", "precision": "f64"},
        ["--noise", "white", "--center", "both", "--detrend", "linear", "--precision", "f64"],
    ),
    "Student weights": ({"weights": "student"}, ["--weights", "student"]),
    "chains": ({"chains": 2, "reconstruction": True}, ["--chains", 2, "--reconstruct"]),
    "curve and priors": (
        {"curve": "axes", "structure": "cycle x path", "max_features": 6, "noise_prior": (3, 2.5), "keep_draws": 4},
        ["--curve", "axes", "--structure", "cycle x path", "--max-features", 6, "--noise-prior", "3,2.5", "--keep-draws", 4],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_give_the_bits_of_files(kind, rows, command, tmp_path):
    parameters, options = KINDS[kind]
    np.save(tmp_path / "x.npy", rows)
    command("fit", tmp_path / "x.npy", "--sweeps", 45, "--seed", 3, "--out", tmp_path / "run", *options)
    model = issfa.ISSFA(sweeps=45, random_state=3, **parameters).fit(rows)
    of_command = issfa.open(tmp_path / "run")
    assert_same_bits(model, of_command)
    np.testing.assert_array_equal(np.load(tmp_path / "run/features.npy").reshape(len(model.components_), -1), model.components_)
    if "reconstruction" in parameters:
        np.testing.assert_array_equal(np.load(tmp_path / "run/reconstruction.npy"), model.reconstruction_)
        np.testing.assert_array_equal(of_command.reconstruction_, model.reconstruction_)
    # New rows as the command infers them.
    new = simulated(40, seed=4)
    np.save(tmp_path / "new.npy", new)
    command("transform", tmp_path / "run", tmp_path / "new.npy", "--out", tmp_path / "new")
    for array, name in zip(model.infer(new), ("weights", "activation", "reconstruction")):
        np.testing.assert_array_equal(array, np.load(tmp_path / f"new/{name}.npy").astype(array.dtype))


def test_rows_of_a_series_may_differ_in_noise(command, tmp_path):
    rng = np.random.default_rng(2)
    row, site = np.mgrid[:120, :144]
    level = np.where(row % 20 < 8, 1.5, 0.8)
    rows = 2 * np.sin(row / 9) * np.cos(site / 20) + level * rng.normal(size=row.shape)
    np.save(tmp_path / "x.npy", rows)
    command("fit", tmp_path / "x.npy", "--grid", "12x12", "--sweeps", 12, "--seed", 3, "--row-noise", "--out", tmp_path / "run")
    model = issfa.ISSFA(grid=(12, 12), sweeps=12, random_state=3)
    alike = model.fit(rows).weights_
    assert_same_bits(model.set_params(row_noise=True).fit(rows), issfa.open(tmp_path / "run"))
    assert alike.shape != model.weights_.shape or (alike != model.weights_).any()


def test_a_fit_goes_on_until_it_has_settled(rows, command, tmp_path):
    """As the verdict of its summary advises, from an object and from a folder, and ends that by a number of sweeps."""
    settings = dict(sweeps=60, burn_in=30, thin=2, random_state=6)
    np.save(tmp_path / "x.npy", rows)
    words = ["--sweeps", 60, "--burn-in", 30, "--thin", 2, "--seed", 6]
    command("fit", tmp_path / "x.npy", *words, "--out", tmp_path / "run")
    model = issfa.ISSFA(**settings).fit(rows)
    command("resume", tmp_path / "run", "--until", "settled", "--sweeps", 450)
    model.resume(rows, until="settled", sweeps=450)
    assert model.n_iter_ > 60
    assert_same_bits(model, issfa.open(tmp_path / "run"))
    done = model.n_iter_
    command("resume", tmp_path / "run", "--sweeps", "+10")
    model.resume(rows, sweeps="+10")
    assert model.n_iter_ == done + 10
    assert_same_bits(model, issfa.open(tmp_path / "run"))
    with pytest.raises(issfa.UseError, match="^until = soon: write sweeps or settled"):
        model.resume(rows, until="soon")
    with pytest.raises(issfa.UseError, match="^sweeps = 3: a run cannot be made shorter"):
        model.resume(rows, sweeps=3)


def test_a_mask_and_missing_cells(rows, command, tmp_path):
    x = rows.copy()
    x[4, 2, 3] = x[50, :, 4] = np.nan
    mask = np.ones(GRID, bool)
    mask[:2, :3] = False
    x[:, ~mask] = np.nan
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "mask.npy", mask)
    words = ["--mask", tmp_path / "mask.npy", "--missing", "impute", "--sweeps", 30, "--seed", 1]
    command("fit", tmp_path / "x.npy", *words, "--out", tmp_path / "run")
    of_command = issfa.open(tmp_path / "run")
    for given in (mask, tmp_path / "mask.npy"):
        model = issfa.ISSFA(mask=given, missing="impute", sweeps=30, random_state=1).fit(x)
        assert_same_bits(model, of_command)
    assert np.isnan(model.components_.reshape(-1, *GRID)[:, ~mask]).all()


def test_several_runs_with_confounds(rows, command, tmp_path):
    rng = np.random.default_rng(1)
    tables = [rng.normal(size=(n, 2)) for n in (70, 50)]
    parts = [rows[:70], rows[70:]]
    for at, (part, table) in enumerate(zip(parts, tables)):
        np.save(tmp_path / f"run{at}.npy", part)
        text = "\n".join(",".join(repr(float(x)) for x in line) for line in table)
        (tmp_path / f"confounds{at}.csv").write_text("a,b\n" + text + "\n")
    files = [tmp_path / f"run{at}.npy" for at in (0, 1)]
    confounds = [tmp_path / f"confounds{at}.csv" for at in (0, 1)]
    words = ["--sweeps", 30, "--seed", 1, "--drop-volumes", 2, "--confounds", *confounds]
    command("fit", *files, *words, "--out", tmp_path / "run")
    of_command = issfa.open(tmp_path / "run")
    make = lambda: issfa.ISSFA(sweeps=30, random_state=1, drop_volumes=2)
    assert_same_bits(make().fit([str(file) for file in files], confounds=confounds), of_command)
    runs = ["first"] * 70 + ["second"] * 50
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(table, columns=["a", "b"]) for table in tables]
    short = make().fit(rows, runs=runs, confounds=frames)
    assert_same_bits(short, of_command)
    # The runs are known when it goes on.
    short.resume(rows, sweeps="+5", confounds=frames)
    assert_same_bits(short, make().set_params(sweeps=35, burn_in=20, thin=1).fit(rows, runs=runs, confounds=frames))


def test_held_out_rows_are_traced(rows, command, tmp_path):
    np.save(tmp_path / "x.npy", rows[:90])
    np.save(tmp_path / "left.npy", rows[90:])
    words = ["--heldout", tmp_path / "left.npy", "--sweeps", 12, "--seed", 1, "--out", tmp_path / "run"]
    command("fit", tmp_path / "x.npy", *words)
    for left in (rows[90:], tmp_path / "left.npy"):
        model = issfa.ISSFA(sweeps=12, random_state=1).fit(rows[:90], heldout=left)
        assert_same_bits(model, issfa.open(tmp_path / "run"))
    assert np.isfinite(model._fitted.trace()["heldout_residual"]).all()


def test_a_folder_goes_from_one_to_the_other(rows, command, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    whole = issfa.ISSFA(sweeps=50, burn_in=20, thin=1, random_state=6).fit(rows)
    # Begun by the command, gone on with by Python.
    words = ["--sweeps", 30, "--burn-in", 20, "--thin", 1, "--seed", 6]
    command("fit", tmp_path / "x.npy", *words, "--out", tmp_path / "one")
    assert_same_bits(issfa.open(tmp_path / "one").resume(sweeps="+20"), whole)
    # Begun by Python, gone on with by the command.
    short = issfa.ISSFA(sweeps=30, burn_in=20, thin=1, random_state=6)
    short.fit(str(tmp_path / "x.npy"), out=tmp_path / "two")
    command("resume", tmp_path / "two", "--sweeps", 50)
    assert_same_bits(issfa.open(tmp_path / "two"), whole)
    # Of an array, which the folder does not hold, and in memory.
    short.fit(rows, out=tmp_path / "three")
    with pytest.raises(issfa.UseError, match="give the array again as X"):
        issfa.open(tmp_path / "three").resume(sweeps=50)
    with pytest.raises(issfa.UseError, match="belongs to other data"):
        issfa.open(tmp_path / "three").resume(rows + 1, sweeps=50)
    assert_same_bits(issfa.open(tmp_path / "three").resume(np.asfortranarray(rows), sweeps=50), whole)
    assert_same_bits(issfa.ISSFA(sweeps=30, burn_in=20, thin=1, random_state=6).fit(rows).resume(rows, sweeps=50), whole)
    # The command takes the array from a file.
    for dtype in (np.float64, np.float32):
        short.set_params(overwrite=True).fit(rows.astype(dtype), out=tmp_path / "four")
        np.save(tmp_path / "array.npy", rows.astype(dtype))
        command("resume", tmp_path / "four", tmp_path / "array.npy", "--sweeps", 50)
        longer = issfa.ISSFA(sweeps=50, burn_in=20, thin=1, random_state=6).fit(rows.astype(dtype))
        assert_same_bits(issfa.open(tmp_path / "four"), longer)
    # A folder that was saved is one that every command takes.
    whole.save(tmp_path / "saved")
    assert "Verdict" in command("summary", tmp_path / "saved")
    np.save(tmp_path / "new.npy", rows[:4])
    command("transform", tmp_path / "saved", tmp_path / "new.npy", "--out", tmp_path / "new")
    with pytest.raises(issfa.UseError, match="exists already; choose another out, or add overwrite=True"):
        whole.save(tmp_path / "saved")


def test_a_folder_that_is_still_being_written_can_be_opened(rows, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    words = ["fit", tmp_path / "x.npy", "--sweeps", 10**6, "--burn-in", 5, "--checkpoint-every", "0s", "--out", tmp_path / "run"]
    child = subprocess.Popen([REPOSITORY / "target/release/issfa", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        # Until the first checkpoint its files wait in a folder of their own.
        run = tmp_path / "run"
        while not (run / "checkpoint/state.safetensors").exists() or list(run.glob(".issfa-run-*")):
            assert child.poll() is None, child.stdout.read()
            time.sleep(0.01)
        model = issfa.open(tmp_path / "run")
        assert model.sweeps == 10**6 and model.n_iter_ < 10**6 and "The run stands at sweep" in str(model.summary())
        with pytest.raises(issfa.UseError, match="is in use by"):
            model.resume()
    finally:
        child.terminate()
        child.wait()


def test_overwriting_and_what_is_there(rows, tmp_path):
    model = issfa.ISSFA(sweeps=4, random_state=0, out=tmp_path / "run")
    model.fit(rows)
    with pytest.raises(issfa.UseError, match="overwrite=True"):
        model.fit(rows)
    model.set_params(overwrite=True, sweeps=5).fit(rows)
    assert issfa.open(tmp_path / "run").n_iter_ == 5
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(issfa.UseError, match="run"):
        issfa.open(tmp_path / "run")
