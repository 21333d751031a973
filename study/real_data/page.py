"""Writes docs/study-real.md from real.json: no figure on that page is typed by hand."""

import textwrap
from pathlib import Path

import numpy as np

PAGE = Path("docs/study-real.md")
CREDITS = {
    "neurons": "Footprints and traces of 70 cells: CaImAn's test data (Flatiron Institute), GPL-2.0, scaled to unit norm.",
    "haxby": "Haxby et al. 2001; PyMVPA's data, CC BY-SA 3.0 (OpenNeuro ds000105, CC0).",
    "localizer": "OpenfMRI ds000205, PDDL.",
    "era5_uk": "Copernicus Climate Change Service, ERA5, CC BY.",
    "elnino": "Sea surface temperature, public domain, by way of statsmodels.",
    "digits": "UCI, by way of scikit-learn.",
    "simulation": "Simulated by `issfa simulate`; no data set.",
}
RULES = """## What is the same for everybody

- Every method gets the same rows, the same hidden cells and the same measures. Peers have the settings that their makers recommend; where a
  method wants to be told the number of components it is told the true one if there is one, else one chosen by cross-validation on training
  rows, or the number that issfa found. issfa is told nothing: it has its defaults (noise measured on differences of rows), and a number of
  sweeps that was fixed before. No setting of issfa was chosen on test rows.
- **Hidden cells.** Of every test row each cell is hidden with probability 0.2, by a generator with a fixed seed. issfa predicts them as
  `issfa transform` (features) and the mean of the noise given that at the visible cells, which is what `issfa evaluate --hide` does. Of
  a peer with components S and training mean m, a row is `m + w S + noise`, the noise alike at all sites with variance s: what the least-squares fits of training rows leave, by degrees of
  freedom. In an orthonormal basis of the span of S the weights are normal with covariance C - s I, where C is that of the training rows' weights (eigenvalues below 0 become 0), and hidden cells
  are predicted by their mean given the visible ones: ridge regression on the visible cells. With principal components this is probabilistic PCA, and methods that span the
  same space predict alike. R2 is one minus the squared error over the squares of the hidden cells about the training means.
- **Cross-validation.** Training rows are cut into three stretches, each left out once; up to 100 rows of it have a fifth of their cells
  hidden. The number with the least error is taken.
- **Coverage** is the share of hidden cells in their central 90% interval. Of issfa: one more fit with the visible cells of test rows among
  the data (`missing="impute"`), 40 kept draws, each with 25 draws of the noise at hidden cells given that at visible ones. Of peers:
  the normal interval of the model above.
- Reasons why a peer is better are what figures and further rows of the tables suggest; only those that a row of its own shows
  were tested.
- Where a table has two numbers with a stroke, they are those of issfa's two seeds (or of the two halves, windows and so on that the text
  names).
"""
NOT_DONE = """## What was not compared

localmd 0.0.4 and suite2p 1.1.0 (its SVD of the binned movie) need PyTorch, which from the Python package index comes with several gigabytes of CUDA
libraries; PyTorch's own index of processor-only builds could not be reached from where this was run. So movies are compared with scikit-learn only.
"""


def wrapped(text):
    """Paragraphs and items of a list at 126 columns."""
    def fill(block):
        lines, items = block.splitlines(), []
        if not lines or lines[0].startswith(("|", "#", "!")):
            return block
        for line in lines:
            if items and not line.startswith("- "):
                items[-1] += " " + line.strip()
            else:
                items.append(line)
        indent = lambda item: "  " if item.startswith("- ") else ""  # noqa: E731
        return "\n".join(textwrap.fill(item, 126, subsequent_indent=indent(item), break_long_words=False, break_on_hyphens=False) for item in items)

    return "\n\n".join(fill(block.strip("\n")) for block in text.split("\n\n")) + "\n"


def shown(values, digits):
    """The mean, or both of two; nothing for a value that is not there."""
    if values is None:
        return ""
    if len(values) == 2:
        return " / ".join(f"{value:.{digits}f}" for value in values)
    return f"{np.mean(values):.{digits}f}"


def table_of(part):
    """A row a method and a column a measure, or the other way round where there are many measures."""
    measures = part["measures"]
    methods = list(dict.fromkeys(method for measure in measures for method in measure["values"]))
    cells = [["method", *[measure["name"] for measure in measures]]]
    cells += [[method, *[shown(measure["values"].get(method), measure["digits"]) for measure in measures]] for method in methods]
    if len(measures) > 10:
        cells = [list(row) for row in zip(*cells)]
        cells[0][0] = "measure"
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]]) + "\n"


