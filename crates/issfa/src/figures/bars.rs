//! Histograms and bar charts.

use super::axes::{Axis, BELOW, LEFT};
use super::canvas::{Canvas, EDGE, Rect};
use super::colour::PALETTE;
use super::text::{Anchor, TextStyle, text_width, wrap};
use super::ticks::Scale;
use super::{Figure, WIDTH, legend};
use std::ops::Range;

const HEIGHT: f64 = 320.0;
const RIGHT: f64 = 30.0;
/// Room that a turned label has left of the first bar.
const LONGEST_LABEL: f64 = 116.0;
/// Of how many labels one is shown, where there is no room for all.
const EVERY: [usize; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/// Where a logarithmic count axis begins, so that a count of 1 can be seen.
const LOG_FLOOR: f64 = 0.5;

/// Overlaid step histograms over common bins. Whole numbers get bins of whole width. `scale` is that of the counts.
pub fn histogram(
    title: &str,
    x_label: &str,
    series: &[(String, Vec<f64>)],
    n_bins: usize,
    note: Option<&str>,
    scale: Scale,
) -> Figure {
    let edges = bin_edges(series, n_bins);
    let counts: Vec<Vec<usize>> = series.iter().map(|(_, values)| count(values, &edges)).collect();
    let highest = counts.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
    let mut canvas = Canvas::new();
    let mut top = canvas.title(title);
    for line in wrap(note.unwrap_or_default(), WIDTH - 2.0 * EDGE, TextStyle::SMALL.size, 3) {
        canvas.text(EDGE, top - 2.0, &line, TextStyle::SMALL.anchored(Anchor::Start));
        top += 15.0;
    }
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    let frame = frame(legend::draw(&mut canvas, LEFT, top + 2.0, &names));
    let x_axis = Axis::across(frame, (edges[0], edges[edges.len() - 1]), Scale::Linear);
    let y_range = if scale == Scale::Linear { (0.0, 1.06 * highest) } else { (LOG_FLOOR, 1.5 * highest) };
    let mut y_axis = Axis::upward(frame, y_range, scale);
    y_axis.ticks.retain(|tick| tick.value.fract() == 0.0);
    y_axis.draw_left(&mut canvas, frame, "count");
    for (index, counts) in counts.iter().enumerate() {
        for filled in filled(counts) {
            let points = steps(&edges[filled.start..=filled.end], &counts[filled], (&x_axis, &y_axis), frame.bottom());
            canvas.polygon(&points, legend::stroke(index).colour, 0.16);
            canvas.polyline(&points, legend::stroke(index));
        }
    }
    x_axis.draw_below(&mut canvas, frame, Some(x_label));
    if counts.iter().flatten().sum::<usize>() == 0 {
        canvas.text(frame.middle().0, frame.middle().1, "no data", TextStyle::SMALL);
    }
    canvas.finish(frame.bottom() + BELOW + 4.0)
}

fn frame(top: f64) -> Rect {
    Rect { x: LEFT, y: top + 6.0, width: WIDTH - LEFT - RIGHT, height: HEIGHT }
}

/// The stretches of bins that hold something.
fn filled(counts: &[usize]) -> Vec<Range<usize>> {
    let mut stretches: Vec<Range<usize>> = Vec::new();
    for bin in (0..counts.len()).filter(|&bin| counts[bin] > 0) {
        match stretches.last_mut() {
            Some(last) if last.end == bin => last.end = bin + 1,
            _ => stretches.push(bin..bin + 1),
        }
    }
    stretches
}

/// The outline of a histogram, from the base line and back to it.
fn steps(edges: &[f64], counts: &[usize], axes: (&Axis, &Axis), bottom: f64) -> Vec<(f64, f64)> {
    let x = |edge: f64| axes.0.place(edge).unwrap_or(0.0);
    let y = |count: usize| {
        if count == 0 { bottom } else { axes.1.place(count as f64).unwrap_or(bottom) }
    };
    let tops = edges.windows(2).zip(counts).flat_map(|(pair, &count)| [(x(pair[0]), y(count)), (x(pair[1]), y(count))]);
    let (first, last) = (x(edges[0]), x(edges[edges.len() - 1]));
    [(first, bottom)].into_iter().chain(tops).chain([(last, bottom)]).collect()
}

/// The edges of the bins, one more than bins.
fn bin_edges(series: &[(String, Vec<f64>)], n_bins: usize) -> Vec<f64> {
    let values = || series.iter().flat_map(|(_, values)| values.iter().copied()).filter(|value| value.abs() < 1e300);
    let n_bins = n_bins.max(1);
    let (low, high) = Scale::Linear.range(values());
    if values().next().is_some() && values().all(|value| value.fract() == 0.0 && value.abs() < 1e15) {
        let (low, high) = values().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let width = ((high - low + 1.0) / n_bins as f64).ceil();
        let n_bins = ((high - low + 1.0) / width).ceil() as usize;
        return (0..=n_bins).map(|bin| low - 0.5 + width * bin as f64).collect();
    }
    (0..=n_bins).map(|bin| low + (high - low) * bin as f64 / n_bins as f64).collect()
}

fn count(values: &[f64], edges: &[f64]) -> Vec<usize> {
    let n_bins = edges.len() - 1;
    let (low, high) = (edges[0], edges[n_bins]);
    let mut counts = vec![0; n_bins];
    for value in values.iter().filter(|value| (low..=high).contains(*value)) {
        let bin = (value - low) / (high - low) * n_bins as f64;
        counts[(bin as usize).min(n_bins - 1)] += 1;
    }
    counts
}

/// A bar for each label. Where labels would run into one another they are turned, or only every so many shown.
pub fn columns(title: &str, x_label: &str, y_label: &str, bars: &[(String, f64)]) -> Figure {
    let mut canvas = Canvas::new();
    let frame = frame(canvas.title(title));
    let values = || bars.iter().map(|bar| bar.1);
    let (low, high) = Scale::Linear.range(values().chain([0.0]));
    let low = if low < 0.0 && values().any(|value| value < 0.0) { 1.06 * low } else { 0.0 };
    let y_axis = Axis::upward(frame, (low, 1.06 * high.max(0.0)), Scale::Linear);
    y_axis.draw_left(&mut canvas, frame, y_label);
    let slot = frame.width / bars.len().max(1) as f64;
    let width = (0.76 * slot).min(90.0);
    let zero = y_axis.place(0.0).unwrap_or(frame.bottom());
    for (index, (_, value)) in bars.iter().enumerate() {
        let Some(y) = y_axis.place(*value) else { continue };
        let x = frame.x + (index as f64 + 0.5) * slot - width / 2.0;
        canvas.rect(Rect { x, y: y.min(zero), width, height: (y - zero).abs() }, PALETTE[0]);
    }
    let base = Rect { height: zero - frame.y, ..frame };
    Axis::across(base, (0.0, 1.0), Scale::Linear).without_ticks().draw_below(&mut canvas, base, None);
    if bars.is_empty() {
        canvas.text(frame.middle().0, frame.middle().1, "no data", TextStyle::SMALL);
    }
    let bottom = draw_labels(&mut canvas, frame, bars);
    canvas.text(frame.middle().0, bottom + 20.0, x_label, TextStyle::LABEL);
    canvas.finish(bottom + 34.0)
}

/// Draws the labels under a frame and gives the y below them.
fn draw_labels(canvas: &mut Canvas, frame: Rect, bars: &[(String, f64)]) -> f64 {
    let slot = frame.width / bars.len().max(1) as f64;
    let widest =
        bars.iter().map(|(label, _)| text_width(label, TextStyle::SMALL.size)).fold(0.0, f64::max).min(LONGEST_LABEL);
    let is_turned = widest + 6.0 > slot && widest > 40.0;
    let room = if is_turned { 16.0 } else { widest + 6.0 };
    let every = EVERY.into_iter().find(|&every| every as f64 * slot >= room).unwrap_or(bars.len().max(1));
    for (index, (label, _)) in bars.iter().enumerate().step_by(every) {
        let x = frame.x + (index as f64 + 0.5) * slot;
        let label = wrap(label, LONGEST_LABEL, TextStyle::SMALL.size, 1).concat();
        if is_turned {
            let style = TextStyle::SMALL.anchored(Anchor::End).turned(-40.0);
            canvas.text(x + 4.0, frame.bottom() + 14.0, &label, style);
        } else {
            canvas.text(x, frame.bottom() + 17.0, &label, TextStyle::SMALL);
        }
    }
    frame.bottom() + if is_turned { 20.0 + 0.58 * widest } else { 17.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_is_counted_once() {
        let values: Vec<f64> =
            (0..1000).map(|index| (index as f64 * 0.37).sin()).chain([f64::NAN, f64::INFINITY]).collect();
        let edges = bin_edges(&[("a".into(), values.clone())], 20);
        assert_eq!((edges.len(), count(&values, &edges).iter().sum::<usize>()), (21, 1000));
    }

    #[test]
    fn whole_numbers_get_whole_bins() {
        let values = vec![3.0, 4.0, 4.0, 7.0];
        let edges = bin_edges(&[("K".into(), values.clone())], 30);
        assert_eq!(edges, [2.5, 3.5, 4.5, 5.5, 6.5, 7.5]);
        assert_eq!(count(&values, &edges), [1, 2, 0, 0, 1]);
        assert_eq!(bin_edges(&[("K".into(), vec![0.0, 99.0])], 30).len(), 26);
    }

    #[test]
    fn empty_bins_have_no_outline() {
        assert_eq!(filled(&[0, 2, 1, 0, 0, 3]), [1..3, 5..6]);
        assert!(filled(&[0, 0]).is_empty());
    }

    #[test]
    fn odd_data_draw() {
        let odd = [vec![], vec![2.5], vec![f64::NAN], vec![0.0; 5], vec![1e-9, 2e-9, f64::INFINITY], vec![-7.0, 1e12]];
        for (values, scale) in odd.iter().flat_map(|values| [(values, Scale::Linear), (values, Scale::Log10)]) {
            super::super::check(&histogram("Odd", "x", &[("a".into(), values.clone())], 30, Some("note"), scale));
            let bars: Vec<(String, f64)> = values.iter().map(|&value| ("label".into(), value)).collect();
            super::super::check(&columns("Odd", "x", "y", &bars));
        }
        super::super::check(&histogram("None", "x", &[], 0, None, Scale::Linear));
    }
}
