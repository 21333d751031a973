//! One feature of brain volumes on a page: slices through its peak over the anatomy, and its time courses beneath.

pub use super::courses::TimeCourse;
pub use super::resample::Volume;

use super::axes::LEFT;
use super::canvas::{Canvas, EDGE, INK, Rect, Stroke};
use super::colour::{Colours, quiet_size};
use super::courses;
use super::overlay::{Layers, Window};
use super::panel::{BORDER, colour_bar, draw_colour_bar};
use super::resample::{PLANES, Placed, Plane, Raster, World, pixel_size};
use super::text::{Anchor, TextStyle, wrap};
use super::ticks::number;
use super::{Figure, WIDTH};

/// Room at a slice's side for the letters of its directions.
const LETTER: f64 = 16.0;
/// Space between two slices with their letters.
const GAP: f64 = 8.0;
/// Marks at the edges of a slice that point to the peak.
const MARK: Stroke = Stroke::solid(INK, 1.0);
const MARK_LENGTH: f64 = 7.0;
/// A slice with a shorter side has no room for marks and letters.
const SHORTEST_LETTERED: f64 = 28.0;
/// The part of the colour bar that is below the threshold.
const HIDDEN: &str = "#c4c4c4";
/// Low and high end of each axis of the world.
const DIRECTIONS: [(&str, &str); 3] = [("L", "R"), ("P", "A"), ("I", "S")];

/// What a brain figure shows.
#[derive(Debug, Clone)]
pub struct BrainFigure<'a> {
    /// At the top of the figure.
    pub title: String,
    /// The feature. The slices go through where most of its squares lie.
    pub feature: BrainMap<'a>,
    /// Another map of the feature, shown on the same slices under it: in noise units, one loud voxel does not own it.
    pub other: Option<BrainMap<'a>>,
    /// Drawn in grey under the feature, resampled by the affines; it may have another grid and affine than the feature.
    pub background: Option<Volume<'a>>,
    /// One a run.
    pub time_courses: Vec<TimeCourse>,
    /// Seconds between rows, where known: then the x axis is in seconds, else in rows ("volume").
    pub repetition_seconds: Option<f64>,
}

/// A map that is shown over the background.
#[derive(Debug, Clone)]
pub struct BrainMap<'a> {
    /// Over its slices; empty where there is nothing to tell it from.
    pub name: String,
    /// NaN outside of the mask.
    pub volume: Volume<'a>,
    /// Values below it in size are not shown over the background.
    pub threshold: f64,
    /// How the threshold was chosen, for the foot: "twice the mean absolute value" say.
    pub threshold_note: String,
}

/// Slices in millimetres through the place with the most squares about it, the right side of the body on the right;
/// under them the weights of every run. Of a volume with an axis of length 1, only the slices that show the two other
/// axes are drawn. An affine that cannot be inverted is replaced by the voxel axes.
pub fn brain_figure(what: &BrainFigure) -> Figure {
    let mut canvas = Canvas::new();
    let mut top = canvas.title(&what.title);
    let first = Scene::new(&what.feature, what.background, None);
    let other = what.other.as_ref().map(|map| Scene::new(map, what.background, Some(first.peak)));
    for scene in std::iter::once(&first).chain(&other) {
        top = scene.draw_slices(&mut canvas, top);
        top = scene.draw_foot(&mut canvas, top + 10.0) + 14.0;
    }
    let bottom = courses::draw(&mut canvas, top, &what.time_courses, what.repetition_seconds);
    canvas.finish(bottom + 4.0)
}

/// How the volumes lie to one another.
struct Scene<'a> {
    what: &'a BrainMap<'a>,
    under: Option<Volume<'a>>,
    feature: Placed<'a>,
    /// Whether the feature's affine is of use; if not, directions and millimetres are not known.
    has_affine: bool,
    peak: World,
    /// Whether the slices are those of another map.
    follows: bool,
    largest: f64,
    /// The value of the strongest colour, which a few loud voxels may exceed.
    limit: f64,
    slices: Vec<(Raster, Layers)>,
    notes: Vec<&'static str>,
}

