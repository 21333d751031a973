//! Maps as bytes: 8 bits a site with the scale beside them, finer near 0, where most of a sparse map lies.

/// Values as bytes, and the value of the largest code.
pub struct Coded {
    /// What codes are parts of.
    pub scale: f32,
    /// One a value.
    pub bytes: Vec<u8>,
}

/// Signed values: code 128 is 0, codes 1 and 255 are the largest size, sizes go with the square of the distance; 0 is none.
pub fn signed(values: impl Iterator<Item = f32> + Clone) -> Coded {
    let scale = largest(values.clone());
    let code = |x: f32| match x.is_finite() {
        true => (128.0 + x.signum() * (127.0 * (x.abs() / scale).sqrt()).round()) as u8,
        false => 0,
    };
    Coded { scale, bytes: values.map(code).collect() }
}

/// Values of 0 and more: code 1 is 0, code 255 the largest, with the square in between; 0 is none.
pub fn unsigned(values: impl Iterator<Item = f32> + Clone) -> Coded {
    let scale = largest(values.clone());
    let code = |x: f32| match x.is_finite() {
        true => (1.0 + (254.0 * (x.max(0.0) / scale).sqrt()).round()) as u8,
        false => 0,
    };
    Coded { scale, bytes: values.map(code).collect() }
}

fn largest(values: impl Iterator<Item = f32>) -> f32 {
    let size = values.filter(|x| x.is_finite()).fold(0.0f32, |most, x| most.max(x.abs()));
    if size > 0.0 { size } else { 1.0 }
}

/// One bit a site, the first in the lowest bit of the first byte.
pub fn bits(inside: &[bool]) -> Vec<u8> {
    let byte = |eight: &[bool]| eight.iter().enumerate().fold(0, |byte, (at, &is_in)| byte | u8::from(is_in) << at);
    inside.chunks(8).map(byte).collect()
}

/// Single precision, the lowest byte first.
pub fn floats(values: impl Iterator<Item = f64>) -> Vec<u8> {
    values.flat_map(|x| (x as f32).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_near_what_they_stand_for() {
        let values: Vec<f32> = (-200..=200).map(|at| (at as f32 / 50.0).powi(3)).chain([f32::NAN]).collect();
        let Coded { scale, bytes } = signed(values.iter().copied());
        assert_eq!((scale, bytes[401], bytes[200], bytes[400], bytes[0]), (64.0, 0, 128, 255, 1));
        for (x, &code) in values[..401].iter().zip(&bytes) {
            let part = (f32::from(code) - 128.0) / 127.0;
            let back = scale * part * part.abs();
            assert!((back - x).abs() <= scale * 1.01 * (part.abs() + 0.004) / 127.0, "{x} {back}");
        }
        let Coded { scale, bytes } = unsigned([0.0, 0.25, 1.0, f32::INFINITY].into_iter());
        assert_eq!((scale, &bytes[..]), (1.0, &[1, 128, 255, 0][..]));
        assert_eq!(signed([0.0f32; 3].into_iter()).scale, 1.0);
    }

    #[test]
    fn bits_are_low_first() {
        assert_eq!(bits(&[true, false, false, true, false, false, false, false, true]), [9, 1]);
    }
}
