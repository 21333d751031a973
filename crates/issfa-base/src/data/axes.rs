//! What the axes of a grid are called and where their sites lie: `latitude=61:49,longitude=-10:2`.

use crate::error::{Error, Result};
use serde::Serialize;

/// An axis of a grid with evenly spaced sites.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AxisPlaces {
    /// As the user calls it.
    pub name: String,
    /// The coordinate of the first site, where known.
    pub first: Option<f64>,
    /// The coordinate of the last site, where known.
    pub last: Option<f64>,
}

impl AxisPlaces {
    /// Whether pictures show it from its last site on: north is up, east is right.
    pub fn is_turned(&self) -> bool {
        let name = self.name.to_lowercase();
        let (Some(first), Some(last)) = (self.first, self.last) else { return false };
        match &name[..] {
            "lat" | "latitude" | "north" | "northing" => first < last,
            "lon" | "longitude" | "east" | "easting" => first > last,
            _ => false,
        }
    }
}

/// Reads the axes of a grid, one for each: names, with or without the coordinates of the first and the last site.
pub fn parse_axes(text: &str, n_axes: usize) -> Result<Vec<AxisPlaces>> {
    let wrong = |problem: String| Error::setting("axes", text, problem);
    let number = |text: &str| {
        let value: Option<f64> = text.trim().parse().ok().filter(|x: &f64| x.is_finite());
        value.ok_or_else(|| wrong(format!("'{text}' is not a number; write name=first:last for each axis")))
    };
    let axis = |part: &str| {
        let (name, ends) = part.split_once('=').map_or((part, None), |(name, ends)| (name, Some(ends)));
        let name = name.trim().to_string();
        if name.is_empty() {
            return Err(wrong("an axis has no name; write name=first:last for each axis".into()));
        }
        let Some(ends) = ends else { return Ok(AxisPlaces { name, first: None, last: None }) };
        let Some((first, last)) = ends.split_once(':') else {
            return Err(wrong(format!("'{ends}' is not first:last")));
        };
        Ok(AxisPlaces { name, first: Some(number(first)?), last: Some(number(last)?) })
    };
    let axes = text.split(',').map(axis).collect::<Result<Vec<_>>>()?;
    if axes.len() != n_axes {
        return Err(wrong(format!("names {} axes, but the grid has {n_axes}", axes.len())));
    }
    Ok(axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read_and_turned_north_up() {
        let axes = parse_axes("latitude=49:61, longitude=-10:2", 2).unwrap();
        assert_eq!((axes[1].name.as_str(), axes[1].first, axes[1].last), ("longitude", Some(-10.0), Some(2.0)));
        assert_eq!([axes[0].is_turned(), axes[1].is_turned()], [true, false]);
        assert!(!parse_axes("lat=61:49,hour", 2).unwrap()[0].is_turned());
        for bad in ["lat", "lat=1,lon=2:3", "lat=a:b,lon", "=1:2,x", "lat=1:nan,x"] {
            assert!(parse_axes(bad, 2).is_err(), "{bad}");
        }
    }
}
