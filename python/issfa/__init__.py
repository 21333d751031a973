"""Infinite structured sparse factor analysis.

``ISSFA`` is a scikit-learn estimator; ``open`` gives one from any run folder, and ``choose`` says with which settings to make
one. ``issfa.xarray.ISSFA`` takes labelled data and ``issfa.images.ISSFA`` brain images (both are imported when asked for).
"""

import importlib

from ._choose import Choice, choose
from ._engine import Sweep, __version__
from ._errors import Error, UseError
from ._estimator import ISSFA, open

__all__ = ["ISSFA", "Choice", "Error", "Sweep", "UseError", "__version__", "choose", "open"]


def __getattr__(name):
    # On demand: they need packages that not everyone has.
    if name in ("xarray", "images"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
