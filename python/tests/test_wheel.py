"""The wheel where there is no compiler: a clean environment, and a fit."""

import subprocess
import sys
import zipfile

import pytest
from conftest import REPOSITORY

FIT = """
import sys, numpy as np, issfa
x = np.random.default_rng(0).normal(size=(40, 5, 6))
model = issfa.ISSFA(sweeps=10, random_state=0).fit(x)
assert model.n_iter_ == 10 and model.transform(x).shape[0] == 40
print(sorted({name.split(".")[0] for name in sys.modules} & {"xarray", "nibabel", "nilearn", "arviz", "tqdm", "pandas"}))
try:
    issfa.xarray
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheel():
    found = sorted((REPOSITORY / "target/wheels").glob("issfa-*.whl"))
    if not found:
        pytest.skip("tools/package makes the wheel")
    return found[0]


def test_what_is_in_it(wheel):
    assert "cp311-abi3" in wheel.name
    assert wheel.stat().st_size < 15e6
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    for name in ("__init__.py", "_engine.abi3.so", "_engine.pyi", "py.typed", "xarray.py", "images.py"):
        assert f"issfa/{name}" in names
    assert not [name for name in names if "test" in name or "example" in name]


def test_it_fits_in_a_clean_environment(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    python = tmp_path / "clean/bin/python"
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", wheel]
    subprocess.run([python, *words], check=True, env={"PATH": "/usr/bin:/bin"})
    done = subprocess.run([python, "-c", FIT], env={"PATH": ""}, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    nothing, advice = done.stdout.splitlines()
    assert nothing == "[]", "only what is needed is imported"
    assert advice == "issfa.xarray needs xarray: pip install 'issfa[xarray]', or pip install xarray"
