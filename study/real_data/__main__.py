"""issfa beside other packages on real data: writes study/real.json, docs/study-real.md and its figures.

    study/real DATA_FOLDER                    everything (about half an hour of two cores)
    study/real DATA_FOLDER --only NAME ...    some data sets; the others stay as they are in real.json
    study/real DATA_FOLDER --page             only the page, from real.json and the figures that are there
    study/real DATA_FOLDER --quick            few sweeps, to see whether it works: figures and numbers go to target/real_quick

The data are not part of the project. DATA_FOLDER has a folder for each: digits, elnino, era5_uk, neurons, haxby, localizer
(docs/study-real.md says where they come from); the simulation needs none.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import program
import results_file

from . import climate, digits, figures, haxby, localizer, neurons, page, simulation

PARTS = {"neurons": neurons, "haxby": haxby, "localizer": localizer, "era5_uk": climate.ERA5, "elnino": climate.ELNINO, "digits": digits,
         "simulation": simulation}
PACKAGES = {"digits": ["scikit-learn"], "elnino": ["xeofs"], "era5_uk": ["xeofs"], "neurons": ["scikit-learn"],
            "haxby": ["nilearn", "nibabel", "scikit-learn"], "localizer": ["nilearn", "nibabel", "scikit-learn"],
            "simulation": ["mofapy2", "scikit-learn"]}


def versions(name):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    wanted = ["numpy", "scipy", *PACKAGES[name], "matplotlib"]
    return {"issfa": f"{importlib.metadata.version('issfa')} ({commit})", "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in wanted}, "cores": os.cpu_count()}


def wrong(words):
    print(f"study/real: {words}", file=sys.stderr)
    sys.exit(2)


def check(folder, names):
    """Every file that is needed, before anything is fitted."""
    if not folder.is_dir():
        wrong(f"{folder} is not a folder; give the folder that holds the data sets")
    for name in names:
        for file in PARTS[name].NEEDS:
            if not list(folder.glob(file)):
                others = [other for other in names if other != name]
                hint = f"; leave it out with --only {' '.join(others)}" if others else ""
                wrong(f"{folder / file} is missing, which the data set {name} needs{hint}")


def main():
    parser = argparse.ArgumentParser(prog="study/real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    folder = (Path(os.environ.get("ISSFA_CALLED_FROM", ".")) / options.folder).resolve()
    program.BINARY = os.environ.get("ISSFA_PROGRAM", program.BINARY)
    path = Path("study/real.json")
    if options.quick:
        path, page.PAGE, figures.OUT = (Path("target/real_quick") / name for name in ("real.json", "study-real.md", "images/study-real"))
        path.parent.mkdir(parents=True, exist_ok=True)
    stored = lambda: json.loads(path.read_text()) if path.is_file() else {}  # noqa: E731
    if not options.page:
        check(folder, options.only)
        for name in options.only:
            print(f"{name}:", flush=True)
            part = {**PARTS[name].run(folder, options.quick), "versions": versions(name)}
            # Read again: data sets may be run side by side.
            results_file.save({**stored(), name: part}, PARTS, path)
            print(page.table_of(part), flush=True)
    results = stored()
    page.write({name: results[name] for name in PARTS if name in results}, PARTS)


if __name__ == "__main__":
    main()
