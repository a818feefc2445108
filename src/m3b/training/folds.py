"""Several networks instead of one: one for each fold of the patients, and perhaps one more that learns from every case.

With `folds` above 1 each network is trained without one part of the patients and answers that part: none is answered by a network
that has seen it, and all are delivered together. There are as many parts as folds, so that every case counts in validation, or more
(`parts`), so that each network learns from more of the cases. With `refit` the networks of the
folds are only asked: views, thresholds, calibration and figures come from them, and what is delivered is one network more,
trained on all cases for as many steps. It has no validation figure of its own; that of the folds stands for it.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Plan = dict[str, Any]
LOGOUT = Path("Logout")
WEIGHTS = "best.safetensors"
ALL = "all"
"""Name of the network that is trained on every case."""
MOST = 5
"""Networks that are delivered together: each takes its time of every prediction."""
FEWEST = 3
"""Two networks say little more than one, and each learns from half of the cases."""
SMALL = 500
"""Cases from which on a validation part that is held out costs little."""
HELD = 80
"""Patients, about, that all folds together hold out, if there are so many: the standard error of a Dice that differs by 0.03 from case
to case is then 0.003. With more of them, each network rather learns from more of the cases."""
HELD_OF_CLASS = 20
"""Of these so many that have the rarest class: what is chosen for it is cross-fitted on halves of ten."""
MANY_EPOCHS = 100
"""Epochs that each network of a fold gets of so many cases; with fewer, one network is trained for longer."""


def names(plan: Mapping[str, Any]) -> list[str]:
    """Folders of Logout in the order of training: one a fold, then the one on every case."""
    return [f"fold{fold}" for fold in range(count(plan))] + ([ALL] if plan.get("refit") else [])


def count(plan: Mapping[str, Any]) -> int:
    """Networks that are asked about validation cases."""
    return max(1, int(plan.get("folds") or 1))


def parts(plan: Mapping[str, Any]) -> int:
    """Groups into which the patients are divided; each fold holds out another one."""
    return max(count(plan), int(plan.get("parts") or 1))


def part_of(plan: Mapping[str, Any], fold: int) -> int:
    """The part that a fold holds out. Where some are never held out, any may be: the first ones have the largest patients."""
    if parts(plan) == count(plan):
        return fold
    return int(np.random.default_rng(int(plan.get("seed") or 0)).permutation(parts(plan))[fold])


def choose_parts(plan: Plan, patients: int, kept: set[str], rarest: float = 1.0) -> None:
    """Puts `parts` into a plan whose folds were not set by hand: as many as leave about `HELD` patients to be held out.

    Args:
        rarest: share of the cases that have the rarest class.
    """
    if "parts" in kept:
        return
    enough = max(HELD, HELD_OF_CLASS / max(rarest, 1e-6))
    chosen = count(plan) > 1 and "folds" not in kept and not plan.get("refit")
    plan["parts"] = max(count(plan), int(count(plan) * patients // enough)) if chosen else 1


def trainings(plan: Mapping[str, Any]) -> int:
    """Networks that share the minutes."""
    return count(plan) + bool(plan.get("refit"))


def at_once(plan: Mapping[str, Any]) -> int:
    """Networks of folds that are trained at the same time, one a GPU (`processes`)."""
    return max(1, min(int(plan.get("processes") or 1), count(plan)))


def rounds(plan: Mapping[str, Any], several: int | None = None) -> int:
    """Trainings one after the other, among which the minutes are divided; `several` folds (None: as planned) count as one."""
    return -(-count(plan) // (several or at_once(plan))) + bool(plan.get("refit"))


def delivered(plan: Mapping[str, Any]) -> list[Path]:
    """Weight files that a deliverable takes: that of the refit, or one a fold."""
    kept = [ALL] if plan.get("refit") else names(plan)
    return [LOGOUT / name / WEIGHTS for name in kept]


def copy_weights(files: Sequence[Path], out: Path) -> list[str]:
    """The weight files under the names that config.json of a deliverable lists, copied into it."""
    many = len(files) > 1
    named = [
        f"model-{k}-of-{len(files)}.safetensors" if many else "model.safetensors" for k in range(1, len(files) + 1)
    ]
    for old in out.glob("model*.safetensors"):  # of an earlier export with more networks
        old.unlink()
    for file, name in zip(files, named, strict=True):
        shutil.copy(file, out / name)
    return named


def readme_note(plan: Mapping[str, Any]) -> str:
    """Words about the delivered networks, for the deliverable's README; empty of a single one with its own validation."""
    folds = count(plan)
    asked = f"{folds} networks, each on the patients that it was trained without" if folds > 1 else "a network like it"
    if plan.get("refit"):
        return (
            f"The delivered network was trained on every training case, so it has no validation figure of its own: the figures, "
            f"and what was chosen by them, are those of {asked}, trained for as many steps on fewer cases.\n"
        )
    if not plan.get("cross_validation", True):
        asked = "all together, on cases that none was trained on"
    return f"{folds} networks answer together. The figures are those of {asked}.\n" if folds > 1 else ""


