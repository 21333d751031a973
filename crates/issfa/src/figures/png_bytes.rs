//! Eight-bit pixels as the bytes of a PNG file.

/// How pixels mean colours.
pub enum PngColours<'a> {
    Rgb,
    Palette(&'a [[u8; 3]]),
}

/// The file's bytes; pixels are row-major.
pub fn encode(width: u32, height: u32, colours: PngColours, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    match colours {
        PngColours::Rgb => encoder.set_color(png::ColorType::Rgb),
        PngColours::Palette(palette) => {
            encoder.set_color(png::ColorType::Indexed);
            encoder.set_palette(palette.concat());
        }
    }
    let mut writer = encoder.write_header().expect("a PNG has a positive size");
    writer.write_image_data(pixels).expect("the pixels fill the PNG");
    writer.finish().expect("writing to memory cannot fail");
    bytes
}
