"""A folder of expert trajectories: written one by one, continued after a crash, summarised at the end.

OUT/train.jsonl, OUT/validation.jsonl   the conversations; no patient is in both
OUT/images/                             what the agent is shown, a PNG a turn
OUT/progress.jsonl                      the outcome of every target
OUT/settings.json, OUT/summary.json     the settings; the counts
OUT/pictures/                           ten trajectories as contact sheets, for people
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from m3b.errors import DataError, UsageError
from m3b.interactive.segmenter import Segmenter
from m3b.interactive.targets import Target
from m3b.jsonlines import iter_objects, truncate_torn_line
from m3b.teaching.chats import ChatRecord, messages_to_chat, tool_to_chat
from m3b.teaching.experts import Demonstration, Expert, PromptMode, demonstrate, get_tool_specs
from m3b.teaching.reward import RewardWeights
from m3b.writing import write_text_atomically

GAP_PX = 6


def summarize_progress(lines: Sequence[Mapping[str, Any]], kept_outcome: str) -> dict[str, Any]:
    """Return counts and means of the outcomes of all targets.

    Args:
        lines: lines of the progress file: `outcome`, `way`, `target`, `iou` after each turn.
        kept_outcome: the outcome of trajectories that were kept.
    """
    kept_lines = [line for line in lines if line["outcome"] == kept_outcome]
    reasons = Counter(str(line["outcome"]) for line in lines if line["outcome"] != kept_outcome)
    summary: dict[str, Any] = {"tried": len(lines), "kept": len(kept_lines), "left_out": dict(reasons.most_common())}
    for key in ("way", "target"):
        names = dict.fromkeys(str(line[key]) for line in lines)
        summary[f"by_{key}"] = {
            name: _summarize_kept([line for line in kept_lines if line[key] == name]) for name in names
        }
    return summary | _summarize_kept(kept_lines)


def _summarize_kept(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not lines:
        return {"kept": 0}
    turns = Counter(len(line["iou"]) for line in lines)
    return {
        "kept": len(lines),
        "turns": {str(number): turns[number] for number in sorted(turns)},
        "mean_turns": round(float(np.mean([len(line["iou"]) for line in lines])), 4),
        "first_iou": round(float(np.mean([line["iou"][0] for line in lines])), 4),
        "final_iou": round(float(np.mean([line["iou"][-1] for line in lines])), 4),
    }


def make_contact_sheet(files: Sequence[Path]) -> Any:
    """Return the pictures of one trajectory side by side, as a Pillow image."""
    from PIL import Image

    images = []
    for file in files:
        with Image.open(file) as source_image:
            images.append(source_image.convert("RGB"))
    width = sum(image.width + GAP_PX for image in images) - GAP_PX
    canvas = Image.new("RGB", (width, max(image.height for image in images)), (255, 255, 255))
    x_offset = 0
    for image in images:
        canvas.paste(image, (x_offset, 0))
        x_offset += image.width + GAP_PX
    return canvas


TRAIN_FILE, VALIDATION_FILE, PROGRESS_FILE, SETTINGS_FILE, SUMMARY_FILE = (
    "train.jsonl", "validation.jsonl", "progress.jsonl", "settings.json", "summary.json",
)  # fmt: skip
MAX_PICTURES = 10
KEPT_OUTCOME = "kept"


@dataclass(frozen=True)
class TrajectoryResult:
    """The result of `make_trajectories`.

    Args:
        summary: as in summary.json.
    """

    folder: Path
    summary: dict[str, Any]


class TrajectoryFolder:
    """The folder of trajectories in progress.

    Args:
        folder: new, or an unfinished one of the same settings.
        settings: how the trajectories are made.

    Raises:
        UsageError: the folder holds something else, or was begun with other settings.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        file = folder / SETTINGS_FILE
        settings = json.loads(json.dumps(settings))
        try:
            if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not file.is_file())):
                raise UsageError(f"{folder} has other files than trajectories. Name a new folder.")
            (folder / "images").mkdir(parents=True, exist_ok=True)
            os.chmod(folder, 0o700)  # pictures of patients
        except OSError as error:
            raise UsageError(f"The folder {folder} cannot be made: {error}.") from error
        if file.is_file():
            differences = _list_differences(file, settings)
            if differences:
                raise UsageError(
                    f"The trajectories in {folder} were begun with other settings ({'; '.join(differences)}). Use the same "
                    "ones to go on, or name a new folder."
                )
        else:
            write_text_atomically(file, json.dumps(settings, indent=1))
        for name in (TRAIN_FILE, VALIDATION_FILE, PROGRESS_FILE):
            if (folder / name).is_file():
                truncate_torn_line(folder / name)
        lines = list(iter_objects(folder / PROGRESS_FILE))
        self.done_cases = frozenset(str(line["case"]) for line in lines if line.get("finished"))
        """Cases that are done with: they are not opened again."""
        self.done_ids = {str(line["id"]) for line in lines if "id" in line}
        for name in (TRAIN_FILE, VALIDATION_FILE):
            self.done_ids |= {str(line["id"]) for line in iter_objects(folder / name)}

    def write(self, chat: ChatRecord, images: tuple[bytes, ...], validation: bool) -> None:
        """Write a trajectory, its pictures first."""
        for file, content in zip(chat.images, images, strict=True):
            file.write_bytes(content)
        self._append(VALIDATION_FILE if validation else TRAIN_FILE, chat.to_line(self.folder))

    def record_progress(self, **facts: Any) -> None:
        """Write the outcome of a target, or that a case is finished."""
        self._append(PROGRESS_FILE, json.dumps(facts, ensure_ascii=False) + "\n")

    def _append(self, name: str, line: str) -> None:
        try:
            with (self.folder / name).open("a", encoding="utf-8") as stream:
                stream.write(line)
        except OSError as error:
            raise UsageError(f"{self.folder / name} cannot be written: {error.strerror}.") from error


