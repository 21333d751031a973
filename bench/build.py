"""Seconds of a fresh release build of the command, for one or more revisions, one after the other on this machine.

    bench/run build                  the tree as it is committed
    bench/run build c9c1030 HEAD     an earlier revision beside it
"""

import os
import resource
import subprocess
import sys
import tempfile
import time


def build(revision):
    """Wall and processor seconds in a clone of its own; crates are downloaded before."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", ".", folder], check=True)
        subprocess.run(["git", "checkout", "--quiet", revision], cwd=folder, check=True)
        subprocess.run(["cargo", "fetch", "--quiet"], cwd=folder, check=True)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = {**os.environ, "CARGO_TARGET_DIR": f"{folder}/target"}
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=folder, check=True, env=environment)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    revisions = [
        subprocess.run(["git", "rev-parse", "--short", name], capture_output=True, text=True, check=True).stdout.strip()
        for name in sys.argv[1:] or ["HEAD"]
    ]
    print("| revision | seconds | processor seconds |\n|---|---|---|")
    first = None
    for revision in revisions:
        wall, processor = build(revision)
        first = first or (wall, processor)
        ratios = f" ({wall / first[0]:.2f}) | {processor:.0f} ({processor / first[1]:.2f})"
        print(f"| {revision} | {wall:.0f}{ratios} |", flush=True)


if __name__ == "__main__":
    main()
