"""A whole-brain localizer run: maps of two seeds and of two halves of the series, and the auditory and visual maps."""

import nibabel
import numpy as np

from . import figures, ours
from .brain import clean, head, nilearn_maps, on_grid, pca_maps
from .measures import measure, reproducibility

NEEDS = ["localizer/bold.nii.gz"]
SWEEPS, K = 120, 20
TITLE = "Localizer"
ABOUT = """One run of 82 volumes of 53 x 53 x 27 (4 mm, {sites} sites inside the head), blocks of sounds and pictures. Mean and straight line are taken out of every site, which is then
divided by its standard deviation. Reproducibility, as for Haxby: maps of two seeds on the whole series, and maps of the first and of the last 41 volumes. PCA of scikit-learn takes a randomised solver at this size, so that its last components depend on the seed.
The data have no table of events; the maps shown are those with the largest share of their squares in a box about the visual cortex (the rear fifth of the head's extent) and about both auditory
cortices (the outer quarters from left to right, the middle of the extent from back to front and from bottom to top; the smaller of left and right, doubled). Mind that issfa finds fewer features in half of the series, and that fewer maps are easier to find again: its lead between the
halves is over fewer pairs."""
SETTINGS = """issfa: `ISSFA(sweeps={sweeps}, random_state=1 and 2)`, sites outside of the head NaN, else the defaults. nilearn: `CanICA(n_components={k}, mask=mask, random_state=0 and 1)`, else the
defaults; scikit-learn: `PCA({k}, random_state=0 and 1)`. The halves are fitted with the first seed."""
NOTE = """Looked at over the anatomy: CanICA's visual map is the occipital cortex and nothing else; issfa's and PCA's hold it too, with much of the rim of the brain beside it. In the auditory boxes CanICA has a map on both
sides that stands out, though as high as the lower sensorimotor cortex, so that it need not be the auditory cortex; issfa and PCA have no map there that one would call auditory."""
WHY = {
    "seeds": "PCA has one answer but for its last components, and CanICA takes the best of ten starts; issfa's chain, which is short here, ends in one of many nearly equally good ways to divide features that overlap",
    "share": "CanICA looks for maps that are independent and so stand out at few sites, and keeps their peaks; issfa asks for smooth maps that few volumes use. With blocks half of the volumes use a map, and nothing "
             "asks it to be confined: as for PCA, what responds together stays together",
}


def boxes(inside):
    """Sites about the visual cortex, and about the left and the right auditory cortex, by the head's extent."""
    places = np.argwhere(inside)
    low, high = places.min(0), places.max(0)
    x, y, z = ((places - low) / (high - low)).T
    middle = (y > 0.4) & (y < 0.65) & (z > 0.35) & (z < 0.65)
    return y < 0.2, middle & (x < 0.25), middle & (x > 0.75)


def shares(maps, inside):
    """Of squares of every map in the visual box, and twice the smaller of those in the auditory ones."""
    visual, left, right = boxes(inside)
    squares = maps**2 / np.maximum((maps**2).sum(1, keepdims=True), 1e-30)
    return squares[:, visual].sum(1), 2 * np.minimum(squares[:, left].sum(1), squares[:, right].sum(1))


def run(data, quick):
    image = nibabel.load(data / NEEDS[0])
    raw = np.moveaxis(image.get_fdata(), -1, 0)
    inside = head(raw.mean(0))
    corner, end = np.argwhere(inside).min(0), np.argwhere(inside).max(0) + 1
    box = tuple(slice(a, b) for a, b in zip(corner, end))
    background, inside, raw = raw.mean(0)[box], inside[box], raw[(slice(None), *box)]
    affine = image.affine @ nibabel.affines.from_matvec(np.eye(3), corner)
    whole = clean(raw[:, inside])
    halves = [clean(raw[:41][:, inside]), clean(raw[41:][:, inside])]
    sweeps = 10 if quick else SWEEPS

    def ours_on(rows, seed):
        model = ours.fit(on_grid(rows, inside), sweeps, seed, report="none")
        print(f"  issfa: {model.n_components_} features", flush=True)
        return ours.features(model)[:, inside.ravel()]

    methods = {"issfa": (ours_on, (1, 2)), "CanICA": (lambda rows, seed: nilearn_maps("CanICA", [rows], inside, affine, K, seed), (0, 1)),
               "PCA": (lambda rows, seed: pca_maps(rows, K, seed), (0, 1))}
    found = {what: {} for what in ("seeds", "seeds10", "halves", "halves10", "count", "half_count", "visual", "auditory")}
    shown = {}
    for name, (fit, seeds) in methods.items():
        one, two = (fit(whole, seed) for seed in seeds)
        first, last = (fit(rows, seeds[0]) for rows in halves)
        found["seeds"][name], found["seeds10"][name] = reproducibility(one, two)
        found["halves"][name], found["halves10"][name] = reproducibility(first, last)
        visual, auditory = shares(one, inside)
        found["visual"][name], found["auditory"][name] = visual.max(), auditory.max()
        found["half_count"][name] = (len(first), len(last))
        found["count"][name] = len(one)
        shown[name] = {"visual": (one[visual.argmax()], visual.max()), "auditory": (one[auditory.argmax()], auditory.max())}
    figures.brains("localizer", shown, background, inside)
    return {"sweeps": sweeps, "sites": int(inside.sum()), "k": K, "measures": [
        measure("two seeds, all maps", "higher", found["seeds"], 2, 0.01), measure("two seeds, ten best", "higher", found["seeds10"], 2, 0.01),
        measure("halves, all maps", "higher", found["halves"], 2, 0.01), measure("halves, ten best", "higher", found["halves10"], 2, 0.01),
        measure("visual map's share in its box", "higher", found["visual"], 2, 0.02), measure("auditory map's share in its boxes", "higher", found["auditory"], 2, 0.02),
        measure("components", None, found["count"], 0), measure("components of the halves", None, found["half_count"], 0)]}


def figure_words(_):
    return [("localizer", "Visual and auditory maps of each method over the mean image")]
