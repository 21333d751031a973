//! The prior distributions, each with its parameterisation spelt out.

/// Gamma with `shape` and `rate`: density proportional to `x^(shape-1) exp(-rate x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GammaPrior {
    /// Of the density `x^(shape - 1) exp(-rate x)`.
    pub shape: f64,
    /// One over the scale.
    pub rate: f64,
}

/// Inverse gamma with `shape` and `scale`: density proportional to `x^(-shape-1) exp(-scale / x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InverseGammaPrior {
    /// Of the density `x^(-shape - 1) exp(-scale / x)`.
    pub shape: f64,
    /// The inverse has this rate.
    pub scale: f64,
}

/// Normal with `mean` and `precision` (one over the variance).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormalPrior {
    /// Where it is centred.
    pub mean: f64,
    /// One over the variance.
    pub precision: f64,
}

/// The prior of a feature's mean weight, tau.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightMeanPrior {
    /// Each drawn from this.
    Normal(NormalPrior),
    /// Not a parameter at all (isFA fixes it at 0).
    Fixed(f64),
}

/// All priors of the model \[M1\].
#[derive(Clone, Debug, PartialEq)]
pub struct Priors {
    /// sigma^2.
    pub noise: InverseGammaPrior,
    /// alpha.
    pub ibp_strength: GammaPrior,
    /// beta.
    pub ibp_repulsion: GammaPrior,
    /// nu_k.
    pub weight_precision: GammaPrior,
    /// tau_k.
    pub weight_mean: WeightMeanPrior,
    /// Degrees of freedom of Student weights; normal ones where there are none.
    pub weight_tails: Option<f64>,
    /// xi_p = ln theta_p, one for each parameter of the curve.
    pub ln_theta: Vec<NormalPrior>,
}

impl Priors {
    /// The defaults, for data of unit mean square.
    pub fn default_for(n_parameters: usize) -> Priors {
        Priors {
            noise: InverseGammaPrior { shape: 0.001, scale: 0.001 },
            ibp_strength: GammaPrior { shape: 1.0, rate: 1.0 },
            ibp_repulsion: GammaPrior { shape: 1.0, rate: 1.0 },
            weight_precision: GammaPrior { shape: 10.0, rate: 10.0 },
            weight_mean: WeightMeanPrior::Normal(NormalPrior { mean: 0.0, precision: 1.0 }),
            weight_tails: None,
            ln_theta: vec![NormalPrior { mean: 0.0, precision: 1.0 / 9.0 }; n_parameters],
        }
    }
}
