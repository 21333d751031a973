"""What happens to output folders when things go wrong; prints a table and writes bench/faults.json.

    bench/run faults [--quick] [--only NAME...] [--seed N]

concurrent  two commands at once on one folder (fits, resumes, --overwrite, report, merge, transform, simulate): each ends with 0
            or is refused with 2, and what is in the folder is what one of them makes alone, bit by bit
kills       a fit, new or over an old run, is killed with SIGKILL at a random moment, and so is now and then what goes on with
            it; gone on with, it has the bits of one that was left alone (over an old run: or the old run is whole)
disks       the same with disks of many sizes that fill up, and are made larger afterwards (without the right to mount one: with
            a limit to the size of files)

flips       one bit of a stored file is flipped: later commands refuse it, or give what they give without
edits       a stored file is edited with intent: no panic, hang or abort (both by bench/faults_stored.py, where it is there)

--quick takes a tenth of the tries, to see whether the script works; its figures go to target/faults_quick.json.
"""

import argparse
import hashlib
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import program

try:
    import faults_stored
except ModuleNotFoundError:
    faults_stored = None

FIT = ["--grid", "40x20", "--noise", "white", "--burn-in", "20", "--thin", "3", "--keep-draws", "4", "--reconstruct", "--quiet"]
SWEEPS = ["--sweeps", "150", "--checkpoint-every", "0.03s"]
# No command of these takes so long, but for one that hangs.
PATIENCE = 120


