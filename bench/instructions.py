"""Instruction counts of whole sweeps under callgrind, against those kept in bench/instructions.json.

    bench/run instructions            fails where a count has grown by more than 3%
    bench/run instructions --keep     keeps today's counts

Counts do not depend on what else the machine does. They depend on the instructions that it has (AVX2 here: valgrind has no
AVX-512) and on the compiler.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = Path("bench/instructions.json")
# Sizes that lay the weight on the pass, on many features, and on many rows with few sites.
CASES = {"pass": ["600", "60x60", "30", "4"], "features": ["200", "40x40", "120", "4"], "rows": ["4000", "16x16", "30", "4"]}


def count(arguments):
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
                   # Sweeps alone: not how the data were simulated.
                   "--toggle-collect=*one_sweep*", "target/release/examples/time_sweep", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={"RAYON_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def main():
    if not shutil.which("valgrind"):
        sys.exit("valgrind is missing; on Debian and Ubuntu: apt-get install valgrind")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    found = {name: count(arguments) for name, arguments in CASES.items()}
    grown = []
    print("| case | millions of instructions | kept | ratio |\n|---|---|---|---|")
    for name, instructions in found.items():
        before = kept.get(name, instructions)
        print(f"| {name}: {' '.join(CASES[name])} | {instructions / 1e6:.1f} | {before / 1e6:.1f} | {instructions / before:.3f} |")
        grown += [name] if instructions > 1.03 * before else []
    if "--keep" in sys.argv or not kept:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
    elif grown:
        sys.exit(f"more instructions than before: {', '.join(grown)}")


if __name__ == "__main__":
    main()
