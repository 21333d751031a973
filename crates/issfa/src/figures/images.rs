//! Galleries: rows of small maps or curves on a grid, such as true features over found ones.

use super::canvas::{Canvas, EDGE, Rect};
use super::colour::{Colours, quiet_size};
use super::panel::{draw_colour_bar, draw_slice, limits};
use super::slice::{Shape, Slice};
use super::text::{Anchor, TextStyle, text_width, wrap};
use super::ticks::number;
use super::{Figure, WIDTH};

/// Space between panels.
const GAP: f64 = 8.0;
/// Height of a line of a caption.
const CAPTION: f64 = 13.0;

/// A field on a grid, row-major, with a caption; without values it leaves its place empty.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    /// Over the panel.
    pub caption: String,
    /// Sites along each axis.
    pub grid: Vec<usize>,
    /// One a site, or none.
    pub values: Vec<f64>,
}

/// A row of panels with a label on its left.
#[derive(Debug, Clone, Default)]
pub struct GalleryRow {
    /// On the left.
    pub label: String,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// What a panel's scale is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Limits {
    /// Each panel's own values.
    #[default]
    PerPanel,
    /// The values of all panels.
    Shared,
}

/// How a gallery is drawn.
#[derive(Debug, Clone, Copy)]
pub struct GalleryOptions {
    /// How values are coloured.
    pub colours: Colours,
    /// What the scale is taken from.
    pub limits: Limits,
    /// Panels side by side, at most; further ones go to blocks below. Wide panels take fewer.
    pub n_columns: usize,
    /// Whether maps of one sign are drawn in colours of one sign; needs scales of their own.
    pub by_sign: bool,
}

impl Default for GalleryOptions {
    fn default() -> Self {
        GalleryOptions { colours: Colours::Diverging, limits: Limits::PerPanel, n_columns: 10, by_sign: false }
    }
}

/// A panel ready to draw.
struct Cell {
    caption: Vec<String>,
    slice: Slice,
    colours: Colours,
}

/// What all cells of a gallery have in common.
struct Layout {
    options: GalleryOptions,
    shape: Shape,
    shared_limits: (f64, f64),
    n_columns: usize,
    left: f64,
    width: f64,
    height: f64,
}

/// Rows of panels under a title. All panels are drawn at the size of the first.
pub fn gallery(title: &str, rows: &[GalleryRow], options: GalleryOptions) -> Figure {
    let mut canvas = Canvas::new();
    let mut top = canvas.title(title);
    let n_panels = rows.iter().map(|row| row.panels.len()).max().unwrap_or(0);
    if n_panels == 0 {
        canvas.text(WIDTH / 2.0, top + 20.0, "no data", TextStyle::SMALL);
        return canvas.finish(top + 50.0);
    }
    let slices: Vec<Vec<Option<Slice>>> = rows.iter().map(|row| row.panels.iter().map(slice).collect()).collect();
    let layout = Layout::new(rows, &slices, n_panels, options);
    let has_missing = values(&slices).any(|value| !value.is_finite());
    let cells = layout.cells(rows, slices);
    for first in (0..n_panels).step_by(layout.n_columns) {
        for (row, cells) in rows.iter().zip(&cells) {
            let chosen = &cells[first.min(cells.len())..(first + layout.n_columns).min(cells.len())];
            top = layout.draw_row(&mut canvas, top, &row.label, chosen);
        }
        top += 10.0;
    }
    let has_one_sided = cells.iter().flatten().flatten().any(|cell| cell.colours != options.colours);
    layout.draw_foot(&mut canvas, top, has_missing, has_one_sided);
    canvas.finish(top + 44.0)
}

fn slice(panel: &Panel) -> Option<Slice> {
    (!panel.values.is_empty()).then(|| Slice::choose(&panel.grid, &panel.values))
}

/// The scale of a map of its own: the few loudest sites do not decide.
fn quiet_limits(slice: &Slice, colours: Colours) -> (f64, f64) {
    let (low, high) = limits(slice.values.iter().copied(), colours);
    match quiet_size(slice.values.iter().copied()) {
        most if slice.shape == Shape::Curve || most == 0.0 => (low, high),
        most => (low.max(-most), high.min(most)),
    }
}

/// Whether what is below 0 is hardly anything.
fn is_one_sided(slice: &Slice) -> bool {
    let most = quiet_size(slice.values.iter().copied());
    let sum =
        |sign: f64| slice.values.iter().filter(|x| *x * sign > 0.0).map(|x| x.abs().min(most).powi(2)).sum::<f64>();
    slice.shape != Shape::Curve && sum(-1.0) < 0.02 * sum(1.0)
}

