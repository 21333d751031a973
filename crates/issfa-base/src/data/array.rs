//! Arrays as results give them.

/// Numbers with a shape, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// As many as the product of the lengths.
    pub values: Vec<f32>,
}

impl Array {
    /// Values that fill a shape.
    pub fn new(shape: &[usize], values: Vec<f32>) -> Array {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "the values fill the shape");
        Array { shape: shape.to_vec(), values }
    }

    /// One entry along the first axis.
    pub fn row(&self, at: usize) -> &[f32] {
        let width = self.shape[1..].iter().product::<usize>();
        &self.values[at * width..(at + 1) * width]
    }
}
