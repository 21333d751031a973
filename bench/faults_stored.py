"""Damages what runs store, by random flips of bits and by edits that mean harm, and looks at what later commands make of it.

A silent difference is a command that ends well with another result than from the sound run. Edits are given checksums that
fit (examples/reseal) in every second case: then the contents are what somebody wrote, and only panics, aborts and hangs
count.
"""

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

RESEAL = "target/release/examples/reseal"
PATIENCE = 60  # seconds before a command is said to hang
COMMANDS = {
    "summary": ["summary", "now", "--json"],
    "report": ["report", "now", "--quiet"],
    "transform": ["transform", "now", "b.npy", "--out", "out", "--quiet"],
    "merge": ["merge", "now", "run2", "--out", "out", "--quiet"],
    "evaluate": ["evaluate", "now", "--data", "a.npy", "--hide", "0.2", "--json"],
    "resume": ["resume", "now", "--sweeps", "+4", "--quiet"],
}
NUMBERS = ["0", "-1", "1", "nan", "inf", "-inf", "1e999", "1e300", "-1e300", "18446744073709551615", "9223372036854775807",
           "1000000000000000000", "4294967296", "", "x", "0.5"]


def write_npy(path, shape, values):
    """An array of doubles."""
    text = repr({"descr": "<f8", "fortran_order": False, "shape": tuple(shape)})
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + struct.pack(f"<{len(values)}d", *values))


def run(binary, words, place, patience=PATIENCE):
    """Exit code (None for a hang), standard output and error."""
    try:
        done = subprocess.run([binary, *words], cwd=place, capture_output=True, timeout=patience)
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, b"", ""


