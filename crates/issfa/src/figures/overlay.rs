//! A feature's slice in colour over an anatomical slice in grey, as pixels of one palette.

use super::canvas::Pixels;
use super::colour::Colours;

/// Colours of the feature, from the start of the palette; odd, so that 0 is white.
const N_COLOURS: usize = 127;
/// The page, where there is nothing.
const PAGE: u8 = 127;
/// Sites of the feature with no background under them.
const SILHOUETTE: u8 = 128;
/// The first of the greys, which fill the rest of the palette.
const FIRST_GREY: u8 = 129;
/// The darkest and the lightest grey: short of black and white, so that the ends of the colour map stand out.
const GREYS: (f64, f64) = (38.0, 232.0);
/// Background below this share of its window's upper end is air where it reaches the slice's edge.
const AIR: f64 = 0.05;

/// The background's values that are the darkest and the lightest grey.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    low: f64,
    high: f64,
}

impl Window {
    /// The 2nd to the 98th percentile of the positive values: the air around a head and a few bright vessels do not
    /// count.
    pub fn new(values: &[f32]) -> Self {
        let mut positive: Vec<f32> = values.iter().copied().filter(|value| *value > 0.0 && value.is_finite()).collect();
        let last = positive.len().saturating_sub(1) as f64;
        let mut percentile = |share: f64| {
            let at = (share * last).round() as usize;
            let is_any = at < positive.len();
            if is_any { f64::from(*positive.select_nth_unstable_by(at, f32::total_cmp).1) } else { 0.0 }
        };
        let (low, high) = (percentile(0.02), percentile(0.98));
        match (low < high, high > 0.0) {
            (true, _) => Window { low, high },
            (false, true) => Window { low: 0.0, high },
            (false, false) => Window { low: 0.0, high: 1.0 },
        }
    }

    fn grey(self, value: f64) -> u8 {
        let fraction = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        FIRST_GREY + (fraction * f64::from(u8::MAX - FIRST_GREY)).round() as u8
    }
}

/// Both volumes on the pixels of one slice, line by line from the top; NaN where there is no value.
pub struct Layers {
    pub width: usize,
    pub height: usize,
    pub feature: Vec<f64>,
    pub background: Option<(Vec<f64>, Window)>,
}

impl Layers {
    /// Whether the background has a value anywhere on the slice.
    pub fn has_background(&self) -> bool {
        self.background.as_ref().is_some_and(|(values, _)| values.iter().any(|value| !value.is_nan()))
    }

    /// Values at least as large as the threshold in colour, with ends at `largest`, over the background.
    pub fn pixels(&self, threshold: f64, largest: f64) -> Pixels {
        let ground = self.ground();
        let colour = |(&value, ground): (&f64, u8)| {
            let is_shown = value.is_finite() && value.abs() >= threshold;
            if is_shown { colour_index(value, largest) } else { ground }
        };
        let indices = self.feature.iter().zip(ground).map(colour).collect();
        Pixels { width: self.width, height: self.height, indices, palette: palette() }
    }

    /// What lies under the feature: the background, or the feature's own outline where there is none.
    fn ground(&self) -> Vec<u8> {
        let silhouette = |value: &f64| if value.is_nan() { PAGE } else { SILHOUETTE };
        let Some((background, window)) = &self.background else {
            return self.feature.iter().map(silhouette).collect();
        };
        let air = air(background, self.width, AIR * window.high);
        let ground = |pixel: usize| match background[pixel] {
            value if value.is_nan() => silhouette(&self.feature[pixel]),
            _ if air[pixel] => PAGE,
            value => window.grey(value),
        };
        (0..background.len()).map(ground).collect()
    }
}

