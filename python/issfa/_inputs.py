"""Rows, masks, runs and confounds as people have them, in the form that the engine takes."""

import os
from itertools import groupby

import numpy as np

from ._errors import UseError

CELLS_AT_ONCE = 1 << 22


def is_path(x):
    return isinstance(x, (str, os.PathLike))


def are_paths(x):
    return is_path(x) or (isinstance(x, (list, tuple)) and len(x) > 0 and all(is_path(one) for one in x))


def paths_of(x):
    return [os.fspath(one) for one in ([x] if is_path(x) else x)]


def are_runs(x):
    """A list of arrays, one a run."""
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(getattr(one, "ndim", 0) >= 2 for one in x)


def given(arrays=(), paths=(), mask=None, runs=None, confounds=(), heldout=None):
    """What ``_engine`` takes for rows."""
    return dict(arrays=list(arrays), paths=list(paths), mask=mask, runs=runs, confounds=list(confounds), heldout=heldout)


def as_rows(x, name="X"):
    """An array of rows as it is where it is of float32 or float64, in whatever order; a converted copy of any other."""
    array = np.asarray(x)
    if np.iscomplexobj(array):
        raise UseError(f"{name}: Complex data not supported")
    if array.ndim < 2:
        raise UseError(f"{name} has {array.ndim} axis; give rows x sites, or rows x grid")
    if array.dtype not in (np.float32, np.float64) or not array.dtype.isnative:
        array = array.astype(np.float32 if array.dtype.kind == "f" and array.dtype.itemsize == 4 else np.float64)
    if 0 in array.shape:
        raise UseError(f"{name} has the shape {array.shape}; there is nothing in it")
    return array


def rows_given(x, name="X"):
    """Rows from an array, a list of files, or one file."""
    return given(paths=paths_of(x)) if are_paths(x) else given(arrays=[(name, as_rows(x, name))])


def as_mask(mask, n_sites):
    """One truth value a site."""
    inside = np.asarray(mask)
    if inside.size != n_sites:
        raise UseError(f"mask has {inside.size} values, but X has {n_sites} sites; give one value a site")
    if inside.dtype.kind == "f":
        inside = np.nan_to_num(inside, nan=0.0)
    return (inside != 0).ravel().tolist()


def as_runs(runs, n_rows):
    """Names and lengths from a label a row, a dictionary, or pairs."""
    if isinstance(runs, dict):
        return [(str(name), int(n)) for name, n in runs.items()]
    listed = list(runs)
    if listed and isinstance(listed[0], (tuple, list)):
        return [(str(name), int(n)) for name, n in listed]
    if len(listed) != n_rows:
        raise UseError(f"runs has {len(listed)} labels, but X has {n_rows} rows; give a label a row, or (name, rows) pairs")
    return [(str(name), len(list(rows))) for name, rows in groupby(listed)]


def _table(table):
    """Names of columns, and values row after row; values missing at the start of a column are the mean of the others."""
    values = np.asarray(table, dtype=float)
    if values.ndim == 1:
        values = values[:, None]
    names = [str(name) for name in getattr(table, "columns", range(1, values.shape[1] + 1))]
    values = values.copy()
    for column in values.T:
        missing = np.isnan(column)
        first = int(np.argmin(missing)) if not missing.all() else 0
        if first and not missing[first:].any():
            column[:first] = column[first:].mean()
    return names, values.ravel().tolist()


def as_tables(confounds):
    """One table a run, from an array, a frame, or a list of them."""
    if confounds is None:
        return []
    tables = confounds if isinstance(confounds, (list, tuple)) else [confounds]
    return [_table(table) for table in tables]


def refuse_nan(x, inside, name="X"):
    """Refuses cells that are NaN where the fit had none."""
    flat = x.reshape(len(x), -1) if x.ndim > 2 else x
    step = max(1, CELLS_AT_ONCE // flat.shape[1])
    for first in range(0, len(flat), step):
        missing = np.isnan(flat[first : first + step])
        if inside is not None:
            missing &= inside
        if missing.any():
            row, site = np.argwhere(missing)[0]
            raise UseError(
                f'{name}: row {first + row}, site {site} is NaN; fill the cell, or fit with missing="impute", which takes '
                "NaN for a cell that was not observed"
            )