def make_trajectories(
    targets: Iterable[Target],
    segmenter: Segmenter,
    collection: TrajectoryFolder,
    expert: Expert,
    *,
    reward: RewardWeights | None = None,
    held_out: float = 0.1,
    on_progress: Callable[[int, int], None] = lambda kept, tried: None,
) -> TrajectoryResult:
    """Let the expert prompt every target that is not done yet, in each of its modes.

    Args:
        targets: in the order of their cases.
        held_out: share of the patients whose trajectories go to the validation file.
        on_progress: called after each with the number of kept trajectories, and of tried ones.

    Raises:
        UsageError: `held_out` is out of range.
        DataError: there was no target, or nothing could be kept; the message says why.
    """
    if not 0 <= held_out < 1:
        raise UsageError(f"held_out is {held_out}; a share from 0 to below 1 is needed.")
    reward, case, kept_count, tried_count = reward or RewardWeights(), None, 0, 0
    for target in targets:
        if case is not None and target.case != case:
            collection.record_progress(case=case, finished=True)
        case = target.case
        for mode in expert.ways:
            trajectory_id = _make_id(target, mode)
            if trajectory_id in collection.done_ids:
                continue
            rng = np.random.default_rng(_hash_to_int(f"{expert.seed}/{trajectory_id}"))
            demonstration = demonstrate(target, segmenter, expert, mode, rng, reward)
            if not demonstration.reason:
                is_held_out = _hash_to_int(f"patient/{target.patient}") / 2**64 < held_out
                _write_trajectory(collection, target, mode, demonstration, is_held_out)
            collection.record_progress(
                id=trajectory_id,
                case=target.case,
                target=target.name,
                way=mode,
                outcome=demonstration.reason or KEPT_OUTCOME,
                iou=[round(value, 4) for value in demonstration.iou],
            )
            collection.done_ids.add(trajectory_id)
            kept_count, tried_count = kept_count + (not demonstration.reason), tried_count + 1
            on_progress(kept_count, tried_count)
    if case is not None:
        collection.record_progress(case=case, finished=True)
    return finish_trajectories(collection)