@dataclass
class Study:
    """Where a campaign works, with what it may compare."""

    folder: Path
    quick: bool
    seed: int

    def __post_init__(self):
        self.random = random.Random(self.seed)

    def tries(self, number):
        return max(number // 10, 2) if self.quick else number

    def start(self, *words, **more):
        return subprocess.Popen([Path(program.BINARY).absolute(), *map(str, words)], cwd=self.folder, text=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)

    def run(self, *words, **more):
        """Exit code and standard error; a hang is an exit code of its own."""
        return self.end(self.start(*words, **more))

    def end(self, process):
        try:
            _, error = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "hangs", ""
        return process.returncode, error

    def ok(self, *words):
        code, error = self.run(*words)
        assert code == 0, (words, code, error)

    def fit(self, out, *more, seed=9):
        return ["fit", "sim/observations.npy", *FIT, *SWEEPS, "--seed", seed, "--out", out, *more]

    def digest(self, name):
        """What a folder is known by: all of it but pictures, settings and what tells the time."""
        found = {}
        for path in sorted((self.folder / name).rglob("*")):
            inside = path.relative_to(self.folder / name).as_posix()
            if path.suffix not in (".npy", ".tsv", ".csv", ".safetensors") or not path.is_file():
                continue
            contents = path.read_bytes()
            if path.name == "trace.csv":
                rows = [line.split(b",") for line in contents.split(b"\n")]
                contents = b"\n".join(b",".join(row[:2] + row[3:]) for row in rows)
            if path.parent.name == "checkpoint":
                if path.name != "state.safetensors":
                    continue
                contents = contents[8 + int.from_bytes(contents[:8], "little"):]
            found[inside] = hashlib.sha256(contents).hexdigest()
        return hashlib.sha256(json.dumps(found).encode()).hexdigest() if found else None

    def copy(self, name, to):
        self.remove(to)
        shutil.copytree(self.folder / name, self.folder / to)

    def remove(self, name):
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def litter(self, name):
        """What should not be left in a folder that nobody holds."""
        return [path.name for path in (self.folder / name).rglob("*") if path.name.startswith((".issfa", "lock")) or ".tmp" in path.name]


def prepare(study):
    study.ok("simulate", "--seed", 5, "--rows", 90, "--heldout-rows", 20, "--grid", "40x20", "--features", 5, "--density", 0.2,
             "--out", "sim", "--quiet")
    for seed, name in [(9, "whole"), (8, "other")]:
        study.ok(*study.fit(name, seed=seed))
    study.ok(*[{"150": "40"}.get(word, word) for word in study.fit("part")])
    study.ok("merge", "whole", "other", "--out", "merged", "--quiet")
    study.ok("transform", "whole", "sim/heldout.npy", "--out", "transformed", "--quiet")


def concurrent(study):
    resume = ["resume", "here", "--sweeps", "150", "--quiet"]
    merge = ["merge", "whole", "other", "--out", "here", "--quiet"]
    transform = ["transform", "whole", "sim/heldout.npy", "--out", "here", "--quiet"]
    simulate = ["simulate", "--seed", 5, "--rows", 90, "--heldout-rows", 20, "--grid", "40x20", "--features", 5, "--density", 0.2,
                "--out", "here", "--quiet"]
    # What is there before, the two commands, and what each of them makes of it, where it is not refused.
    pairs = {
        "resume, resume": ("part", resume, resume, ["whole", "whole"]),
        "fit, fit": (None, study.fit("here"), study.fit("here"), ["whole", "whole"]),
        "fit, other fit": (None, study.fit("here"), study.fit("here", seed=8), ["whole", "other"]),
        "fit, resume": (None, study.fit("here"), resume, ["whole", "whole"]),
        "resume, fit --overwrite": ("part", resume, study.fit("here", "--overwrite", seed=8), ["whole", "other"]),
        "fit --overwrite, fit --overwrite": ("part", study.fit("here", "--overwrite"), study.fit("here", "--overwrite", seed=8),
                                             ["whole", "other"]),
        "resume, report": ("part", resume, ["report", "here", "--quiet"], ["whole", None]),
        "merge, merge": (None, merge, merge, ["merged", "merged"]),
        "transform, transform --overwrite": ("transformed", transform + ["--overwrite"], transform + ["--overwrite"],
                                             ["transformed", "transformed"]),
        "simulate, simulate": (None, simulate, simulate, ["sim", "sim"]),
    }
    outcomes, bad = {}, []
    for number in range(study.tries(50)):
        name = list(pairs)[number % len(pairs)]
        before, first, second, makes = pairs[name]
        study.remove("here")
        if before:
            study.copy(before, "here")
        one = study.start(*first)
        time.sleep(study.random.choice([0, 0, 0.02, 0.1, 0.3]))
        other = study.start(*second)
        ends = [study.end(one), study.end(other)]
        codes = [code for code, _ in ends]
        outcome = "both ran, one after the other" if codes == [0, 0] else "one was refused"
        sound = sorted(map(str, codes)) in (["0", "0"], ["0", "2"])
        allowed = [made for code, made in zip(codes, makes) if code == 0 and made] or [before]
        if not sound or study.digest("here") not in [study.digest(end) for end in allowed] or study.litter("here"):
            bad.append({"commands": name, "codes": codes, "errors": [error for _, error in ends], "litter": study.litter("here")})
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return {"tries": study.tries(50), **outcomes, "bad": bad}


def go_on(study, run, seed=9):
    """Brings a run to its end, whatever state it is in; returns what went wrong."""
    code, error = study.run("resume", run, "--quiet")
    if code == 2 and "is not a run folder" in error:
        code, error = study.run(*study.fit(run, seed=seed))
    return [] if code == 0 else [f"exit code {code}: {error}"]


def kills(study):
    start = time.time()
    study.ok(*study.fit("timed"))
    duration = time.time() - start
    study.remove("timed")
    counts, bad = {"killed": 0, "over an old run": 0, "old run kept": 0}, []
    for number in range(study.tries(100)):
        over = number % 3 == 2
        study.remove("here")
        if over:
            study.copy("other", "here")
        process = study.start(*study.fit("here", *(["--overwrite"] if over else [])))
        time.sleep(study.random.uniform(0, 1.1 * duration))
        process.kill()
        counts["killed"] += study.end(process)[0] == -signal.SIGKILL
        while study.random.random() < 0.3:
            process = study.start("resume", "here", "--quiet")
            time.sleep(study.random.uniform(0, 0.7 * duration))
            process.kill()
            counts["killed"] += study.end(process)[0] == -signal.SIGKILL
        wrong = go_on(study, "here")
        allowed = [study.digest("whole")] + ([study.digest("other")] if over else [])
        counts["over an old run"] += over
        counts["old run kept"] += over and study.digest("here") == allowed[1]
        wrong += [] if study.digest("here") in allowed else ["other bits"]
        wrong += [f"left behind: {study.litter('here')}"] if study.litter("here") else []
        bad += [{"try": number, "wrong": wrong}] if wrong else []
    return {"tries": study.tries(100), **counts, "bad": bad}


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def disks(study):
    disk = study.folder / "disk"
    disk.mkdir()
    may_mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode == 0
    if may_mount:
        subprocess.run(["umount", disk], check=True)
    full = size(study.folder / "whole") // 1024
    counts, bad = {"filled up": 0, "how": "a small file system" if may_mount else "a limit to the size of files"}, []
    n = study.tries(20)
    for number in range(n):
        # Pages of 4 kB, and two copies of a checkpoint for a moment.
        limit = 16 + int(1.3 * full * (number + 0.5) / n)
        study.remove("disk/here")
        more = {}
        if may_mount:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={limit}k", "tmpfs", disk], check=True)
        else:
            largest = 1 + number * max(path.stat().st_size for path in (study.folder / "whole").rglob("*.*")) // n
            more = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest)), "restore_signals": False}
        try:
            code, error = study.run(*study.fit("disk/here"), **more)
            counts["filled up"] += code == 1
            wrong = [] if code == 0 or code == 1 and "cannot write" in error else [f"exit code {code}: {error}"]
            if may_mount:
                subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            wrong += go_on(study, "disk/here")
            wrong += [] if study.digest("disk/here") == study.digest("whole") else ["other bits"]
            wrong += [f"left behind: {study.litter('disk/here')}"] if study.litter("disk/here") else []
        finally:
            if may_mount:
                subprocess.run(["umount", disk], check=True)
        bad += [{"kilobytes": limit, "wrong": wrong}] if wrong else []
    return {"tries": n, **counts, "bad": bad}