impl<'a> Scene<'a> {
    /// Of a map over an image, at a place, or else where most of its squares lie.
    fn new(what: &'a BrainMap<'a>, under: Option<Volume<'a>>, at: Option<World>) -> Self {
        let placed = Placed::by_affine(what.volume);
        let has_affine = placed.is_some();
        let feature = placed.unwrap_or_else(|| Placed::by_voxels(what.volume));
        let (peak, largest) = feature.peak();
        let (peak, follows) = (at.unwrap_or(peak), at.is_some());
        let limit = quiet_size(what.volume.values.iter().map(|&x| f64::from(x))).max(what.threshold.min(largest));
        let (slices, notes) = (Vec::new(), Vec::new());
        let mut scene = Scene { what, under, feature, has_affine, peak, follows, largest, limit, slices, notes };
        scene.slices = scene.cut();
        scene.notes = scene.find_notes();
        scene
    }

    /// The slices of both volumes; without a background where it is nowhere on them.
    fn cut(&self) -> Vec<(Raster, Layers)> {
        let background = self.placed_background();
        let window = self.under.map(|volume| Window::new(volume.values)).unwrap_or_else(|| Window::new(&[]));
        let (bounds, pixel) = (self.feature.bounds(), pixel_size(&self.feature));
        let raster = |plane| Raster::new(plane, &bounds, self.peak, pixel);
        let rasters: Vec<Raster> = planes(self.feature.n_along()).into_iter().map(raster).collect();
        let mut slices: Vec<(Raster, Layers)> = Vec::new();
        for raster in rasters {
            let layer = |place| self.feature.in_layer(place, raster.plane.through);
            let feature = raster.places().map(|place| self.feature.nearest(layer(place))).collect();
            let under = |volume: &Placed| raster.places().map(|place| volume.smooth(layer(place))).collect();
            let background = background.as_ref().map(|volume| (under(volume), window));
            let layers = Layers { width: raster.n_across, height: raster.n_down, feature, background };
            slices.push((raster, layers));
        }
        if !slices.iter().any(|(_, layers)| layers.has_background()) {
            slices.iter_mut().for_each(|(_, layers)| layers.background = None);
        }
        slices
    }

