//! Spectral curves: the prior precision `h` of every mode as a function of `theta = exp(xi)`, with derivatives in xi.
//!
//! A curve is a sum of powers of linear forms, `h_v = sum_i q_i(v)^(n_i)`, where `q = theta_1 + theta_2 gamma_v`
//! (one roughness for all axes) or `q = theta_0 + sum_axis theta_axis gamma_axis,v` (`axes`), and `q'` is the same
//! form with parameters of its own.

use super::Structure;
use crate::error::{Error, Result};
use crate::numeric::lanes::{TILE, Tileful};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// A curve as written, before it meets a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    form: Form,
    terms: Vec<Term>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Total,
    Axes,
}

/// `q^power`, or `q'^power` when `set` is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Term {
    set: usize,
    power: f64,
}

impl Default for Curve {
    /// `q`.
    fn default() -> Self {
        Curve { form: Form::Total, terms: vec![Term { set: 0, power: 1.0 }] }
    }
}

impl Curve {
    /// Reads `q`, `q^2`, `q^2 + q`, `q^2 + q'`, `axes`.
    pub fn parse(text: &str) -> Result<Curve> {
        if text.trim() == "axes" {
            return Ok(Curve { form: Form::Axes, ..Curve::default() });
        }
        let mut terms = Vec::new();
        let mut position = 0;
        for part in text.split('+') {
            let indent = part.chars().take_while(|c| c.is_whitespace()).count();
            terms.push(parse_term(part.trim()).ok_or_else(|| {
                let problem = format!(
                    "'{}' is not a term of a curve; write q, q^2, q', q'^2 (powers are above 0 and below 100), their sums, or axes",
                    part.trim()
                );
                Error::expression(text, position + indent, problem)
            })?);
            position += part.chars().count() + 1;
        }
        // `q'` alone is `q`.
        if terms.iter().all(|term: &Term| term.set == 1) {
            terms.iter_mut().for_each(|term| term.set = 0);
        }
        Ok(Curve { form: Form::Total, terms })
    }

    /// The degree of homogeneity in theta, where there is one: `h(c theta) = c^d h(theta)`.
    pub fn degree(&self) -> Option<f64> {
        let first = self.terms[0].power;
        self.terms.iter().all(|term| term.power == first).then_some(first)
    }

    /// Whether two parameter sets enter only through their sums (`q + q'`).
    pub fn sets_are_confounded(&self) -> bool {
        self.terms.iter().any(|term| term.set == 1) && self.terms.iter().all(|term| term.power == 1.0)
    }
}

fn parse_term(text: &str) -> Option<Term> {
    let rest = text.strip_prefix('q')?;
    let (set, rest) = match rest.strip_prefix('\'') {
        Some(rest) => (1, rest.trim_start()),
        None => (0, rest.trim_start()),
    };
    let power = match rest.strip_prefix('^') {
        Some(number) => number.trim().parse().ok()?,
        None if rest.is_empty() => 1.0,
        None => return None,
    };
    (power > 0.0 && power < 100.0).then_some(Term { set, power })
}

/// A curve on the modes of a structure.
#[derive(Clone, Debug)]
pub struct Spectrum {
    terms: Vec<Term>,
    n_modes: usize,
    degree: Option<f64>,
    /// What multiplies each parameter of a set at every mode, after the leading ridge (whose coefficient is 1).
    eigenvalues: Vec<Vec<f64>>,
    n_sets: usize,
    axis_names: Vec<String>,
    /// What multiplies the precision of every mode; empty: 1.
    factors: Vec<f64>,
}

/// What [`Spectrum::differentiate`] fills, for up to a tile of modes and two parameter sets.
#[derive(Clone, Debug)]
pub struct CurveBatch {
    /// `h_v`.
    pub precisions: Tileful,
    /// Derivatives of h by the linear form of each set.
    pub first: [Tileful; 2],
    /// Second derivatives of h by the linear form of each set.
    pub second: [Tileful; 2],
    forms: Tileful,
}

impl Default for CurveBatch {
    fn default() -> Self {
        let zeros = [0.0; TILE];
        CurveBatch { precisions: [1.0; TILE], first: [zeros; 2], second: [zeros; 2], forms: zeros }
    }
}

/// `h` and its derivatives in xi at one mode.
#[derive(Clone, Debug, Default)]
pub struct CurvePoint {
    /// h.
    pub precision: f64,
    /// One a parameter.
    pub gradient: Vec<f64>,
    /// Row-major, symmetric.
    pub hessian: Vec<f64>,
}

