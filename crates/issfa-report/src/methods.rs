//! A paragraph on methods, with references, to be pasted into a paper.

use issfa::Fitted;
use issfa::data::grid::show_grid;

/// What was done, in words.
pub fn paragraph(fitted: &Fitted) -> String {
    let overview = fitted.summary();
    if overview.n_kept == 0 {
        return "No draw was kept yet, so that there is nothing to report.".into();
    }
    let mut parts = vec![data(fitted), model(fitted), noise(fitted), sampling(fitted)];
    parts.push(format!(
        "Reported are posterior means of the {} features that were present in at least half of the kept sweeps, each of \
         unit norm, ordered by the share of the sum of squares that they account for.",
        overview.n_persistent
    ));
    if let Some(dimension) = overview.minka_dimension {
        parts.push(format!("For comparison, Minka's evidence (Minka 2001) asks for {dimension} principal components."));
    }
    if !overview.synchrony.is_empty() {
        parts.push(
            "Time courses of each feature were compared between runs by their mean Pearson correlation, against the same \
             under circular shifts, with p values adjusted over features (Benjamini and Hochberg 1995)."
                .into(),
        );
    }
    parts.join(" ")
}

fn data(fitted: &Fitted) -> String {
    let (record, preparation) = (fitted.record(), fitted.recorded().preparation());
    let prepared = if preparation.is_empty() { String::new() } else { format!(" (preparation: {preparation})") };
    format!(
        "{} observations on {} sites ({}){prepared} were analysed by infinite structured sparse factor analysis (Pearce and \
         White 2017) with issfa {}.",
        record.n_rows,
        record.n_sites,
        show_grid(fitted.structure().grid()),
        record.version
    )
}

fn model(fitted: &Fitted) -> String {
    let weights = fitted.settings().weight_tails().map_or(String::new(), |tails| {
        format!(" Weights of a feature have a Student distribution with {tails} degrees of freedom.")
    });
    format!(
        "Each observation is a sum of features with weights, plus noise.{weights} Which features an observation uses, and how many \
         there are, have a two-parameter Indian buffet process as prior (Griffiths and Ghahramani 2011; Knowles and \
         Ghahramani 2011); features are Gaussian with a precision matrix that is diagonal in the basis of the structure {} \
         with the spectral curve {}, whose parameters are inferred.",
        fitted.record().structure,
        fitted.settings().curve
    )
}

fn noise(fitted: &Fitted) -> String {
    match &fitted.record().noise {
        Some(noise) => format!(
            "The noise was measured beforehand on {} differences of observations that follow each other, by site and by \
             smoothness; it is {}.",
            noise.n_differences,
            noise.in_words()
        ),
        None => "The noise is Gaussian with one variance at all sites, which is inferred.".into(),
    }
}

fn sampling(fitted: &Fitted) -> String {
    let (settings, overview) = (fitted.settings(), fitted.summary());
    let chains = if overview.chains == 1 { "One chain".to_string() } else { format!("{} chains", overview.chains) };
    let seeds = match &fitted.record().streams[..] {
        [] => format!("seed {}", settings.seed),
        merged => {
            let seeds: Vec<String> = merged.iter().map(|stream| stream.seed.to_string()).collect();
            format!("seeds {}", seeds.join(", "))
        }
    };
    let [r_hat, ess] = [
        overview.quantities.iter().map(|q| q.split_r_hat).fold(f64::NAN, f64::max),
        overview.quantities.iter().map(|q| q.effective_sample_size).fold(f64::NAN, f64::min),
    ];
    let mixing = if r_hat.is_nan() || ess.is_nan() {
        String::new()
    } else {
        format!(
            " Over the traced parameters split R-hat (Gelman and Rubin 1992) is at most {r_hat:.2} and the effective sample \
             size (Geyer 1992) at least {ess:.0}."
        )
    };
    format!(
        "{chains} of {} sweeps of Markov chain Monte Carlo were drawn ({seeds}), the first {} discarded and every {} of the \
         others kept.{mixing}",
        overview.sweeps_done,
        fitted.burn_in(),
        match settings.thin {
            None | Some(1) => "one".into(),
            Some(2) => "2nd".into(),
            Some(3) => "3rd".into(),
            Some(n) => format!("{n}th"),
        }
    )
}

/// What the paragraph cites.
pub fn references(fitted: &Fitted) -> Vec<&'static str> {
    let mut list = vec![
        "Gelman, A. and Rubin, D. B. (1992). Inference from iterative simulation using multiple sequences. Statistical \
         Science 7, 457-472.",
        "Geyer, C. J. (1992). Practical Markov chain Monte Carlo. Statistical Science 7, 473-483.",
        "Griffiths, T. L. and Ghahramani, Z. (2011). The Indian buffet process: an introduction and review. Journal of \
         Machine Learning Research 12, 1185-1224.",
        "Knowles, D. and Ghahramani, Z. (2011). Nonparametric Bayesian sparse factor models with application to gene \
         expression modeling. Annals of Applied Statistics 5, 1534-1552.",
        "Pearce, M. C. and White, S. R. (2017). Infinite structured sparse factor analysis. arXiv:1704.04031.",
    ];
    if fitted.evidence().is_some() {
        list.insert(
            list.len() - 1,
            "Minka, T. P. (2001). Automatic choice of dimensionality for PCA. Advances in Neural Information Processing \
             Systems 13, 598-604.",
        );
    }
    if !fitted.found().synchrony.is_empty() {
        list.insert(
            0,
            "Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate: a practical and powerful approach \
             to multiple testing. Journal of the Royal Statistical Society B 57, 289-300.",
        );
    }
    list
}
