//! Formats that other programs read: what each is, and the two lines of Python that make an array of it.

use std::path::Path;

/// What to do with a file that is not read here, where that is known.
pub fn advice(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    let (format, import, call) = known(&name.to_lowercase())?;
    let file = format!("{:?}", path.display().to_string());
    let stem = name.split('.').next().unwrap_or("data");
    let lines = [import, call].map(|line| line.replace("FILE", &file).replace("STEM", stem));
    Some(format!("is {format}, which is not read; in Python, two lines make a file that is:\n  {}", lines.join("\n  ")))
}

/// The format that a name ends like, and the lines of Python.
fn known(name: &str) -> Option<(&'static str, &'static str, &'static str)> {
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[
        ".dtseries.nii",
        ".dscalar.nii",
        ".dlabel.nii",
        ".ptseries.nii",
        ".pscalar.nii",
        ".dconn.nii",
        ".pconn.nii",
    ]) {
        let call = "numpy.save(\"STEM.npy\", nibabel.load(FILE).get_fdata())";
        return Some(("CIFTI", "import nibabel, numpy", call));
    }
    if ends(&[".nc", ".nc4", ".cdf", ".grib", ".grb"]) {
        let call = "numpy.save(\"STEM.npy\", xarray.open_dataset(FILE)[\"NAME\"].transpose(\"time\", ...).values)";
        return Some(("NetCDF (or GRIB)", "import numpy, xarray", call));
    }
    if ends(&[".zarr", ".zarr.zip"]) {
        let call = "numpy.save(\"STEM.npy\", zarr.open(FILE, mode=\"r\")[\"NAME\"][:])";
        return Some(("Zarr", "import numpy, zarr", call));
    }
    if ends(&[".h5", ".hdf5", ".hdf", ".he5", ".nwb"]) {
        return Some(("HDF5", "import h5py, numpy", "numpy.save(\"STEM.npy\", h5py.File(FILE)[\"NAME\"][:])"));
    }
    if ends(&[".mat"]) {
        let call = "numpy.save(\"STEM.npy\", scipy.io.loadmat(FILE)[\"NAME\"])";
        return Some(("MATLAB's (version 7.3 is HDF5: use h5py)", "import numpy, scipy.io", call));
    }
    if ends(&[".gii"]) {
        // The arrays of such a file are the time points, each with a value a vertex.
        let call = "numpy.save(\"STEM.npy\", numpy.stack([array.data for array in nibabel.load(FILE).darrays]))";
        return Some(("GIFTI", "import nibabel, numpy", call));
    }
    if ends(&[".mgz", ".mgh"]) {
        let call = "nibabel.save(nibabel.Nifti1Image.from_image(nibabel.load(FILE)), \"STEM.nii.gz\")";
        return Some(("FreeSurfer's", "import nibabel", call));
    }
    if ends(&[".parquet", ".feather", ".xlsx", ".xls", ".pkl", ".pickle"]) {
        let call = "pandas.read_KIND(FILE).to_csv(\"STEM.csv\", index=False)  # KIND: parquet, feather, excel, pickle";
        return Some(("a table of pandas", "import pandas", call));
    }
    if ends(&[".jpg", ".jpeg", ".bmp", ".gif", ".webp"]) {
        return Some(("a picture", "from PIL import Image", "Image.open(FILE).convert(\"L\").save(\"STEM.png\")"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_name_the_file() {
        let told = |name: &str| advice(Path::new(name)).unwrap();
        assert!(told("x/sst.NC").contains("is NetCDF"), "{}", told("x/sst.NC"));
        let lines = told("x/sst.nc");
        assert!(
            lines.contains("\n  import numpy, xarray\n  numpy.save(\"sst.npy\", xarray.open_dataset(\"x/sst.nc\")")
        );
        assert!(told("a.dtseries.nii").contains("CIFTI") && told("b.h5").contains("h5py.File(\"b.h5\")"));
        assert!(told("c.zarr").contains("Zarr") && told("d.mat").contains("loadmat"));
        assert!(told("e.func.gii").contains("is GIFTI") && told("e.func.gii").contains("\"e.npy\", numpy.stack("));
        assert!(advice(Path::new("a.nii")).is_none() && advice(Path::new("a.xyz")).is_none());
    }
}
