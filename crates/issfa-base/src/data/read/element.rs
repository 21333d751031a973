//! Numbers as files store them: kind and byte order, decoded to f64.

/// The types of numbers that files hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One byte, 0 or not.
    Bool,
    /// Signed, one byte.
    I8,
    /// Signed, two bytes.
    I16,
    /// Signed, four bytes.
    I32,
    /// Signed, eight bytes.
    I64,
    /// Unsigned, one byte.
    U8,
    /// Unsigned, two bytes.
    U16,
    /// Unsigned, four bytes.
    U32,
    /// Unsigned, eight bytes.
    U64,
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Kind {
    /// Bytes of one value.
    pub fn size(self) -> usize {
        match self {
            Kind::Bool | Kind::I8 | Kind::U8 => 1,
            Kind::I16 | Kind::U16 | Kind::F16 => 2,
            Kind::I32 | Kind::U32 | Kind::F32 => 4,
            Kind::I64 | Kind::U64 | Kind::F64 => 8,
        }
    }

    /// Whether single precision holds all values of this kind exactly.
    pub fn is_single(self) -> bool {
        self.size() <= 2 || self == Kind::F32
    }
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least significant.
    Little,
    /// The most significant.
    Big,
}

/// How one value is stored; 64-bit integers beyond 2^53 are rounded when read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// What the number is.
    pub kind: Kind,
    /// Which of its bytes comes first.
    pub order: ByteOrder,
}

impl Encoding {
    /// Writes the values of `bytes` to the places of `out`, one by one.
    pub fn decode<'a>(self, bytes: &[u8], out: impl Iterator<Item = &'a mut f64>) {
        let order = self.order;
        match self.kind {
            Kind::Bool => decode_each(order, bytes, out, |[byte]| f64::from(u8::from(byte != 0))),
            Kind::I8 => decode_each(order, bytes, out, |value| f64::from(i8::from_le_bytes(value))),
            Kind::I16 => decode_each(order, bytes, out, |value| f64::from(i16::from_le_bytes(value))),
            Kind::I32 => decode_each(order, bytes, out, |value| f64::from(i32::from_le_bytes(value))),
            Kind::I64 => decode_each(order, bytes, out, |value| i64::from_le_bytes(value) as f64),
            Kind::U8 => decode_each(order, bytes, out, |[byte]| f64::from(byte)),
            Kind::U16 => decode_each(order, bytes, out, |value| f64::from(u16::from_le_bytes(value))),
            Kind::U32 => decode_each(order, bytes, out, |value| f64::from(u32::from_le_bytes(value))),
            Kind::U64 => decode_each(order, bytes, out, |value| u64::from_le_bytes(value) as f64),
            Kind::F16 => decode_each(order, bytes, out, |value| half_to_f64(u16::from_le_bytes(value))),
            Kind::F32 => decode_each(order, bytes, out, |value| f64::from(f32::from_le_bytes(value))),
            Kind::F64 => decode_each(order, bytes, out, f64::from_le_bytes),
        }
    }
}

/// `convert` takes little-endian bytes; the byte order is settled outside the loop.
fn decode_each<'a, const SIZE: usize>(
    order: ByteOrder,
    bytes: &[u8],
    out: impl Iterator<Item = &'a mut f64>,
    convert: impl Fn([u8; SIZE]) -> f64,
) {
    let pairs = out.zip(bytes.as_chunks::<SIZE>().0);
    match order {
        ByteOrder::Little => pairs.for_each(|(place, &value)| *place = convert(value)),
        ByteOrder::Big => pairs.for_each(|(place, &(mut value))| {
            value.reverse();
            *place = convert(value);
        }),
    }
}

/// IEEE half precision: 1 sign bit, 5 exponent bits, 10 fraction bits.
fn half_to_f64(bits: u16) -> f64 {
    let (exponent, fraction) = (u64::from(bits >> 10 & 0x1f), u64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction as f64 / f64::from(1 << 24),
        0x1f => f64::from_bits(0x7ff << 52 | fraction << 42),
        _ => f64::from_bits((exponent + 1023 - 15) << 52 | fraction << 42),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_exact() {
        assert_eq!(half_to_f64(0x7bff), 65504.0);
        assert_eq!(half_to_f64(0x3555), 0.333251953125);
        assert_eq!(half_to_f64(0x03ff), 1023.0 / 2f64.powi(24));
        assert_eq!(half_to_f64(0x0400), 2f64.powi(-14));
        assert_eq!(half_to_f64(0xfc00), f64::NEG_INFINITY);
        assert!(half_to_f64(0x7e01).is_nan() && half_to_f64(0x8000).is_sign_negative());
    }
}