/// The dark pixels that are joined to the edge of the slice, or to where there is no background, by dark pixels.
/// They are left white: dark ones inside of a head, such as the skull, stay dark.
fn air(values: &[f64], width: usize, brightest: f64) -> Vec<bool> {
    let n_pixels = values.len();
    let neighbours = |pixel: usize| {
        let column = pixel % width;
        let left = if column > 0 { Some(pixel - 1) } else { None };
        let right = if column + 1 < width { Some(pixel + 1) } else { None };
        [left, right, pixel.checked_sub(width), Some(pixel + width).filter(|&below| below < n_pixels)]
    };
    let is_dark = |pixel: usize| values[pixel] < brightest;
    let is_at_edge = |pixel: usize| neighbours(pixel).iter().any(|next| next.is_none_or(|next| values[next].is_nan()));
    let mut waiting: Vec<usize> = (0..n_pixels).filter(|&pixel| is_dark(pixel) && is_at_edge(pixel)).collect();
    let mut air = vec![false; n_pixels];
    while let Some(pixel) = waiting.pop() {
        if !std::mem::replace(&mut air[pixel], true) {
            waiting.extend(neighbours(pixel).into_iter().flatten().filter(|&next| is_dark(next) && !air[next]));
        }
    }
    air
}

fn colour_index(value: f64, largest: f64) -> u8 {
    let fraction = if largest > 0.0 { (value / largest + 1.0) / 2.0 } else { 0.5 };
    (fraction.clamp(0.0, 1.0) * (N_COLOURS - 1) as f64).round() as u8
}

fn palette() -> Vec<[u8; 3]> {
    let colours = (0..N_COLOURS).map(|index| Colours::Diverging.at(index as f64 / (N_COLOURS - 1) as f64));
    let n_greys = u8::MAX - FIRST_GREY;
    let grey = |index: u8| GREYS.0 + (GREYS.1 - GREYS.0) * f64::from(index) / f64::from(n_greys);
    let greys = (0..=n_greys).map(|index| [grey(index).round() as u8; 3]);
    colours.chain([[255; 3], [221; 3]]).chain(greys).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colours(pixels: &Pixels) -> Vec<[u8; 3]> {
        pixels.indices.iter().map(|&index| pixels.palette[index as usize]).collect()
    }

    #[test]
    fn only_large_values_are_in_colour() {
        let feature = vec![-4.0, 1.9, 2.0, f64::NAN, f64::INFINITY, 0.0];
        let window = Window { low: 10.0, high: 20.0 };
        let background = Some((vec![15.0, 15.0, 15.0, 10.0, 25.0, f64::NAN], window));
        let shown = colours(&Layers { width: 3, height: 2, feature: feature.clone(), background }.pixels(2.0, 4.0));
        let is_grey = |colour: [u8; 3]| colour[0] == colour[1] && colour[1] == colour[2];
        assert!(shown[0][2] > shown[0][0] && shown[2][0] > shown[2][2], "blue and red: {shown:?}");
        assert!(is_grey(shown[1]) && (130..140).contains(&shown[1][0]), "{shown:?}");
        assert_eq!(shown[3..], [[38; 3], [232; 3], [221; 3]]);
        let bare = colours(&Layers { width: 3, height: 2, feature, background: None }.pixels(2.0, 4.0));
        assert_eq!((bare[1], bare[3], bare[5]), ([221; 3], [255; 3], [221; 3]));
        assert_eq!(palette().len(), 256);
    }

    #[test]
    fn air_is_white_and_holes_stay_dark() {
        // A ring of tissue with a dark middle, in air.
        let ring = |pixel: usize| {
            let (down, across) = ((pixel / 7) as i32 - 3, (pixel % 7) as i32 - 3);
            if down.abs().max(across.abs()) == 2 { 9.0 } else { 0.1 }
        };
        let background: Vec<f64> = (0..49).map(ring).collect();
        let air = air(&background, 7, 1.0);
        assert!(air[0] && air[48] && !air[8] && !air[24]);
        assert_eq!(air.iter().filter(|is_air| **is_air).count(), 24);
    }

    #[test]
    fn windows_are_percentiles_of_positive_values() {
        let mut values: Vec<f32> = (1..=101).map(|value| value as f32).collect();
        values.extend([0.0, -50.0, f32::NAN, f32::INFINITY]);
        assert_eq!(Window::new(&values), Window { low: 3.0, high: 99.0 });
        assert_eq!(Window::new(&[0.0, 1.0, 1.0]), Window { low: 0.0, high: 1.0 });
        assert_eq!(Window::new(&[]), Window { low: 0.0, high: 1.0 });
    }
}