fn values(slices: &[Vec<Option<Slice>>]) -> impl Iterator<Item = f64> {
    slices.iter().flatten().flatten().flat_map(|slice| slice.values.iter().copied())
}

impl Layout {
    fn new(rows: &[GalleryRow], slices: &[Vec<Option<Slice>>], n_panels: usize, options: GalleryOptions) -> Layout {
        let labels = rows.iter().map(|row| text_width(&row.label, TextStyle::LABEL.size));
        let label = labels.fold(0.0, f64::max).min(110.0);
        let left = if label > 0.0 { EDGE + label + 12.0 } else { EDGE };
        let shape = slices.iter().flatten().flatten().next().map_or(Shape::Curve, |slice| slice.shape);
        let (height_share, n_most, highest) = match shape {
            Shape::Curve => (0.62, 5, 180.0),
            Shape::Plane { n_down, n_right } => {
                let share = n_down as f64 / n_right as f64;
                (share.clamp(0.2, 2.5), if share < 0.4 { 4 } else { usize::MAX }, 260.0)
            }
        };
        let n_columns = n_panels.min(options.n_columns).min(n_most).max(1);
        let room = (WIDTH - EDGE - left + GAP) / n_columns as f64 - GAP;
        let width = room.min(highest / height_share).floor();
        let shared_limits = limits(values(slices), options.colours);
        Layout { options, shape, shared_limits, n_columns, left, width, height: (width * height_share).round() }
    }

    fn cells(&self, rows: &[GalleryRow], slices: Vec<Vec<Option<Slice>>>) -> Vec<Vec<Option<Cell>>> {
        let lines = |text: &str, n_lines| wrap(text, self.width + GAP - 2.0, TextStyle::SMALL.size, n_lines);
        let cell = |(panel, slice): (&Panel, Option<Slice>)| {
            let slice = slice?;
            let name = slice.name.iter().flat_map(|name| lines(name, 1));
            let caption = lines(&panel.caption, 2).into_iter().chain(name).collect();
            let is_one_sided = self.options.by_sign && is_one_sided(&slice);
            let colours = if is_one_sided { Colours::Sequential } else { self.options.colours };
            Some(Cell { caption, slice, colours })
        };
        rows.iter().zip(slices).map(|(row, slices)| row.panels.iter().zip(slices).map(cell).collect()).collect()
    }

    /// Draws one row of one block and gives the y below it.
    fn draw_row(&self, canvas: &mut Canvas, top: f64, label: &str, cells: &[Option<Cell>]) -> f64 {
        if cells.is_empty() {
            return top;
        }
        let n_captions = cells.iter().flatten().map(|cell| cell.caption.len()).max().unwrap_or(0);
        let y = top + CAPTION * n_captions as f64 + 4.0;
        self.draw_label(canvas, y, label);
        for (column, cell) in cells.iter().enumerate() {
            let Some(cell) = cell else { continue };
            let x = self.left + column as f64 * (self.width + GAP);
            self.draw_cell(canvas, Rect { x, y, width: self.width, height: self.height }, cell);
        }
        y + self.height + 6.0
    }

    fn draw_label(&self, canvas: &mut Canvas, y: f64, label: &str) {
        let lines = wrap(label, self.left - EDGE - 11.0, TextStyle::LABEL.size, 3);
        let first = y + self.height / 2.0 + 4.0 - 7.5 * (lines.len().max(1) - 1) as f64;
        for (index, line) in lines.iter().enumerate() {
            let style = TextStyle::LABEL.anchored(Anchor::End);
            canvas.text(self.left - 12.0, first + 15.0 * index as f64, line, style);
        }
    }

    fn draw_cell(&self, canvas: &mut Canvas, frame: Rect, cell: &Cell) {
        for (index, line) in cell.caption.iter().rev().enumerate() {
            canvas.text(frame.middle().0, frame.y - 5.0 - CAPTION * index as f64, line, TextStyle::SMALL);
        }
        let limits = match self.options.limits {
            Limits::Shared => self.shared_limits,
            // Of a map of one sign nothing is below 0 but noise.
            Limits::PerPanel if cell.colours != self.options.colours => {
                (0.0, quiet_limits(&cell.slice, cell.colours).1)
            }
            Limits::PerPanel => quiet_limits(&cell.slice, cell.colours),
        };
        draw_slice(canvas, frame, &cell.slice, limits, cell.colours);
    }