impl Spectrum {
    /// Lays `curve` over the modes of `structure`. A structure without any roughness has a ridge parameter only.
    pub fn new(structure: &Structure, curve: &Curve) -> Spectrum {
        let n_axes = structure.axes().len();
        let mut eigenvalues = match curve.form {
            Form::Total => vec![structure.eigenvalues()],
            Form::Axes => (0..n_axes).map(|axis| structure.axis_eigenvalues(axis)).collect(),
        };
        let mut axis_names: Vec<String> = match curve.form {
            Form::Total => vec!["roughness".into()],
            Form::Axes => (1..=n_axes).map(|axis| format!("roughness of axis {axis}")).collect(),
        };
        let rough: Vec<bool> = eigenvalues.iter().map(|values| values.iter().any(|&value| value > 0.0)).collect();
        let mut keep = rough.iter();
        eigenvalues.retain(|_| *keep.next().expect("one flag each"));
        let mut keep = rough.iter();
        axis_names.retain(|_| *keep.next().expect("one flag each"));
        let n_sets = 1 + curve.terms.iter().map(|term| term.set).max().unwrap_or(0);
        let (terms, n_modes) = (curve.terms.clone(), structure.n_sites());
        Spectrum { terms, n_modes, degree: curve.degree(), eigenvalues, n_sets, axis_names, factors: Vec::new() }
    }

    /// The same with every mode's precision multiplied by a fixed factor.
    pub fn with_factors(self, factors: Vec<f64>) -> Spectrum {
        assert_eq!(factors.len(), self.n_modes, "a factor for each mode");
        Spectrum { factors, ..self }
    }

    /// The same at some of the modes.
    pub fn at_modes(&self, modes: &[usize]) -> Spectrum {
        let chosen = |values: &Vec<f64>| modes.iter().map(|&mode| values[mode]).collect();
        let factors = if self.factors.is_empty() { Vec::new() } else { chosen(&self.factors) };
        let eigenvalues = self.eigenvalues.iter().map(chosen).collect();
        Spectrum { n_modes: modes.len(), eigenvalues, factors, ..self.clone() }
    }

    #[inline(always)]
    fn factor(&self, mode: usize) -> f64 {
        self.factors.get(mode).copied().unwrap_or(1.0)
    }

    /// How many modes there are.
    pub fn n_modes(&self) -> usize {
        self.n_modes
    }

    /// How many parameters theta has.
    pub fn n_parameters(&self) -> usize {
        self.n_sets * self.set_size()
    }

    /// What each parameter is, for people.
    pub fn parameter_names(&self) -> Vec<String> {
        let one = |set: usize| {
            let prime = if set == 1 { "'" } else { "" };
            std::iter::once(format!("ridge{prime}"))
                .chain(self.axis_names.iter().map(move |name| format!("{name}{prime}")))
                .collect::<Vec<_>>()
        };
        (0..self.n_sets).flat_map(one).collect()
    }

    /// Parameters to try a structure with: every ridge 1, every roughness 100.
    pub fn example_theta(&self) -> Vec<f64> {
        (0..self.n_parameters()).map(|p| if p % self.set_size() == 0 { 1.0 } else { 100.0 }).collect()
    }

    /// Refuses parameters that are not as many positive numbers as the curve has.
    pub fn check_theta(&self, theta: &[f64]) -> Result<()> {
        let shown = theta.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        if theta.len() == self.n_parameters() && theta.iter().all(|t| *t > 0.0 && t.is_finite()) {
            let odd = self.precisions(theta).into_iter().find(|h| !h.is_normal() || !h.recip().is_finite());
            return match odd {
                Some(h) => Err(Error::setting("theta", shown, format!("gives a mode the precision {h:e}"))),
                None => Ok(()),
            };
        }
        let plural = if self.n_parameters() == 1 { "" } else { "s" };
        let names = self.parameter_names().join(", ");
        Err(Error::setting("theta", shown, format!("give {} positive number{plural}: {names}", self.n_parameters())))
    }

    /// See [`Curve::degree`].
    pub fn degree(&self) -> Option<f64> {
        self.degree
    }

    /// How many parameters a set has.
    pub fn set_size(&self) -> usize {
        1 + self.eigenvalues.len()
    }

    /// `q` of one parameter set at a mode.
    #[inline]
    fn linear_form(&self, theta: &[f64], set: usize, mode: usize) -> f64 {
        let own = &theta[set * self.set_size()..];
        self.eigenvalues.iter().zip(&own[1..]).fold(own[0], |sum, (values, t)| sum + t * values[mode])
    }

    /// The precision of one mode.
    #[inline]
    pub fn precision(&self, theta: &[f64], mode: usize) -> f64 {
        let sum: f64 = self.terms.iter().map(|term| power(self.linear_form(theta, term.set, mode), term.power)).sum();
        self.factor(mode) * sum
    }

    /// The precisions of all modes.
    pub fn precisions(&self, theta: &[f64]) -> Vec<f64> {
        let mut precisions = vec![0.0; self.n_modes];
        for (at, part) in precisions.chunks_mut(TILE).enumerate() {
            let modes = at * TILE..at * TILE + part.len();
            pulp::Arch::new().dispatch(Precisions { spectrum: self, theta, modes, out: part });
        }
        precisions
    }

