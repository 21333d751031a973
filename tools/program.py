"""Calls of the built program, for measurements and studies."""

import json
import subprocess
import sys

BINARY = "target/release/issfa"


def call(*words):
    """Runs `issfa` with these words and returns what it prints."""
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"issfa {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def call_json(*words):
    """The same for commands that answer in JSON."""
    return json.loads(call(*words, "--json"))
