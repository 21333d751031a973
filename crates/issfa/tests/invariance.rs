//! Invariance from the prior: every kernel and the whole sweep leave the joint law alone. That wrong ones are caught is
//! shown by the unit tests of `selftest`.
//!
//! The slow suite is `ISSFA_SLOW=1 cargo test -p issfa --test invariance -- --nocapture`.

use issfa::lab::kernels::Kernel;
use issfa::lab::model::WeightMeanPrior;
use issfa::selftest::{Report, STATISTICS, Subject, Tiny, run, run_in, threshold};

/// The probability that a group of correct subjects fails by chance.
const FALSE_ALARM_RATE: f64 = 1e-3;

fn repeats() -> u64 {
    if std::env::var("ISSFA_SLOW").is_ok_and(|value| value == "1") { 1_000_000 } else { 100_000 }
}

fn whole_sweep() -> Subject {
    Subject::Kernels(Kernel::DEFAULT_SWEEP.to_vec())
}

/// Prints all worst statistics of a group, then asserts them.
fn check(reports: &[(String, Report)]) {
    let limit = threshold(STATISTICS.len() * reports.len(), FALSE_ALARM_RATE);
    for (name, report) in reports {
        let (statistic, z) = report.worst();
        println!("{name:55} {:>8} repeats, worst {z:6.2} ({statistic})", report.repeats);
    }
    for (name, report) in reports {
        let (statistic, z) = report.worst();
        assert!(
            z.abs() < limit,
            "{name}: {statistic} moved by {z:.2} standard errors in {} repeats; {} correct statistics pass {limit:.2} \
             with probability {FALSE_ALARM_RATE}",
            report.repeats,
            STATISTICS.len() * reports.len()
        );
    }
}

/// How many of the statistics changed at all.
fn n_moving(report: &Report) -> usize {
    report.z.iter().filter(|&&z| z != 0.0).count()
}

#[test]
fn every_kernel_and_the_whole_sweep() {
    let one = |subject: Subject| (subject.name(), run(&Tiny::default(), &subject, 101, repeats()));
    let reports: Vec<(String, Report)> = Subject::shipped().into_iter().map(one).collect();
    assert!(reports.iter().all(|(_, report)| n_moving(report) > 0), "a subject that changes nothing is not tested");
    assert_eq!(n_moving(&reports[reports.len() - 1].1), STATISTICS.len(), "the whole sweep changes everything");
    check(&reports);
}

#[test]
fn the_whole_sweep_on_other_models() {
    let tiny = Tiny::default;
    let cases = [
        (
            "isFA: iid(4), weight mean fixed at 0",
            Tiny { structure: "iid(4)".into(), weight_mean: WeightMeanPrior::Fixed(0.0), ..tiny() },
        ),
        ("at most 3 features", Tiny { max_features: 3, ..tiny() }),
        ("one row", Tiny { n_rows: 1, ..tiny() }),
        ("two rows", Tiny { n_rows: 2, ..tiny() }),
        ("path(3) x iid(2), q^2 + q", Tiny { structure: "path(3) x iid(2)".into(), curve: "q^2 + q".into(), ..tiny() }),
        ("path(2) x path(2), axes", Tiny { curve: "axes".into(), ..tiny() }),
        (
            "groups(2,1) x cycle(3), q^2 + q'",
            Tiny { structure: "groups(2,1) x cycle(3)".into(), curve: "q^2 + q'".into(), ..tiny() },
        ),
        (
            "wavelet(3,haar) x cycle(2), q^1.5",
            Tiny { structure: "wavelet(3,haar) x cycle(2)".into(), curve: "q^1.5".into(), ..tiny() },
        ),
        ("filtered: a factor for each mode", Tiny { factors: vec![9.0, 2.0, 1.5, 0.3], ..tiny() }),
        (
            "filtered, one row, under a mask",
            Tiny {
                n_rows: 1,
                structure: "path(3) x path(2)".into(),
                mask: vec![0, 2, 3],
                factors: vec![9.0, 2.0, 1.5, 1.0, 0.5, 0.3],
                ..tiny()
            },
        ),
    ];
    let one = |(seed, (name, tiny)): (usize, (&str, Tiny))| {
        (name.to_string(), run(&tiny, &whole_sweep(), 201 + seed as u64, repeats()))
    };
    check(&cases.into_iter().enumerate().map(one).collect::<Vec<_>>());
}

/// Every kernel that asks what was observed, and the whole sweep, with a mask, with holes, and with both.
#[test]
fn masks_and_missing_cells() {
    let masked = |mask: &[usize], holes: &[(usize, u32)]| Tiny {
        structure: "path(3) x path(2)".into(),
        mask: mask.to_vec(),
        holes: holes.to_vec(),
        ..Tiny::default()
    };
    let mask = masked(&[0, 2, 3], &[]);
    let holes = masked(&[], &[(0, 1), (0, 4), (2, 0), (3, 5)]);
    let both = masked(&[1, 2, 3, 5], &[(1, 0), (1, 3), (3, 2)]);
    let alone = |kernel| Subject::Kernels(vec![kernel]);
    let mut cases = Vec::new();
    for (name, tiny) in [("mask", &mask), ("holes", &holes), ("mask and holes", &both)] {
        let always = Tiny { joint_every: 1, ..tiny.clone() };
        let never = Tiny { joint_every: u64::MAX, ..tiny.clone() };
        cases.push((name, always, Subject::Kernels(vec![Kernel::Features, Kernel::Theta])));
        cases.push((name, never, Subject::Kernels(vec![Kernel::Features, Kernel::Theta])));
        for kernel in
            [Kernel::Features, Kernel::Noise, Kernel::SharedActivations, Kernel::PairRotation, Kernel::UniqueFeatures]
        {
            let subject =
                if kernel == Kernel::Noise { Subject::Kernels(vec![Kernel::Features, kernel]) } else { alone(kernel) };
            cases.push((name, tiny.clone(), subject));
        }
        cases.push((name, tiny.clone(), whole_sweep()));
    }
    for (name, tiny) in [("mask", &mask), ("holes", &holes), ("mask and holes", &both)] {
        cases.push((name, tiny.clone(), alone(Kernel::FewRows)));
    }
    let one = |(seed, (name, tiny, subject)): (usize, (&str, Tiny, Subject))| {
        (format!("{name}: {}", subject.name()), run(&tiny, &subject, 501 + seed as u64, repeats()))
    };
    check(&cases.into_iter().enumerate().map(one).collect::<Vec<_>>());
}

