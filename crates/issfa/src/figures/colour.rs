//! Colour maps and palettes that survive colour blindness and grey printing.

/// Six friendly colours for series (Okabe and Ito).
pub const PALETTE: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Colour of a value that is not a number: darker than 0 is on either map, and grey as no value is.
pub const MISSING: [u8; 3] = [150, 150, 150];

/// Blue over white to red, in steps of even lightness (ColorBrewer RdBu).
const DIVERGING: [[u8; 3]; 11] = [
    [5, 48, 97],
    [33, 102, 172],
    [67, 147, 195],
    [146, 197, 222],
    [209, 229, 240],
    [255, 255, 255],
    [253, 219, 199],
    [244, 165, 130],
    [214, 96, 77],
    [178, 24, 43],
    [103, 0, 31],
];

/// Dark violet to yellow, in steps of even lightness (viridis).
const SEQUENTIAL: [[u8; 3]; 10] = [
    [68, 1, 84],
    [72, 40, 120],
    [62, 74, 137],
    [49, 104, 142],
    [38, 130, 142],
    [31, 158, 137],
    [53, 183, 121],
    [110, 206, 88],
    [181, 222, 43],
    [253, 231, 37],
];

/// Of how many values one may exceed the scale of a map.
const LOUD: usize = 500;

/// The size that a map is scaled to: the few loudest of its values do not decide. 0 where there are none.
pub fn quiet_size(values: impl Iterator<Item = f64>) -> f64 {
    let mut sizes: Vec<f64> = values.map(f64::abs).filter(|size| size.is_finite() && *size > 0.0).collect();
    let loud = (sizes.len() / LOUD).max(4);
    sizes.sort_by(|a, b| b.total_cmp(a));
    match sizes.first() {
        Some(&largest) if sizes.len() >= 10 * loud => largest.min(1.15 * sizes[loud]),
        largest => largest.copied().unwrap_or(0.0),
    }
}

/// A colour map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colours {
    /// For signed values, symmetric about 0.
    #[default]
    Diverging,
    /// For values of one sign.
    Sequential,
}

impl Colours {
    /// The colour at a fraction of the scale; fractions outside 0 to 1 get the end colours.
    pub fn at(self, fraction: f64) -> [u8; 3] {
        let stops: &[[u8; 3]] = match self {
            Colours::Diverging => &DIVERGING,
            Colours::Sequential => &SEQUENTIAL,
        };
        let place = fraction.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
        let lower = (place as usize).min(stops.len() - 2);
        let share = place - lower as f64;
        std::array::from_fn(|channel| {
            let [from, to] = [stops[lower][channel], stops[lower + 1][channel]].map(f64::from);
            (from + share * (to - from)).round() as u8
        })
    }

    /// 255 colours over the scale (an odd number, so that 0 is white), then [`MISSING`].
    pub fn palette(self) -> Vec<[u8; 3]> {
        (0..255).map(|index| self.at(index as f64 / 254.0)).chain([MISSING]).collect()
    }

    /// The place of a value in [`Colours::palette`], for limits `(low, high)`.
    pub fn index(value: f64, limits: (f64, f64)) -> u8 {
        if !value.is_finite() {
            return 255;
        }
        let fraction = (value - limits.0) / (limits.1 - limits.0);
        (fraction.clamp(0.0, 1.0) * 254.0).round() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_white_and_signs_differ() {
        let palette = Colours::Diverging.palette();
        let colour = |value| palette[Colours::index(value, (-2.0, 2.0)) as usize];
        assert_eq!(colour(0.0), [255, 255, 255]);
        assert!(colour(1.5)[0] > colour(1.5)[2], "positive is red");
        assert!(colour(-1.5)[2] > colour(-1.5)[0], "negative is blue");
        assert_eq!(colour(f64::NAN), MISSING);
        assert_eq!(colour(9.0), colour(2.0));
    }

    #[test]
    fn the_sequential_map_grows_lighter() {
        let light =
            |colour: [u8; 3]| 0.21 * f64::from(colour[0]) + 0.72 * f64::from(colour[1]) + 0.07 * f64::from(colour[2]);
        let palette = Colours::Sequential.palette();
        assert!(palette[..255].windows(2).all(|pair| light(pair[1]) >= light(pair[0]) - 0.8));
    }
}
