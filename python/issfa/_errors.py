"""What goes wrong, and packages that may be missing."""

import importlib


class Error(Exception):
    """What the engine could not do. The text names parameters and what helps."""


class UseError(Error, ValueError):
    """Wrong use: a parameter, or data, that the engine cannot take."""


def need(package, extra, what):
    """Imports an optional package, or says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{what} needs {package}: pip install 'issfa[{extra}]', or pip install {package}") from error