def finish_trajectories(collection: TrajectoryFolder) -> TrajectoryResult:
    """Write the summary and draw ten of the trajectories.

    Raises:
        DataError: nothing was kept.
    """
    folder = collection.folder
    lines = [line for line in iter_objects(folder / PROGRESS_FILE) if "id" in line]
    lines_by_file = {name: list(iter_objects(folder / name)) for name in (TRAIN_FILE, VALIDATION_FILE)}
    summary = summarize_progress(lines, KEPT_OUTCOME) | {
        "train": len(lines_by_file[TRAIN_FILE]),
        "validation": len(lines_by_file[VALIDATION_FILE]),
    }
    write_text_atomically(folder / SUMMARY_FILE, json.dumps(summary, indent=1, ensure_ascii=False))
    if not lines_by_file[TRAIN_FILE] and not lines_by_file[VALIDATION_FILE]:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in summary["left_out"].items())
        raise DataError(
            f"No trajectory was kept: {reasons or 'there is no target'}. Lower min_iou or min_gain, or use a segmenter "
            "that knows such images (`m3b interactive bench` says how far its oracles get)."
        )
    (folder / "pictures").mkdir(exist_ok=True)
    ordered_lines = sorted(
        (line for lines in lines_by_file.values() for line in lines), key=lambda line: _hash_to_int(str(line["id"]))
    )
    for number, line in enumerate(ordered_lines[:MAX_PICTURES], 1):
        make_contact_sheet([folder / name for name in line["images"]]).save(folder / "pictures" / f"{number:02d}.png")
    return TrajectoryResult(folder, summary)


def settings_of(index: str | Path, segmenter: str, expert: Expert, held_out: float) -> dict[str, Any]:
    """Return the content of the settings file."""
    return {"index": str(index), "segmenter": segmenter, "held_out": held_out, "expert": asdict(expert)}


def _write_trajectory(
    collection: TrajectoryFolder, target: Target, mode: PromptMode, demonstration: Demonstration, validation: bool
) -> None:
    trajectory_id = _make_id(target, mode)
    stem = hashlib.sha256(trajectory_id.encode()).hexdigest()[:16]
    pictures = [picture.data for message in demonstration.messages for picture in message.images]
    files = tuple(collection.folder / "images" / f"{stem}_{number}.png" for number in range(len(pictures)))
    facts = {"case": target.case, "patient": target.patient, "target": target.name, "slice": target.slice_index,
             "way": mode, "iou": [round(value, 4) for value in demonstration.iou]}  # fmt: skip
    tools = tuple(tool_to_chat(tool) for tool in get_tool_specs())
    chat = ChatRecord(
        trajectory_id,
        messages_to_chat(demonstration.messages),
        tools,
        files,
        round(demonstration.score.total, 6),
        facts,
    )
    collection.write(chat, tuple(pictures), validation)


def _make_id(target: Target, mode: PromptMode) -> str:
    slice_text = "" if target.slice_index is None else f"#{target.slice_index}"
    return f"{target.case}{slice_text}/{target.name}/{mode}"


def _hash_to_int(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _list_differences(file: Path, settings: dict[str, Any]) -> list[str]:
    try:
        previous = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from error
    flat = [_flatten(previous), _flatten(settings)]
    return [
        f"{name} was {flat[0].get(name)}, is {flat[1].get(name)}"
        for name in sorted(flat[0].keys() | flat[1].keys())
        if flat[0].get(name) != flat[1].get(name)
    ]


def _flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(settings, dict):
        return {prefix: settings}
    return {name: value for key, inner in settings.items() for name, value in _flatten(inner, str(key)).items()}
