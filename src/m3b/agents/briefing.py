"""What each role is told when its stage begins. The first line names the stage; everything else is plain text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from m3b.agents.artifacts import DataIndex, Selection, TrainingModule
from m3b.data.cards import Card

Look = Callable[[str, Mapping[str, object]], str]
"""Calls a preview tool on m3b's own account: looking costs the agents no action."""

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".npz")
INDEXING = "templates/indexing"
FEW_CARDS = 2
"""So many data sets are shown to the Task Manager with their tables; of more, the folders alone."""
TEMPLATE = {"diagnosis": "templates/diagnosis"}


def selection_briefing(request: str, cards: Sequence[Card], look: Look) -> str:
    """For the Task Manager: the request, the cards, and a first look at the data that is here."""
    here = [card for card in cards if card.path]
    others = [card for card in cards if not card.path]
    parts = ["Stage: selection", f"Request of the user:\n{request.strip()}", "## Data on this machine"]
    for card in here:
        parts += [card.text(), look("preview_dirs", {"path": f"data/{card.root}"})]
        tables = _tables(card) if len(here) <= FEW_CARDS else []
        if tables:
            parts.append(look("preview_files", {"paths": tables}))
    if others:
        parts.append("## Other data cards (their data is not on this machine)")
        parts.append("\n".join(f"- {card.line()}".replace("; data not on this machine", "") for card in others))
    parts.append("Choose, and reply with the JSON object.")
    return "\n\n".join(parts)


def index_briefing(request: str, selection: Selection, card: Card, look: Look, resources: Path) -> str:
    """For the Data Engineer: the selection, the card, the folder with its tables, and the indexing script."""
    tables = _tables(card)
    shown = [look("preview_files", {"paths": tables})] if tables else []
    return "\n\n".join(
        [
            "Stage: index",
            f"Request of the user:\n{request.strip()}",
            f"## Selection\n{_json(asdict(selection))}",
            f"## Data card\n{card.text()}",
            f"## Preview of data/{card.root}\n{look('preview_dirs', {'path': f'data/{card.root}'})}",
            *shown,
            f"## The indexing script\n{(resources / INDEXING / 'README.md').read_text(encoding='utf-8').strip()}",
            "Write the index files.",
        ]
    )


def module_briefing(
    selection: Selection, data: DataIndex, audit: str, minutes: float, device: str, resources: Path
) -> str:
    """For the Module Architect: what the data is, how long training may take, and the template's own guide."""
    template = TEMPLATE[selection.task]
    guide = (resources / template / "README.md").read_text(encoding="utf-8").strip()
    return "\n\n".join(
        [
            "Stage: module",
            f"Task: {selection.task}; metric: {selection.metric}; classes: {', '.join(data.classes)}"
            f"{' (several may apply)' if data.multi_label else ''}.",
            f"Plan of the Task Manager: {selection.plan}",
            f"Data: {audit}",
            f"Training time: {minutes:g} minutes on {device}.",
            f"## Template resources/{template}\n{guide}",
            "Set the project up in the working directory.",
        ]
    )


def model_briefing(selection: Selection, data: DataIndex, module: TrainingModule, minutes: float) -> str:
    """For the Model Trainer: what is in place and what counts."""
    before, after = module.overfit
    shape = " x ".join(map(str, module.batch_shape))
    return "\n\n".join(
        [
            "Stage: model",
            f"Task: {selection.task}; metric: {selection.metric}; classes: {', '.join(data.classes)}.",
            f"The project is in place: plan.json, plan.py, train.py, export.py. A batch of the check was {shape}, the model has "
            f"{module.parameters:,} parameters; on one batch its loss fell from {before:.3f} to {after:.3f}.",
            f"Cases: {data.cases['train']} for training (the project holds a validation part out of them). "
            f"One training takes {minutes:g} minutes and stops by itself.",
            "Train, export, and hand over.",
        ]
    )


def _tables(card: Card) -> list[str]:
    """The few tables and archives at the top of the data folder, labels most likely among them."""
    if card.path is None:
        return []
    found: list[str] = []
    for place, folders, files in os.walk(card.path):
        depth = len(Path(place).relative_to(card.path).parts)
        folders[:] = [] if depth >= 2 else sorted(name for name in folders if not name.startswith("."))
        names = [name for name in sorted(files) if name.lower().endswith(TABLES) and not name.startswith(".")]
        if len(names) <= 6:  # more of them are cases, not tables
            found += [Path(place, name).relative_to(card.path).as_posix() for name in names]
    return [f"data/{card.root}/{name}" for name in _first(found, 4)]


def _first(names: Iterable[str], count: int) -> list[str]:
    return sorted(names, key=lambda name: (name.count("/"), name))[:count]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