    /// How many parameter sets there are.
    pub fn n_sets(&self) -> usize {
        self.n_sets
    }

    /// What multiplies parameter `p` of a set at some modes; nothing for the ridge, which is multiplied by 1.
    #[inline(always)]
    pub fn coefficients(&self, p: usize, modes: Range<usize>) -> Option<&[f64]> {
        p.checked_sub(1).map(|axis| &self.eigenvalues[axis][modes])
    }

    /// The precisions of some modes, and for each parameter set the first and second derivatives of `h` by its linear form:
    /// `sum n q^(n-1)` and `sum n (n-1) q^(n-2)` over the set's terms. To be inlined into a `with_simd`.
    #[inline(always)]
    pub fn differentiate(&self, theta: &[f64], modes: Range<usize>, batch: &mut CurveBatch) {
        let n = modes.len();
        // Modes that are not there: precision 1, derivatives 0.
        *batch = CurveBatch::default();
        batch.precisions[..n].fill(0.0);
        for term in &self.terms {
            self.linear_forms(theta, term.set, modes.clone(), &mut batch.forms);
            let (first, second) = (&mut batch.first[term.set], &mut batch.second[term.set]);
            for v in 0..n {
                let q = batch.forms[v];
                let value = power(q, term.power);
                let slope = term.power * value / q;
                batch.precisions[v] += value;
                first[v] += slope;
                second[v] += (term.power - 1.0) * slope / q;
            }
        }
        if !self.factors.is_empty() {
            let factors = &self.factors[modes];
            let scale = |values: &mut Tileful| values.iter_mut().zip(factors).for_each(|(x, factor)| *x *= factor);
            scale(&mut batch.precisions);
            batch.first.iter_mut().chain(&mut batch.second).for_each(scale);
        }
    }

    /// `q` of one parameter set at some modes.
    #[inline(always)]
    fn linear_forms(&self, theta: &[f64], set: usize, modes: Range<usize>, out: &mut Tileful) {
        let own = &theta[set * self.set_size()..];
        out[..modes.len()].fill(own[0]);
        for (values, t) in self.eigenvalues.iter().zip(&own[1..]) {
            out.iter_mut().zip(&values[modes.clone()]).for_each(|(q, value)| *q += t * value);
        }
    }

    /// The precisions of up to a tile of modes. To be inlined into a `with_simd`.
    #[inline(always)]
    pub fn precisions_at(&self, theta: &[f64], modes: Range<usize>, out: &mut [f64]) {
        let mut forms = [0.0; TILE];
        out.fill(0.0);
        for term in &self.terms {
            self.linear_forms(theta, term.set, modes.clone(), &mut forms);
            out.iter_mut().zip(&forms).for_each(|(h, q)| *h += power(*q, term.power));
        }
        if !self.factors.is_empty() {
            out.iter_mut().zip(&self.factors[modes]).for_each(|(h, factor)| *h *= factor);
        }
    }

    /// An empty point of the right size, to be lent to [`Spectrum::evaluate`].
    pub fn new_point(&self) -> CurvePoint {
        let n = self.n_parameters();
        CurvePoint { precision: 0.0, gradient: vec![0.0; n], hessian: vec![0.0; n * n] }
    }

    /// Value, gradient and Hessian in xi at one mode: the slow and obvious twin of [`Spectrum::differentiate`].
    ///
    /// With `u_p = theta_p g_p` (the share of parameter p in q): `dh/dxi_p = n q^(n-1) u_p`,
    /// `d2h/dxi_p dxi_r = n (n-1) q^(n-2) u_p u_r + [p = r] n q^(n-1) u_p`, summed over terms.
    pub fn evaluate(&self, theta: &[f64], mode: usize, point: &mut CurvePoint) {
        let (size, n) = (self.set_size(), self.n_parameters());
        point.precision = 0.0;
        point.gradient.fill(0.0);
        point.hessian.fill(0.0);
        for term in &self.terms {
            let q = self.linear_form(theta, term.set, mode);
            let value = power(q, term.power);
            let first = term.power * value / q;
            let second = (term.power - 1.0) * first / q;
            point.precision += value;
            let share = |p: usize| {
                let coefficient = if p == 0 { 1.0 } else { self.eigenvalues[p - 1][mode] };
                theta[term.set * size + p] * coefficient
            };
            for p in 0..size {
                let (row, share_p) = (term.set * size + p, share(p));
                point.gradient[row] += first * share_p;
                point.hessian[row * n + row] += first * share_p;
                if second != 0.0 {
                    (0..size).for_each(|r| point.hessian[row * n + term.set * size + r] += second * share_p * share(r));
                }
            }
        }
        let factor = self.factor(mode);
        point.precision *= factor;
        point.gradient.iter_mut().chain(&mut point.hessian).for_each(|x| *x *= factor);
    }
}