def far(measure, method):
    """How far from good, so that less is better."""
    value = float(np.mean(measure["values"][method]))
    if measure["better"] == "higher":
        return -value
    return value if measure["better"] == "lower" else abs(value - measure["better"])


def verdict(measure, bars):
    """issfa beside the best peer: ("lead" or "tie" or "loss", the peer); `bars` are rows that are no method."""
    if measure["better"] is None or "issfa" not in measure["values"]:
        return None
    peers = [method for method in measure["values"] if not method.startswith("issfa") and method not in bars]
    if not peers:
        return None
    best = min(peers, key=lambda method: far(measure, method))
    ahead = far(measure, best) - far(measure, "issfa")
    return ("tie" if abs(ahead) <= measure["tie"] else "lead" if ahead > 0 else "loss"), best


def sentence(measure, best):
    value = lambda method: f"{np.mean(measure['values'][method]):.{measure['digits']}f}"  # noqa: E731
    return f"{measure['name']}: {value('issfa')} against {value(best)} ({best})"


def verdicts(name, part):
    bars = part.get("bars", [])
    found = {"lead": [], "tie": [], "loss": []}
    for measure in part["measures"]:
        answer = verdict(measure, bars)
        if answer:
            found[answer[0]].append((measure, answer[1]))
    return found


def opening(results, parts):
    losses, leads, n = [], [], {"lead": 0, "tie": 0, "loss": 0}
    for name, part in results.items():
        found = verdicts(name, part)
        for kind in n:
            n[kind] += len(found[kind])
        if found["loss"]:
            losses.append(f"**{parts[name].TITLE}**: " + "; ".join(sentence(*one) for one in found["loss"]))
        if found["lead"]:
            leads.append(f"**{parts[name].TITLE}**: " + "; ".join(sentence(*one) for one in found["lead"]))
    lost = f"Of {sum(n.values())} comparisons with the best peer issfa loses {n['loss']}, is level in {n['tie']} and leads in {n['lead']}."
    text = f"{lost} It loses here (issfa's figure against the best peer's). " + ". ".join(losses) + "."
    return text + "\n\nIt leads here. " + ". ".join(leads) + ".\n"


def summary(results, parts):
    lines = ["| data | measure | issfa | best peer | its name | |", "|---|---|---|---|---|---|"]
    for name, part in results.items():
        for kind, found in verdicts(name, part).items():
            for measure, best in found:
                values = [f"{np.mean(measure['values'][method]):.{measure['digits']}f}" for method in ("issfa", best)]
                lines.append(f"| {parts[name].TITLE} | {measure['name']} | {values[0]} | {values[1]} | {best} | {kind} |")
    return "\n".join(lines) + "\n"


def reason(module, measure):
    """Why a peer is better, as the module says for measures with such a name."""
    return next((f"; {why}" for part, why in module.WHY.items() if part in measure["name"]), "")


def section(name, part, module):
    found = verdicts(name, part)
    versions = part["versions"]
    made = ", ".join(f"{package} {version}" for package, version in versions.items() if package != "cores")
    text = [f"## {module.TITLE}\n", module.ABOUT.format(**part) + "\n", table_of(part)]
    for kind, word in (("loss", "A peer is better"), ("tie", "Level"), ("lead", "issfa leads")):
        for measure, best in found[kind]:
            why = reason(module, measure) if kind == "loss" else ""
            text.append(f"- {word}, {sentence(measure, best)}{why}.")
    text += ["", *[f"![{words}](images/study-real/{file}.png)\n" for file, words in module.figure_words(part)]]
    if getattr(module, "NOTE", ""):
        text.append(module.NOTE + "\n")
    text += [f"Settings. {module.SETTINGS.format(**part)}\n", f"Data: {CREDITS[name]}\n", f"*Made with {made}; {versions['cores']} cores.*\n"]
    return "\n".join(text)


def write(results, parts):
    missing = [name for name in parts if name not in results]
    text = ["# issfa beside other packages on real data\n", opening(results, parts),
            "`study/real DATA_FOLDER` makes this page, its figures and `study/real.json`. The data are not part of the project; credits stand with each.\n"]
    if missing:
        text.append(f"Not run yet: {', '.join(missing)}.\n")
    text += [summary(results, parts), RULES]
    text += [section(name, part, parts[name]) for name, part in results.items()]
    text.append(NOT_DONE)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(wrapped("\n".join(text)))
    print(f"written: {PAGE}")
