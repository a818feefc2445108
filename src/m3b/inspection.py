"""What a run checks with its own eyes: the raw data, the index as it is locked, the deliverable as it predicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from m3b.agents.artifacts import Selection
from m3b.agents.checks.index import AUDIT, check_index
from m3b.agents.checks.integrity import fingerprint, lock_index, save_hashes, sha256
from m3b.agents.checks.model import Predict, Trial, check_model, take
from m3b.agents.loop import Emit
from m3b.agents.verdict import Verdict
from m3b.data.cards import Card
from m3b.data.index import read_index
from m3b.delivery import PREDICTIONS, acceptable_range, keep_trial
from m3b.runs import Run, replace_text


class Inspector:
    """The checks that need more than the working directory.

    Args:
        predict: runs a deliverable on cases, confined.
        emit: takes events.
        confined: whether scripts cannot write to the raw data.
    """

    def __init__(self, run: Run, predict: Predict, emit: Emit, *, confined: bool) -> None:
        self.run, self.predict, self.emit = run, predict, emit
        self.raw = ""
        self._change_times = not confined
        self._last: tuple[Mapping[str, str], Verdict] | None = None

    def watch(self, card: Card) -> None:
        """Remember what the raw data looks like before any script has run."""
        file = self.run.locked / "raw.json"
        if file.is_file():
            kept = json.loads(file.read_text(encoding="utf-8"))
            self.raw, self._change_times = str(kept["fingerprint"]), bool(kept.get("change_times", True))
        elif card.path:
            self.raw = self.raw_now(card)
            replace_text(file, json.dumps({"fingerprint": self.raw, "change_times": self._change_times}))

    def raw_now(self, card: Card) -> str:
        """What the raw data looks like now, told as it was told at the start."""
        return fingerprint(card.path, change_times=self._change_times) if card.path else ""

    def check_index(self, selection: Selection, said: str) -> Verdict:
        self.emit("stage", text="auditing the data")
        tick = lambda done, total: self.emit("output", job=0, text=f"audit: {done} of {total} images")  # noqa: E731
        verdict = check_index(self.run.work, selection, said=said, tick=tick)
        audit = self.run.work / AUDIT
        if audit.is_file() and not audit.is_symlink():
            found = json.loads(audit.read_text(encoding="utf-8"))
            self.emit("audit", summary=_audit_line(found), findings=found["findings"])
        if verdict.accepted:
            hashes = lock_index(self.run.work, self.run.locked, selection.task)
            save_hashes(self.run.locked, hashes, self.raw)
            return replace(verdict, artifact=replace(verdict.artifact, hashes=hashes))
        return verdict

    def check_model(self, selection: Selection, card: Card) -> Verdict:
        frozen = take(self.run.work, self.run.measured)
        hashes = frozen.hashes if frozen and not frozen.refused else {}
        if self._last and self._last[0] == hashes:
            return self._last[1]  # nothing was changed since it was accepted
        self.emit("stage", text="running the model on cases that it has not seen")

        def keep(trial: Trial) -> None:
            keep_trial(self.run, trial)

        index, acceptable = read_index(self.run.locked, selection.task), acceptable_range(card, selection)
        verdict = check_model(self.run.work, frozen, selection, index, self.predict, keep, acceptable)
        if verdict.accepted:
            model = replace(verdict.artifact, answers=sha256(self.run.locked / PREDICTIONS))
            verdict = replace(verdict, artifact=model)
        self._last = (hashes, verdict) if verdict.accepted else None
        return verdict


def _audit_line(found: Mapping[str, Any]) -> str:
    parts = []
    for split in ("train", "test"):
        table = ", ".join(f"{name} {count}" for name, count in found["counts"][split].items())
        parts.append(f"{split}: {table}; {found['patients'][split]} patients" if table else _bare(found, split))
    shapes = ", ".join(
        f"{shape} ({count} image{'s' if count != 1 else ''})" for shape, count in list(found["shapes"].items())[:3]
    )
    what = "studies" if found.get("task") == "report" else "images"
    opened = f"Opened {found['opened']} of {found['cases']} {what}"
    return f"{'. '.join(parts)}. {opened}, most often of shape {shapes or 'unknown'}."


def _bare(found: Mapping[str, Any], split: str) -> str:
    return f"{split}: {found['split'][split]} cases; {found['patients'][split]} patients"