struct Precisions<'a> {
    spectrum: &'a Spectrum,
    theta: &'a [f64],
    modes: Range<usize>,
    out: &'a mut [f64],
}

impl WithSimd for Precisions<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.spectrum.precisions_at(self.theta, self.modes, self.out);
    }
}

#[inline(always)]
fn power(base: f64, exponent: f64) -> f64 {
    if exponent == 1.0 {
        base
    } else if exponent == 2.0 {
        base * base
    } else {
        base.powf(exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::expression::build;
    use super::*;

    const CURVES: [&str; 8] = ["q", "q^2", "q^2 + q", "q^3+q^1.5", "q^2 + q'", "q + q'^2", "q'^0.5", "axes"];

    #[test]
    fn derivatives_match_finite_differences() {
        let structure = build(Some("path(5) x path(3)"), None).unwrap();
        for text in CURVES {
            let factors = (0..15).map(|mode| 0.2 + f64::from(mode)).collect();
            let spectrum = Spectrum::new(&structure, &Curve::parse(text).unwrap()).with_factors(factors);
            let n = spectrum.n_parameters();
            let xi: Vec<f64> = (0..n).map(|p| 0.3 - 0.4 * p as f64).collect();
            let theta = |xi: &[f64]| xi.iter().map(|x| x.exp()).collect::<Vec<_>>();
            let (mut point, mut up, mut down) = (spectrum.new_point(), spectrum.new_point(), spectrum.new_point());
            for mode in [0, 1, 7, 14] {
                spectrum.evaluate(&theta(&xi), mode, &mut point);
                assert!((point.precision - spectrum.precision(&theta(&xi), mode)).abs() < 1e-14);
                for p in 0..n {
                    let step = 1e-5;
                    let mut moved = xi.clone();
                    moved[p] += step;
                    spectrum.evaluate(&theta(&moved), mode, &mut up);
                    moved[p] -= 2.0 * step;
                    spectrum.evaluate(&theta(&moved), mode, &mut down);
                    let slope = (up.precision - down.precision) / (2.0 * step);
                    assert!((slope - point.gradient[p]).abs() < 1e-7 * (1.0 + slope.abs()), "{text} {p}");
                    for r in 0..n {
                        let slope = (up.gradient[r] - down.gradient[r]) / (2.0 * step);
                        let exact = point.hessian[p * n + r];
                        assert!((slope - exact).abs() < 1e-6 * (1.0 + slope.abs()), "{text} {p} {r}: {slope} {exact}");
                    }
                }
            }
        }
    }

    #[test]
    fn degrees_are_those_of_homogeneity() {
        let structure = build(Some("path(4) x path(3)"), None).unwrap();
        for text in CURVES {
            let curve = Curve::parse(text).unwrap();
            let spectrum = Spectrum::new(&structure, &curve);
            let theta: Vec<f64> = (0..spectrum.n_parameters()).map(|p| 0.5 + p as f64).collect();
            let scaled: Vec<f64> = theta.iter().map(|t| 2.0 * t).collect();
            let exponents: Vec<f64> =
                (0..12).map(|v| (spectrum.precision(&scaled, v) / spectrum.precision(&theta, v)).log2()).collect();
            match curve.degree() {
                Some(d) => assert!(exponents.iter().all(|e| (e - d).abs() < 1e-12), "{text}"),
                None => assert!(exponents.iter().any(|e| (e - exponents[0]).abs() > 1e-3), "{text}"),
            }
        }
    }

    #[test]
    fn wrong_curves_point_at_the_term() {
        for (text, place) in [("q + r", 4), ("q^-1", 0), ("q^", 0), ("", 0), ("q + q^x", 4), ("2q", 0)] {
            match Curve::parse(text) {
                Err(Error::Expression { position, .. }) => assert_eq!(position, place, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(Curve::parse("q + q'").unwrap().sets_are_confounded());
        assert!(!Curve::parse("q^2 + q'").unwrap().sets_are_confounded());
    }

    #[test]
    fn parameters_follow_the_structure() {
        let rough = |structure: &str, curve: &str| {
            Spectrum::new(&build(Some(structure), None).unwrap(), &Curve::parse(curve).unwrap()).parameter_names()
        };
        assert_eq!(rough("iid(5)", "q"), ["ridge"]);
        assert_eq!(rough("path(5)", "q"), ["ridge", "roughness"]);
        assert_eq!(
            rough("path(5) x iid(2) x path(3)", "axes"),
            ["ridge", "roughness of axis 1", "roughness of axis 3"]
        );
        assert_eq!(rough("path(5)", "q^2+q'"), ["ridge", "roughness", "ridge'", "roughness'"]);
    }
}