def most_folds(cases: int, patients: int, rarest: int = MOST, epochs: float = 0.0) -> tuple[int, str]:
    """How many folds the cases are good for, and why: 1 where the part that is held out costs little, or is too small to share.

    Args:
        rarest: cases of the rarest class, where there are classes.
        epochs: that one network on all cases would get. After a few hundred it learns nothing more, and the average of
            several networks is worth more.
    """
    most = min(MOST, patients // 4, rarest)
    if cases >= SMALL and min(most, epochs // MANY_EPOCHS) < FEWEST:
        return 1, f"{cases} cases: what one network holds out costs little"
    if cases >= SMALL:
        return int(min(most, epochs // MANY_EPOCHS)), f"{cases} cases, epochs enough for several networks"
    if most < FEWEST:
        rare = "" if rarest >= FEWEST else f", {rarest} cases of the rarest class"
        return 1, f"{patients} patients{rare}: too few for folds"
    return most, f"{cases} cases"


def choose_members(
    plan: Plan, steps: float, enough: int, most: tuple[int, str], kept: set[str], gpus: int = 1
) -> list[str]:
    """Puts `folds`, `refit` and the reason, `why_folds`, into the plan. Several networks of few cases are worth the minutes as
    soon as each gets `enough` steps. Gives what was saved where the minutes are too few for as many as there could be.

    Args:
        steps: that fit into the minutes, of all networks that are trained one after the other.
        most: what `most_folds` gives.
        kept: what was set by hand and stays.
        gpus: so many folds are trained at the same time.
    """
    afford = int(steps // enough) * gpus
    where = f" on each of {gpus} GPUs" if gpus > 1 else ""
    if most[0] > 1 and afford < FEWEST:
        need = -(-FEWEST // gpus)
        times = f"{need} times {enough}" if need > 1 else f"{enough}"
        folds, why = 1, f"about {round(steps)} steps{where} in these minutes: folds need {times}"
    elif most[0] > 1:
        folds = min(most[0], afford)
        why = f"{most[1]}, and steps enough{where} in these minutes for {folds} networks"
    else:
        folds, why = most
    plan["folds"] = plan["folds"] if "folds" in kept else folds
    plan["refit"] = plan["refit"] if "refit" in kept else False
    plan["why_folds"] = "asked for with --set" if kept & {"folds", "refit"} else why
    return [f"{folds} network{'s' if folds > 1 else ''} instead of {most[0]}"] if plan["folds"] < most[0] else []


def choose_of_cases(
    plan: Plan, facts: Mapping[str, Any], steps: Callable[[], float], enough: int, kept: set[str], gpus: int = 1
) -> None:
    """`choose_members` of the cases and patients of `facts`; `steps` measures how many of `batch` cases the minutes hold."""
    cases, patients = int(facts["cases"]), int(facts["patients"])
    several = most_folds(cases, patients, epochs=math.inf)[0] > 1
    held = steps() if several else 0.0  # seconds of measuring that few patients need not wait for
    most = most_folds(cases, patients, epochs=held * int(plan["batch"]) / cases)
    choose_members(plan, held, enough, most, kept, gpus)


def check_members(plan: Mapping[str, Any], patients: int) -> None:
    """Ends the program where there are more folds, or parts, than patients."""
    needed = parts(plan) if count(plan) > 1 else 1
    if needed > max(1, patients):
        name = "folds" if needed == count(plan) else "parts"
        raise SystemExit(
            f"{name} {needed} in plan.json: the training cases are of {patients} patients, one a {name[:-1]} at most"
        )


def told_members(plan: Mapping[str, Any]) -> str:
    """What is trained, in a line."""
    share = float(plan.get("validation_share") or 0)
    if count(plan) == 1:
        what = f"one network, {share:.0%} held out"
    elif not plan.get("cross_validation", True):
        what = f"{plan['folds']} networks, {share:.0%} held out from all"
    elif parts(plan) == count(plan):
        what = f"{plan['folds']} networks, one a fold of the patients"
    else:
        what = f"{plan['folds']} networks, each with another 1/{parts(plan)} of the patients held out"
    what += ", then one on every case, which is delivered" if plan.get("refit") else ""
    return f"{what} ({plan['why_folds']})" if plan.get("why_folds") else what


def each(plan: Mapping[str, Any], one: str = "the training") -> str:
    """The subject of a sentence about the time of one network."""
    return f"each of {trainings(plan)} trainings" if trainings(plan) > 1 else one


class TimeShares:
    """How many seconds each network in turn is trained for: an equal part of what is left; earlier starts count. All together have
    `seconds`; `several` folds are trained at the same time here."""

    def __init__(self, plan: Mapping[str, Any], seconds: float, several: int = 1) -> None:
        several, folds = min(several, count(plan)), count(plan)
        self.names, self.seconds, self.start = names(plan), seconds, time.monotonic()
        self.rounds, share = rounds(plan, several), -(-folds // several) / folds
        spent = [seconds_spent(LOGOUT / name) for name in self.names]
        self.spent = [share * value for value in spent[:folds]] + spent[
            folds:
        ]  # the same seconds are those of several folds

    def of(self, name: str) -> float:
        """Of the network of this name, from its first start on."""
        place = self.names.index(name)
        left = self.seconds - (time.monotonic() - self.start) - sum(self.spent)
        return (left + sum(self.spent[place:])) / (len(self.names) - place)

    def per_fold(self) -> float:
        """Of each fold, from its first start on, where folds are trained side by side."""
        return self.seconds / self.rounds


def done_of(name: str) -> dict[str, Any]:
    """done.json of a finished network; empty of one that is not."""
    file = LOGOUT / name / "done.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint below a folder that was written to its end."""
    checkpoints = [file.parent for file in folder.glob("checkpoint-*/complete.json")]
    return max(checkpoints, key=lambda checkpoint: int(checkpoint.name.split("-")[1]), default=None)


def seconds_spent(folder: Path) -> float:
    """Return the seconds that the model of this folder has been trained for so far, finished or not."""
    done = folder / "done.json"
    if done.exists():
        return float(json.loads(done.read_text())["seconds"])
    checkpoint = find_checkpoint(folder)
    return float(json.loads((checkpoint / "complete.json").read_text())["spent"]) if checkpoint else 0.0


def refit_steps(plan: Mapping[str, Any]) -> int:
    """Steps of the network on every case: the mean of those of the folds."""
    return max(1, round(float(np.mean([done_of(f"fold{fold}")["steps"] for fold in range(count(plan))]))))


def note_members(plan: Mapping[str, Any]) -> None:
    """Logout/members.json, for whoever measures a refit on held-out cases: the weights that answer each fold."""
    files = [(LOGOUT / name / WEIGHTS).as_posix() for name in names(plan) if name != ALL]
    (LOGOUT / "members.json").write_text(json.dumps({"weights": files, "refit": bool(plan.get("refit"))}))
