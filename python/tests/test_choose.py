"""Settings that are chosen: the bits of `issfa choose`, ready to use, stopped and refused in Python's words."""

import json
import os
import signal
import threading
import time

import issfa
import numpy as np
import pytest
from conftest import assert_same_bits, simulated

KINDS = {
    "structure and noise": ({}, []),
    "a structure that is given": ({"structure": "path x path", "center": "both"}, ["--structure", "path x path", "--center", "both"]),
    "noise that is given": ({"target_r2": 0.5, "folds": 2}, ["--target-r2", 0.5, "--folds", 2]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_has_the_bits_of_the_command(kind, rows, command, tmp_path):
    parameters, options = KINDS[kind]
    np.save(tmp_path / "x.npy", rows)
    words = [tmp_path / "x.npy", "--sweeps", 30, "--seed", 3, "--hide", 0.3, "--out", tmp_path / "of_command", *options]
    of_command = json.loads(command("choose", *words, "--json"))
    choice = issfa.choose(rows, sweeps=30, random_state=3, hide=0.3, out=tmp_path / "own", **parameters)
    written = json.loads((tmp_path / "own/choose.json").read_text())
    for found in (of_command, written):
        for trial in found["trials"]:
            trial.pop("seconds")
    assert written == of_command
    assert sorted(os.listdir(tmp_path / "own")) == sorted(os.listdir(tmp_path / "of_command"))
    own = [{key: value for key, value in trial.items() if key not in ("seconds", "is_recommended")} for trial in choice.trials]
    assert own == of_command["trials"]
    assert choice.recommended is choice.trials[of_command["recommended"]] and choice.recommended["is_recommended"]
    assert choice.best is choice.trials[of_command["best"]]
    assert (choice.reason, choice.r2_of_choice, choice.is_complete) == (of_command["reason"], of_command["r2_of_choice"], True)


def test_its_settings_are_ready_to_use(rows, command, tmp_path):
    """The next command that `issfa choose` names, and the estimator of the choice: the same fit."""
    mask = np.ones(rows.shape[1:], bool)
    mask[0] = False
    choice = issfa.choose(rows, sweeps=30, random_state=3, mask=mask, noise="white", n_jobs=1)
    assert set(choice.settings) == {"random_state", "mask", "noise", "structure"} | ({"target_r2"} & set(choice.settings))
    assert choice.settings["structure"] == choice.recommended["structure"]
    assert choice.settings.get("target_r2") == choice.recommended["target_r2"]
    model = issfa.ISSFA(sweeps=20, **choice.settings).fit(rows)
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "mask.npy", mask)
    words = ["--mask", tmp_path / "mask.npy", "--noise", "white", "--seed", 3]
    said = command("choose", tmp_path / "x.npy", *words, "--sweeps", 30)
    advised = next(line for line in said.splitlines() if line.startswith("next: "))
    assert f'--structure "{choice.settings["structure"]}"' in advised
    chosen = [word for name in ("structure", "target_r2") if name in choice.settings
              for word in ("--" + name.replace("_", "-"), choice.settings[name])]
    command("fit", tmp_path / "x.npy", *words, *chosen, "--sweeps", 20, "--out", tmp_path / "run")
    assert_same_bits(model, issfa.open(tmp_path / "run"))


def test_it_prints_as_the_command_does(rows, monkeypatch):
    choice = issfa.choose(rows, sweeps=20, random_state=0, structure="path x path", noise="white")
    text = str(choice)
    assert text.startswith("24 of 120 rows were held out, in ") and "fits of 20 sweeps" in text
    assert '* structure="path x path"' in text and "best" in text and choice.reason in text
    assert text.endswith("next: issfa.ISSFA(**choice.settings).fit(X)") and "--" not in text.replace("+-", "")
    assert repr(choice).startswith(f'<Choice of {len(choice.trials)} settings: structure="path x path"')
    table = choice.table
    assert list(table.columns) == list(choice.trials[0]) and table["is_recommended"].sum() == 1
    monkeypatch.setattr("issfa._choose.find_spec", lambda name: None)
    assert choice.table is choice.trials


def test_progress_and_callback_see_every_fit(rows, capsys):
    seen = []
    choice = issfa.choose(rows, sweeps=6, random_state=0, noise="white", progress=True, callback=seen.append)
    assert [sweep.sweep for sweep in seen] == list(range(1, 7)) * len(choice.trials)
    shown = capsys.readouterr().err
    assert 'structure="path x path"' in shown and 'structure="iid x iid"' in shown and "6/6" in shown


def test_ctrl_c_raises_with_what_was_tried(rows, tmp_path):
    n_fits = 0

    def count(sweep):
        nonlocal n_fits
        n_fits += sweep.sweep == 1
        if n_fits == 2 and sweep.sweep == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as raised:
        issfa.choose(rows, sweeps=20, random_state=0, callback=count, out=tmp_path / "choice")
    choice = raised.value.choice
    assert len(choice.trials) == 1 and not choice.is_complete and "so far: it was stopped" in str(choice)
    assert not json.loads((tmp_path / "choice/choose.json").read_text())["is_complete"]


def test_ctrl_c_before_the_first_setting_was_tried(tmp_path):
    many = simulated(3000, (20, 24))
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised:
        issfa.choose(many, sweeps=10**5, random_state=0, out=tmp_path / "choice")
    assert raised.value.choice is None and time.monotonic() - start < 30
    assert not (tmp_path / "choice").exists()


def test_a_time_budget_ends_it_without_an_exception(rows):
    n_fits = 0

    def dawdle(sweep):
        nonlocal n_fits
        n_fits += sweep.sweep == 1
        if n_fits == 2:
            time.sleep(2.1)

    choice = issfa.choose(rows, sweeps=10, random_state=0, time_budget=2, callback=dawdle)
    assert len(choice.trials) == 1 and not choice.is_complete


def test_an_exception_of_a_callback_is_raised(rows):
    error = RuntimeError("enough")

    def callback(sweep):
        raise error

    with pytest.raises(RuntimeError) as raised:
        issfa.choose(rows, sweeps=20, callback=callback)
    assert raised.value is error


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"hide": 1.5}, "^hide = 1.5: give a share above 0"),
        ({"hide": "half"}, "^hide = 'half': give a share"),
        ({"holdout": 0.9}, "^holdout = 0.9: give the share of rows to hold out"),
        ({"folds": 0}, "^folds = 0: give a whole number above 0"),
        ({"folds": 9}, "^folds = 9: with holdout=0.2 there are at most 5"),
        ({"structure": "path x path", "target_r2": 0.5}, "^structure, target_r2 = both given"),
        ({"structure": "wavy"}, "'wavy' is not a structure"),
        ({"sweeps": 0}, "^sweeps = 0"),
        ({"n_jobs": 0}, "^n_jobs = 0"),
        ({"mask": np.ones(5)}, "^mask has 5 values, but X has 96 sites"),
        ({"runs": ["a", "b"]}, "^runs has 2 labels"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named(rows, parameters, words):
    with pytest.raises(issfa.UseError, match=words) as raised:
        issfa.choose(rows, **{"sweeps": 5, **parameters})
    assert "--" not in str(raised.value)


def test_what_no_estimator_has_is_named(rows):
    with pytest.raises(TypeError, match="strucure"):
        issfa.choose(rows, strucure="path x path")
    with pytest.raises(issfa.UseError, match="X: has 20 rows; at least 30 are needed"):
        issfa.choose(rows[:20], sweeps=5)
