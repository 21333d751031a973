//! Grids as people write them: `100x100`.

use crate::error::{Error, Result};

/// The longest axis that is taken for meant.
pub const LONGEST_AXIS: usize = 100_000_000;

/// Reads a grid such as `100x100`.
pub fn parse_grid(text: &str) -> Result<Vec<usize>> {
    let mut position = 0;
    let mut grid = Vec::new();
    for part in text.split('x') {
        match part.trim().parse::<usize>() {
            Ok(n) if (1..=LONGEST_AXIS).contains(&n) => grid.push(n),
            _ => {
                return Err(Error::expression(
                    text,
                    position,
                    "a grid is positive whole numbers joined by x, such as 100x100",
                ));
            }
        }
        position += part.chars().count() + 1;
    }
    if grid.iter().try_fold(1usize, |product, &n| product.checked_mul(n)).is_none() {
        return Err(Error::expression(text, 0, "a grid with more sites than can be counted"));
    }
    Ok(grid)
}

/// A grid as a user writes it.
pub fn show_grid(grid: &[usize]) -> String {
    grid.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids() {
        assert_eq!(parse_grid("100x3x7").unwrap(), [100, 3, 7]);
        for bad in ["", "10x", "0x4", "a", "10x-1", "1.5"] {
            assert!(parse_grid(bad).is_err(), "{bad}");
        }
    }
}