def of_stored_files(kind):
    def damage(study):
        n = study.tries(2000)
        found = faults_stored.campaign(program.BINARY, study.folder / "stored", n, study.seed, kinds=(kind,))[kind]
        bad = [case for name, cases in found.items() if name.endswith("_seen") for case in cases]
        return {"tries": n, **{name: count for name, count in found.items() if name != "n" and not name.endswith("_seen")}, "bad": bad}

    return damage


CAMPAIGNS = {"concurrent": concurrent, "kills": kills, "disks": disks}
if faults_stored:
    CAMPAIGNS |= {kind: of_stored_files(kind) for kind in ("flips", "edits")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=CAMPAIGNS, default=list(CAMPAIGNS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kept = Path("target/faults_quick.json" if options.quick else "bench/faults.json")
    found = json.loads(kept.read_text()) if kept.exists() else {}
    print("| campaign | tries | of which | gone wrong |\n|---|---|---|---|", flush=True)
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            study = Study(Path(folder), options.quick, options.seed)
            prepare(study)
            found[name] = CAMPAIGNS[name](study)
        others = ", ".join(f"{what} {count}" for what, count in found[name].items() if what not in ("tries", "bad"))
        print(f"| {name} | {found[name]['tries']} | {others} | {len(found[name]['bad'])} |", flush=True)
        kept.write_text(json.dumps(found, indent=1) + "\n")
    wrong = {name: found[name]["bad"] for name in options.only if found[name]["bad"]}
    if wrong:
        sys.exit(json.dumps(wrong, indent=1))


if __name__ == "__main__":
    main()