    /// A feature that is known by its voxels alone can only lie on a background with the same voxels.
    fn placed_background(&self) -> Option<Placed<'a>> {
        let background = self.under?;
        if self.has_affine {
            return Placed::by_affine(background);
        }
        (background.grid == self.what.volume.grid).then(|| Placed::by_voxels(background))
    }

    /// What one has to know when something is not as expected.
    fn find_notes(&self) -> Vec<&'static str> {
        let has_background = self.slices.iter().any(|(_, layers)| layers.has_background());
        let is_hidden = self.largest < self.what.threshold || self.what.threshold.is_nan();
        let notes = [
            (!self.has_affine, "no usable affine: slices along the voxel axes"),
            (self.under.is_some() && !has_background, "background does not overlap the slices shown"),
            (self.largest == 0.0, "the feature has no values but zero"),
            (self.largest > 0.0 && is_hidden, "no value reaches the threshold"),
        ];
        notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect()
    }

    /// Draws the slices side by side, all at the same scale, and gives the y below them.
    fn draw_slices(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let sizes: Vec<(f64, f64)> = self.slices.iter().map(|(raster, _)| raster.size()).collect();
        let n_slices = sizes.len() as f64;
        let around = n_slices * 2.0 * LETTER + (n_slices - 1.0) * GAP;
        let wide: f64 = sizes.iter().map(|size| size.0).sum();
        let high = sizes.iter().map(|size| size.1).fold(0.0, f64::max);
        let highest = if sizes.len() == 1 { 340.0 } else { 290.0 };
        let scale = ((WIDTH - 2.0 * EDGE - around) / wide).min(highest / high);
        let name = TextStyle::LABEL.anchored(Anchor::Start);
        canvas.text(EDGE, top + 10.0, &self.what.name, name);
        let top = top + 18.0 + LETTER + if self.what.name.is_empty() { 0.0 } else { 20.0 };
        let mut x = (WIDTH - around - scale * wide) / 2.0 + LETTER;
        for ((raster, layers), size) in self.slices.iter().zip(sizes) {
            let (width, height) = (scale * size.0, (scale * size.1).max(1.0));
            let frame = Rect { x, y: top, width, height };
            canvas.text(frame.middle().0, top - LETTER - 6.0, &self.caption(raster.plane), TextStyle::LABEL);
            self.draw_slice(canvas, frame, raster, layers);
            x += width + 2.0 * LETTER + GAP;
        }
        top + (scale * high).max(1.0) + LETTER
    }

    /// `axial, z = 12 mm`.
    fn caption(&self, plane: Plane) -> String {
        let axis = ["x", "y", "z"][plane.through];
        let at = number((self.peak[plane.through] * 10.0).round() / 10.0);
        if self.has_affine { format!("{}, {axis} = {at} mm", plane.name) } else { format!("voxel {axis} = {at}") }
    }

    fn draw_slice(&self, canvas: &mut Canvas, frame: Rect, raster: &Raster, layers: &Layers) {
        canvas.image(frame, layers.pixels(self.what.threshold, self.limit));
        canvas.frame(frame, BORDER);
        if frame.width.min(frame.height) < SHORTEST_LETTERED {
            return;
        }
        let shares = raster.shares(self.peak);
        let (x, y) = (frame.x + shares.0 * frame.width, frame.y + shares.1 * frame.height);
        canvas.line((x, frame.y), (x, frame.y + MARK_LENGTH), MARK);
        canvas.line((x, frame.bottom() - MARK_LENGTH), (x, frame.bottom()), MARK);
        canvas.line((frame.x, y), (frame.x + MARK_LENGTH, y), MARK);
        canvas.line((frame.right() - MARK_LENGTH, y), (frame.right(), y), MARK);
        if self.has_affine {
            draw_letters(canvas, frame, raster.plane);
        }
    }

    /// The colour bar and what is shown in colour; gives the y below.
    fn draw_foot(&self, canvas: &mut Canvas, top: f64) -> f64 {
        let at = (LEFT, top);
        let limit = if self.limit > 0.0 { self.limit } else { 1.0 };
        let (below, above) = if self.largest > 1.001 * limit { ("≤ ", "≥ ") } else { ("", "") };
        let ends = (format!("{below}{}", number(-limit)), format!("{above}{}", number(limit)));
        let right = draw_colour_bar(canvas, at, Colours::Diverging, (&ends.0, &ends.1));
        let bar = colour_bar(at);
        let hidden = (self.what.threshold / limit).clamp(0.0, 1.0) * bar.width;
        if hidden > 0.0 {
            canvas.rect(Rect { x: bar.middle().0 - hidden / 2.0, width: hidden, ..bar }, HIDDEN);
            canvas.frame(bar, BORDER);
        }
        let width = WIDTH - EDGE - right - 4.0;
        let lines = self.foot().map(|text| wrap(&text, width, TextStyle::SMALL.size, 2)).concat();
        for (index, line) in lines.iter().enumerate() {
            let y = top + 12.0 + 15.0 * index as f64;
            canvas.text(right + 4.0, y, line, TextStyle::SMALL.anchored(Anchor::Start));
        }
        top + 15.0 * lines.len().max(2) as f64
    }

    /// What is in colour, and where the slices are.
    fn foot(&self) -> [String; 2] {
        let why = match self.what.threshold_note.trim() {
            "" => String::new(),
            note => format!(" ({note})"),
        };
        let shown = format!("in colour: absolute value at least {}{why}", number(self.what.threshold));
        let slices = if self.slices.len() == 1 { "slice" } else { "slices" };
        let marks = match self.follows {
            true => format!("the same {slices}"),
            false => format!("{slices} through where most of its squares lie (marks at the edges)"),
        };
        [shown, [marks.as_str()].iter().chain(&self.notes).copied().collect::<Vec<_>>().join("; ")]
    }
}

/// The planes that have more than one voxel along both of their axes; if none has, the one with the most voxels.
fn planes(n_along: [usize; 3]) -> Vec<Plane> {
    let shown: Vec<Plane> =
        PLANES.into_iter().filter(|plane| n_along[plane.across] > 1 && n_along[plane.up] > 1).collect();
    if !shown.is_empty() {
        return shown;
    }
    let n_voxels = |plane: &Plane| n_along[plane.across] * n_along[plane.up];
    let larger = |best: Plane, plane: Plane| if n_voxels(&plane) > n_voxels(&best) { plane } else { best };
    vec![PLANES.into_iter().fold(PLANES[0], larger)]
}

