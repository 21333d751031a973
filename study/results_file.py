"""Results of a study on disk."""

import json


def rounded(value):
    """Six digits are enough for anything here."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


def save(results, parts, path):
    """A line a part, in the order of `parts`."""
    lines = [f"{json.dumps(part)}: {json.dumps(rounded(results[part]))}" for part in parts if part in results]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