def prepare(binary, place):
    """Two runs of two files under a mask on a graph, with a checkpoint before the last."""
    values = [math.sin(at * 0.37) * math.cos(at // 30 * 1.3) + 0.2 * math.sin(at * 7.7) for at in range(360)]
    write_npy(place / "a.npy", (12, 6, 5), values)
    write_npy(place / "b.npy", (12, 6, 5), [x * x - 0.3 * x for x in values])
    write_npy(place / "mask.npy", (6, 5), [float(site != 7) for site in range(30)])
    (place / "edges.csv").write_text("".join(f"{i},{i + 1}\n" for i in range(4)))
    for seed in 1, 2:
        words = ["fit", "a.npy", "b.npy", "--mask", "mask.npy", "--structure", "path x graph(edges.csv)", "--reconstruct",
                 "--sweeps", "12", "--burn-in", "4", "--thin", "2", "--keep-draws", "3", "--seed", str(seed), "--quiet",
                 "--out", f"run{seed}"]
        code, _, told = run(binary, words, place)
        assert code == 0, told
        # Stopped while it went on: a checkpoint, and the one before it.
        run(binary, ["resume", f"run{seed}", "--sweeps", "+20", "--time-budget", "0s", "--quiet"], place)
    shutil.rmtree(place / "run1" / "figures")


def canonical(data):
    """Named arrays, however their header is laid out: an edit may write back what was there."""
    n = struct.unpack("<Q", data[:8])[0]
    return json.dumps(json.loads(data[8:8 + n]), sort_keys=True).encode() + data[8 + n:]


def digest(folder, name, out):
    """What a command has made, without times."""
    found = hashlib.sha256(out)
    if name in ("summary", "evaluate"):
        return found.hexdigest()
    for path in sorted(folder.rglob("*")):
        inside = str(path.relative_to(folder))
        # Some tell the time.
        if not path.is_file() or inside.endswith((".tmp", "config.toml", "live.json", "report.html")) or "checkpoint/" in inside:
            continue
        if name == "resume" and inside.startswith("figures/"):
            continue
        if name == "report" and not inside.startswith("figures/"):
            continue
        data = path.read_bytes()
        if path.name == "trace.csv":
            data = b"\n".join(b",".join(c for at, c in enumerate(line.split(b",")) if at != 2) for line in data.split(b"\n"))
        if path.suffix == ".safetensors":
            data = canonical(data)
        found.update(inside.encode() + data)
    return found.hexdigest()


def make(binary, place, name, patience=PATIENCE, budget=None):
    """Runs a command on `now`: exit code, digest of what it made, and what it said."""
    shutil.rmtree(place / "out", ignore_errors=True)
    words = COMMANDS[name] + (["--time-budget", budget] if budget and name == "resume" else [])
    code, out, told = run(binary, words, place, patience)
    folder = place / ("now" if name in ("resume", "report") else "out")
    return code, digest(folder, name, out) if code == 0 else None, told


def believed(sound):
    """The files that later commands read."""
    shown_only = re.compile(r"features_z|weights_|activation_|figures/|.*(live\.json|report\.html|\.nii\.gz)$")
    return [str(path.relative_to(sound)) for path in sorted(sound.rglob("*"))
            if path.is_file() and not shown_only.match(str(path.relative_to(sound)))]


def flip(path, dice):
    """Flips one bit."""
    data = bytearray(path.read_bytes())
    at = dice.randrange(8 * len(data))
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)
    return f"bit {at}"


def edit_arrays(path, dice):
    """Edits named arrays: their header, or the numbers themselves."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + n]), bytearray(data[8 + n:])
    names = [name for name in header if name != "__metadata__"]
    name = dice.choice(names)
    entry = header[name]
    kind = dice.choice(["shape", "dtype", "offsets", "drop", "rename", "note", "notes", "value", "value", "value", "swap"])
    if kind == "shape":
        axis = dice.randrange(len(entry["shape"]))
        entry["shape"][axis] = dice.choice([0, 1, entry["shape"][axis] + 1, 10**18, 2**63, entry["shape"][axis] * 2])
        if dice.random() < 0.3:
            entry["shape"] = dice.choice([[], [0, 10**18], [10**18, 0], entry["shape"] + [1], entry["shape"][::-1]])
    elif kind == "dtype":
        entry["dtype"] = dice.choice(["F32", "F64", "U32", "U64", "I8", "BOOL", "F16", "Q"])
    elif kind == "offsets":
        entry["data_offsets"] = [dice.choice([0, 8, 10**18]), dice.choice([0, 8, len(body), 2**63])]
    elif kind == "drop":
        del header[name]
    elif kind == "rename":
        header[name + "x"] = header.pop(name)
    elif kind in ("note", "notes"):
        notes = json.loads(header["__metadata__"]["notes"])
        which = dice.choice(sorted(notes))
        if kind == "note":
            notes[which] = dice.choice(["", "{}", "[]", "0", "x", notes[which][:-1], notes[which].replace("1", "9"), "9" * 400])
        else:
            del notes[which]
        header["__metadata__"]["notes"] = json.dumps(notes)
    elif kind == "swap":
        other = header[dice.choice(names)]
        entry["data_offsets"], other["data_offsets"] = other["data_offsets"], entry["data_offsets"]
    else:
        start, end = entry["data_offsets"]
        size = {"F32": 4, "F64": 8, "U32": 4, "U64": 8}[entry["dtype"]]
        code = {"F32": "f", "F64": "d", "U32": "I", "U64": "Q"}[entry["dtype"]]
        choices = [math.nan, math.inf, -math.inf, 1e38, -1.0, 0.0] if entry["dtype"][0] == "F" else [0, 1, 7, 2**32 - 1, 2**31]
        if end > start:
            places = range(start, end, size) if dice.random() < 0.3 else [dice.randrange(start, end, size)]
            value = struct.pack("<" + code, dice.choice(choices))
            for place in places:
                body[place:place + size] = value
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return f"{kind} of {name}"


def edit_npy(path, dice):
    """Edits the header of an array or its numbers."""
    data = bytearray(path.read_bytes())
    n = struct.unpack("<H", data[8:10])[0]
    text = data[10:10 + n].decode()
    kind = dice.choice(["shape", "type", "order", "value"])
    if kind == "shape":
        shape = dice.choice(["(0, 5)", "(1000000000000000000, 5)", "()", "(3,)", "(0, 1000000000000000000)", "(2, 2)"])
        text = re.sub(r"\([^)]*\)", shape, text)
    elif kind == "type":
        text = re.sub(r"'<f\d'", dice.choice(["'<f8'", "'>f4'", "'<i2'", "'|O'", "'<c8'"]), text)
    elif kind == "order":
        text = text.replace("False", "True ")
    elif len(data) > 10 + n:
        at = dice.randrange(10 + n, len(data), 4)
        data[at:at + 4] = struct.pack("<f", dice.choice([math.nan, math.inf, 1e38, 0.0, -1.0]))
    text = (text.rstrip() + " " * n)[:n - 1] + "\n"
    path.write_bytes(data[:10] + text.encode() + data[10 + n:])
    return kind


def edit_text(path, dice):
    """Edits a cell, a value or a line."""
    lines = path.read_text().split("\n")
    at = dice.randrange(max(1, len(lines) - 1))
    kind = dice.choice(["cell", "cell", "cell", "drop", "twice", "swap"])
    if kind == "cell":
        cells = list(re.finditer(r"[-+.\w]+", lines[at]))
        if cells:
            cell = dice.choice(cells)
            lines[at] = lines[at][:cell.start()] + dice.choice(NUMBERS) + lines[at][cell.end():]
    elif kind == "drop":
        del lines[at]
    elif kind == "twice":
        lines.insert(at, lines[at])
    else:
        other = dice.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    path.write_text("\n".join(lines))
    return f"{kind} in line {at + 1}"


def edit(path, dice, sound):
    """One edit of a file."""
    kind = dice.choice(["contents"] * 8 + ["delete", "cut", "cut", "longer", "empty", "other"])
    if kind == "delete":
        path.unlink()
    elif kind == "cut":
        data = path.read_bytes()
        path.write_bytes(data[:dice.randrange(len(data))])
    elif kind == "longer":
        path.write_bytes(path.read_bytes() + dice.choice([b"\0", b"1,2\n", b"x" * 4096]))
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "other":
        same = [other for other in believed(sound) if other.endswith(path.suffix)]
        shutil.copy(sound / dice.choice(same), path)
    elif path.suffix == ".safetensors":
        return edit_arrays(path, dice)
    elif path.suffix == ".npy":
        return edit_npy(path, dice)
    else:
        return edit_text(path, dice)
    return kind


def one_case(binary, reseal, sound, wanted, kind, seed, at):
    """Damages a copy of a run and runs commands on it."""
    dice = random.Random(f"{seed} {kind} {at}")
    findings = {"refused": 0, "same": 0, "believed": 0, "silent": [], "panics": [], "hangs": [], "aborts": []}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for other in sound.iterdir():
            if other.name != "run1":
                (place / other.name).symlink_to(other)
        list_of_files = believed(sound / "run1")
        victim = list_of_files[at % len(list_of_files)]
        shutil.copytree(sound / "run1", place / "now")
        change = flip(place / "now" / victim, dice) if kind == "flips" else edit(place / "now" / victim, dice, sound / "run1")
        is_sealed = kind == "edits" and at % 2 == 1
        if is_sealed:
            subprocess.run([reseal, place / "now"], capture_output=True)
        shutil.copytree(place / "now", place / "damaged")
        for command in dice.sample(sorted(COMMANDS), 3):
            shutil.rmtree(place / "now")
            shutil.copytree(place / "damaged", place / "now")
            code, made, told = make(binary, place, command, budget="1s" if is_sealed else None)
            case = {"command": command, "file": victim, "change": change, "sealed": is_sealed, "case": at, "told": told[-600:]}
            if code is None:
                findings["hangs"].append(case)
            elif code == 101 or "panicked" in told:
                findings["panics"].append(case)
            elif code < 0 or code > 100:
                findings["aborts"].append(case)
            elif code != 0:
                findings["refused"] += 1
            elif made == wanted[command]:
                findings["same"] += 1
            elif is_sealed:
                findings["believed"] += 1
            else:
                findings["silent"].append(case)
    return findings


def campaign(binary, folder, n, seed, kinds=("flips", "edits"), reseal=RESEAL, jobs=None):
    """Damages a run `n` times in each way and counts what commands make of it."""
    binary, reseal = os.path.abspath(binary), os.path.abspath(reseal)
    sound = Path(folder).absolute() / "sound"
    shutil.rmtree(sound, ignore_errors=True)
    sound.mkdir(parents=True)
    prepare(binary, sound)
    wanted = {}
    for command in COMMANDS:
        shutil.rmtree(sound / "now", ignore_errors=True)
        shutil.copytree(sound / "run1", sound / "now")
        code, wanted[command], told = make(binary, sound, command)
        assert code == 0, f"{command}: {told}"
    shutil.rmtree(sound / "now")
    shutil.rmtree(sound / "out", ignore_errors=True)
    result = {}
    for kind in kinds:
        with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
            cases = list(pool.map(lambda at: one_case(binary, reseal, sound, wanted, kind, seed, at), range(n)))
        total = {"n": n, "commands": 3 * n}
        for key in ("refused", "same", "believed"):
            total[key] = sum(case[key] for case in cases)
        for key in ("silent", "panics", "hangs", "aborts"):
            found = [one for case in cases for one in case[key]]
            total[key] = len(found)
            total[f"{key}_seen"] = found[:20]
        result[kind] = total
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=2000, help="flips, and edits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default="target/release/issfa")
    parser.add_argument("--out", default="bench/faults_stored.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = campaign(options.binary, folder, options.n, options.seed)
    Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    for kind, total in result.items():
        print(kind, {key: value for key, value in total.items() if not key.endswith("_seen")})
        for key in ("silent", "panics", "hangs", "aborts"):
            for case in total[f"{key}_seen"]:
                print(" ", key, json.dumps(case))


if __name__ == "__main__":
    main()