/// Of more than ten rows some are offered features of their own, others not.
#[test]
fn offers_to_some_rows() {
    let one = |(seed, tails): (u64, Option<f64>)| {
        let tiny = Tiny { n_rows: 16, weight_tails: tails, ..Tiny::default() };
        let subject = Subject::Kernels(vec![Kernel::UniqueFeatures]);
        (format!("16 rows, tails {tails:?}: {}", subject.name()), run(&tiny, &subject, seed, repeats()))
    };
    check(&[(601, None), (602, Some(4.0))].map(one));
}

/// More rows than are asked about a feature, and more than may use one that few rows use.
#[test]
fn few_rows_of_many() {
    let one = |(seed, tails): (u64, Option<f64>)| {
        let tiny = Tiny { n_rows: 48, weight_tails: tails, ..Tiny::default() };
        let subject = Subject::Kernels(vec![Kernel::FewRows]);
        (format!("48 rows, tails {tails:?}: {}", subject.name()), run(&tiny, &subject, seed, repeats() / 4))
    };
    check(&[(651, None), (652, Some(4.0))].map(one));
}

/// Every kernel that asks what weights are drawn from, and the whole sweep, with Student weights.
#[test]
fn student_weights() {
    let tiny = || Tiny { weight_tails: Some(4.0), ..Tiny::default() };
    let alone = |kernel| Subject::Kernels(vec![kernel]);
    let mut cases: Vec<(&str, Tiny, Subject)> = [
        Kernel::SharedActivations,
        Kernel::PairRotation,
        Kernel::UniqueFeatures,
        Kernel::Rescale,
        Kernel::SignFlip,
        Kernel::WeightMeans,
        Kernel::WeightPrecisions,
    ]
    .map(|kernel| ("", tiny(), alone(kernel)))
    .into();
    let holes = Tiny {
        structure: "path(3) x path(2)".into(),
        mask: vec![1, 2, 3, 5],
        holes: vec![(1, 0), (1, 3), (3, 2)],
        ..tiny()
    };
    cases.push(("mask and holes: ", holes.clone(), alone(Kernel::SharedActivations)));
    cases.push(("mask and holes: ", holes.clone(), alone(Kernel::PairRotation)));
    cases.push(("mask and holes: ", holes, whole_sweep()));
    cases.push(("one degree of freedom: ", Tiny { weight_tails: Some(1.0), ..tiny() }, whole_sweep()));
    cases.push(("", tiny(), whole_sweep()));
    cases.push(("", tiny(), alone(Kernel::FewRows)));
    let one = |(seed, (name, tiny, subject)): (usize, (&str, Tiny, Subject))| {
        (format!("Student weights, {name}{}", subject.name()), run(&tiny, &subject, 701 + seed as u64, repeats()))
    };
    check(&cases.into_iter().enumerate().map(one).collect::<Vec<_>>());
}

/// Rows in two chunks, features that many of them use and features that one does.
/// Sums over rows band by band, and a stream for each band.
#[test]
fn rows_in_two_bands() {
    let one = |(seed, weight_tails): (u64, Option<f64>)| {
        let tiny = Tiny { n_rows: 67, band: 64, applications: 1, weight_tails, ..Tiny::default() };
        (format!("67 rows in two bands, tails {weight_tails:?}"), run(&tiny, &whole_sweep(), seed, repeats() / 8))
    };
    check(&[(19, None), (20, Some(4.0))].map(one));
}

#[test]
fn pairs_in_more_rows_than_a_chunk_holds() {
    let tiny = Tiny { n_rows: 67, applications: 1, ..Tiny::default() };
    let subject = Subject::Kernels(vec![Kernel::PairRotation]);
    check(&[(subject.name(), run(&tiny, &subject, 601, repeats() / 5))]);
}

/// What is stored is rounded to one part in ten million, a thousandth of what a million repeats can see.
#[test]
fn single_precision() {
    let masked = Tiny { structure: "path(3) x path(2)".into(), mask: vec![0, 2, 3], ..Tiny::default() };
    let one = |(seed, (name, tiny)): (usize, (&str, Tiny))| {
        (name.to_string(), run_in::<f32>(&tiny, &whole_sweep(), 801 + seed as u64, repeats()))
    };
    let cases = [("whole sweep in f32", Tiny::default()), ("whole sweep in f32, under a mask", masked)];
    check(&cases.into_iter().enumerate().map(one).collect::<Vec<_>>());
}

#[test]
fn features_one_by_one() {
    let alone = vec![Kernel::FeaturesOneByOne];
    let mut sweep = Kernel::DEFAULT_SWEEP.to_vec();
    sweep[0] = Kernel::FeaturesOneByOne;
    let one = |(seed, kernels): (usize, Vec<Kernel>)| {
        let subject = Subject::Kernels(kernels);
        (subject.name(), run(&Tiny::default(), &subject, 401 + seed as u64, repeats()))
    };
    check(&[alone, sweep].into_iter().enumerate().map(one).collect::<Vec<_>>());
}