    /// The colour bar with its limits, and what one has to know to read the panels.
    fn draw_foot(&self, canvas: &mut Canvas, top: f64, has_missing: bool, has_one_sided: bool) {
        let (low, high) = self.limit_names();
        let (x, missing) = match self.shape {
            Shape::Curve => (self.left, "gaps: no value"),
            Shape::Plane { .. } => {
                let mut right = draw_colour_bar(canvas, (self.left, top), self.options.colours, (&low, &high));
                if has_one_sided {
                    right = draw_colour_bar(canvas, (right, top), Colours::Sequential, ("0", "max"));
                }
                (right, "grey: no value")
            }
        };
        let mut notes = Vec::new();
        match (self.options.limits, self.shape) {
            (Limits::PerPanel, _) => {
                notes.push("each panel has its own scale, which a few loud sites may exceed".to_string())
            }
            (Limits::Shared, Shape::Curve) => notes.push(format!("all panels from {low} to {high}")),
            (Limits::Shared, Shape::Plane { .. }) => {}
        }
        if has_missing {
            notes.push(missing.into());
        }
        canvas.text(x, top + 12.0, &notes.join("; "), TextStyle::SMALL.anchored(Anchor::Start));
    }

    fn limit_names(&self) -> (String, String) {
        let (low, high) = self.shared_limits;
        match (self.options.limits, self.options.colours) {
            (Limits::Shared, _) => (number(low), number(high)),
            (Limits::PerPanel, Colours::Diverging) => ("−max".into(), "max".into()),
            (Limits::PerPanel, Colours::Sequential) => (if low < 0.0 { "min" } else { "0" }.into(), "max".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, n_panels: usize, grid: &[usize], value: impl Fn(usize) -> f64) -> GalleryRow {
        let values: Vec<f64> = (0..grid.iter().product()).map(value).collect();
        let panel = Panel { caption: "cos 0.98 and more".into(), grid: grid.into(), values };
        GalleryRow { label: label.into(), panels: vec![panel; n_panels] }
    }

    #[test]
    fn every_grid_and_option_draws() {
        let grids: [&[usize]; 7] = [&[12], &[1], &[5, 200], &[200, 5], &[900, 30], &[6, 7, 8], &[2, 3, 4, 5]];
        for grid in grids {
            for colours in [Colours::Diverging, Colours::Sequential] {
                let options = GalleryOptions { colours, limits: Limits::Shared, n_columns: 10, by_sign: true };
                let rows = [row("true", 3, grid, |site| site as f64 - 4.0), row("found", 1, grid, |_| 0.0)];
                super::super::check(&gallery("Grids", &rows, options));
                let odd = [row("all zero", 2, grid, |_| 0.0), row("odd", 13, grid, |_| f64::NAN)];
                super::super::check(&gallery("Odd", &odd, GalleryOptions::default()));
            }
        }
        super::super::check(&gallery("Nothing to be seen in this gallery", &[], GalleryOptions::default()));
    }

    #[test]
    fn loud_sites_do_not_own_a_map_and_one_sign_has_its_colours() {
        let plane = |values: Vec<f64>| Slice::choose(&[20, 20], &values);
        let mut values: Vec<f64> = (0..400).map(|site| (site % 20) as f64 / 10.0 - 1.0).collect();
        values[7] = 100.0;
        let slice = plane(values.clone());
        assert!(quiet_limits(&slice, Colours::Diverging).1 < 1.2 && !is_one_sided(&slice));
        let slice = plane(values.iter().map(|x| x.abs()).collect());
        assert!(is_one_sided(&slice));
        let (low, high) = quiet_limits(&slice, Colours::Sequential);
        assert!(low == 0.0 && (1.0..1.2).contains(&high), "{high}");
        // A small feature keeps its peak.
        let mut sparse = vec![0.0; 400];
        (0..9).for_each(|at| sparse[40 + at] = at as f64);
        assert_eq!(quiet_limits(&plane(sparse), Colours::Sequential), (0.0, 8.0));
    }

    #[test]
    fn empty_panels_leave_their_place() {
        let mut found = row("found", 2, &[4, 4], |site| site as f64);
        found.panels[0] = Panel::default();
        assert_eq!(gallery("Gap", &[found], GalleryOptions::default()).svg().matches("<image").count(), 2);
    }
}
