//! What everything else computes and stores with: dense algebra, vector lanes, threads, arrays as bytes, tables as text.

pub mod bytes;
pub mod eigen;
pub mod files;
pub mod lanes;
pub mod linalg;
pub mod normals;
pub mod table;
mod tridiagonal;
pub mod workers;
