"""The posterior for ArviZ."""

import warnings

import issfa
import numpy as np
import pytest
from conftest import GRID, simulated

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    az = pytest.importorskip("arviz")


@pytest.fixture(scope="module")
def model():
    settings = dict(sweeps=260, burn_in=60, thin=2, chains=2, keep_draws=6, random_state=4, reconstruction=True)
    return issfa.ISSFA(**settings).fit(simulated(80))


@pytest.fixture(scope="module")
def posterior(model):
    return model.posterior()


def test_all_of_it_is_there(model, posterior):
    sampled = posterior["posterior"]
    for name in ("K", "noise_variance", "theta", "alpha", "beta", "ln_likelihood"):
        assert dict(sampled[name].sizes)["chain"] == 2 and dict(sampled[name].sizes)["draw"] == 200
    assert list(sampled["parameter"].values) == ["ridge", "roughness"]
    assert set(posterior["sample_stats"].data_vars) >= {"births", "deaths", "theta_accepted", "seconds"}
    trace = model._fitted.trace()
    np.testing.assert_array_equal(sampled["K"].values[1], trace["n_features"][(trace["chain"] == 2) & (trace["sweep"] > 60)])


def test_kept_draws_are_matched(model, posterior):
    kept = posterior["kept_draws"]
    features, present = kept["features"].values, kept["feature_present"].values
    assert features.shape[0] == 2 and features.shape[2:] == (model.n_components_, *GRID)
    flat = features.reshape(*features.shape[:3], -1)
    norms = np.linalg.norm(flat, axis=-1)
    np.testing.assert_allclose(norms, present, atol=1e-5)
    assert present.mean() > 0.8
    # Turned to the mean, which they make up.
    cosines = (flat * model.components_).sum(-1)[present]
    assert cosines.min() > 0.5
    assert (kept["sweep"].values > 60).all() and (np.diff(kept["sweep"].values) > 0).all()


def test_probed_cells_are_near_the_mean_of_all_sweeps(model):
    cells = [(row, site) for row in (0, 30, 79) for site in (0, 40, 95)]
    values = model.posterior(probes=cells)["kept_draws"]["reconstruction"].values
    means = model.reconstruction_.reshape(80, -1)
    expected = np.array([means[cell] for cell in cells])
    spread = values.reshape(-1, len(cells)).std(0) + 0.05
    assert (np.abs(values.mean((0, 1)) - expected) < 3 * spread).all()
    with pytest.raises(issfa.UseError, match=r"probes = \(80, 0\): there are 80 rows"):
        model.posterior(probes=[(80, 0)])


def test_arviz_agrees_with_the_summary(model, posterior):
    quantities = {one["name"]: one for one in model.summary()["quantities"]}
    names = {"K": "features", "noise_variance": "noise variance", "alpha": "ibp strength", "ln_likelihood": "ln likelihood"}
    r_hat, ess = az.rhat(posterior, method="split"), az.ess(posterior, method="mean")
    for name, ours in names.items():
        assert float(r_hat[name]) == pytest.approx(quantities[ours]["split_r_hat"], rel=1e-9)
        assert float(ess[name]) == pytest.approx(quantities[ours]["effective_sample_size"], rel=1e-6)
    table = az.summary(posterior, var_names=list(names), round_to="none")
    for name, ours in names.items():
        assert table.loc[name, "mean"] == pytest.approx(quantities[ours]["mean"], rel=1e-6)
        assert table.loc[name, "r_hat"] == pytest.approx(quantities[ours]["rank_r_hat"], rel=1e-6)
        assert table.loc[name, "ess_bulk"] == pytest.approx(quantities[ours]["bulk_ess"], rel=1e-6)


def test_every_quantity_agrees_by_ranks(model, posterior):
    """Also those with ties and long tails."""
    names = {"n_shared": "shared features", "n_activations": "activations", "beta": "ibp repulsion", "alpha": "ibp strength"}
    quantities = {one["name"]: one for one in model.summary()["quantities"]}
    r_hat, ess = az.rhat(posterior), az.ess(posterior)
    for name, ours in names.items():
        if np.ptp(posterior["posterior"][name].values) == 0:
            # Of what never changes ArviZ has no R-hat; ours is that of chains which agree.
            assert np.isnan(r_hat[name]) and quantities[ours]["rank_r_hat"] == 1
        else:
            assert float(r_hat[name]) == pytest.approx(quantities[ours]["rank_r_hat"], rel=1e-6)
        assert float(ess[name]) == pytest.approx(quantities[ours]["bulk_ess"], rel=1e-6)
    for at, parameter in enumerate(posterior["posterior"]["parameter"].values):
        assert float(r_hat["theta"][at]) == pytest.approx(quantities[f"theta: {parameter}"]["rank_r_hat"], rel=1e-6)


def test_a_fit_without_kept_sweeps_says_so():
    class Enough(Exception):
        pass

    def stop(sweep):
        raise Enough

    model = issfa.ISSFA(sweeps=50, random_state=0)
    with pytest.raises(Enough):
        model.fit(simulated(30), callback=stop)
    with pytest.raises(issfa.UseError, match=r"no sweep after burn-in.*resume\(X\)"):
        model.posterior()