fn draw_letters(canvas: &mut Canvas, frame: Rect, plane: Plane) {
    let (x, y) = frame.middle();
    let (left, right) = DIRECTIONS[plane.across];
    let (low, high) = DIRECTIONS[plane.up];
    let places = [
        (frame.x - 9.0, y + 4.0, left),
        (frame.right() + 9.0, y + 4.0, right),
        (x, frame.y - 4.0, high),
        (x, frame.bottom() + 12.0, low),
    ];
    places.into_iter().for_each(|(x, y, letter)| canvas.text(x, y, letter, TextStyle::SMALL));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::nifti::Affine;

    const UNIT: Affine = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];

    fn shifted(by: f64) -> Affine {
        let mut affine = UNIT;
        (0..3).for_each(|line| affine[line][3] = by);
        affine
    }

    fn figure<'a>(feature: Volume<'a>, background: Option<Volume<'a>>) -> BrainFigure<'a> {
        let course =
            TimeCourse { name: "run 1".into(), weights: vec![1.0, -2.0, 0.5], active: vec![true, true, false] };
        let threshold_note = "twice the mean absolute value".into();
        BrainFigure {
            title: "Feature 3".into(),
            feature: BrainMap { name: String::new(), volume: feature, threshold: 2.0, threshold_note },
            other: None,
            background,
            time_courses: vec![course; 2],
            repetition_seconds: Some(2.0),
        }
    }

    fn draw(figure: &BrainFigure) -> String {
        let drawn = brain_figure(figure);
        super::super::check(&drawn);
        drawn.svg().to_string()
    }

    #[test]
    fn captions_say_where_the_peak_is() {
        let grid = [6, 7, 8];
        let mut values = vec![0.5; 6 * 7 * 8];
        values[(5 * 7 + 2) * 8 + 3] = -9.0;
        let svg = draw(&figure(Volume { grid, values: &values, affine: shifted(-4.0) }, None));
        for text in ["axial, z = −1 mm", "sagittal, x = 1 mm", "coronal, y = −2 mm", "≤ −2", "twice the mean"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!([">L<", ">R<", ">A<", ">P<", ">S<", ">I<"].iter().all(|letter| svg.matches(letter).count() == 2));
    }

    #[test]
    fn flat_grids_show_the_slices_they_have() {
        assert_eq!(planes([40, 20, 1]), [PLANES[0]]);
        assert_eq!(planes([1, 20, 9]), [PLANES[1]]);
        assert_eq!(planes([40, 20, 2]), PLANES);
        assert_eq!(planes([1, 1, 9]).len(), 1);
        for grid in [[40, 20, 1], [1, 20, 9], [30, 1, 1], [1, 1, 1], [2000, 2, 1], [0, 4, 4]] {
            let values: Vec<f32> = (0..grid.iter().product()).map(|site: usize| site as f32).collect();
            draw(&figure(Volume { grid, values: &values, affine: UNIT }, None));
        }
    }

    #[test]
    fn a_background_elsewhere_is_noted() {
        let values = vec![3.0; 64];
        let volume = |affine| Volume { grid: [4; 3], values: &values, affine };
        let is_noted = |feature, background| draw(&figure(feature, Some(background))).contains("does not overlap");
        assert!(!is_noted(volume(UNIT), volume(shifted(-2.0))));
        assert!(is_noted(volume(UNIT), volume(shifted(50.0))));
        assert!(is_noted(volume(UNIT), volume([[0.0; 4]; 4])));
        // Neither has an affine, but they have the same voxels.
        assert!(!is_noted(volume([[0.0; 4]; 4]), volume([[0.0; 4]; 4])));
    }

    #[test]
    fn odd_input_draws() {
        let fields = [vec![f32::NAN; 60], vec![0.0; 60], vec![f32::INFINITY; 60], vec![f32::MAX; 60], vec![-1e-38; 60]];
        for values in &fields {
            for threshold in [0.0, -1.0, 2.0, f64::NAN, f64::INFINITY] {
                let volume = Volume { grid: [3, 4, 5], values, affine: UNIT };
                let mut odd = figure(volume, Some(volume));
                odd.feature.threshold = threshold;
                odd.time_courses.clear();
                odd.feature.threshold_note.clear();
                odd.other = Some(odd.feature.clone());
                draw(&odd);
            }
        }
        let mut broken = figure(Volume { grid: [3, 4, 5], values: &fields[3], affine: [[f64::NAN; 4]; 4] }, None);
        assert!(draw(&broken).contains("no usable affine"));
        broken.time_courses = vec![TimeCourse::default(); 30];
        broken.title = "a long title ".repeat(30);
        draw(&broken);
    }
}
