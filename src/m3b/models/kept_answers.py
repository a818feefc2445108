"""The answers of the measured model on the locked test cases, kept with the names of the cases.

`locked/answers/answers.json` has one entry a test case, in the order of `test.json`: probabilities, boxes, texts and
numbers as predict.py wrote them, and the names of its mask files below `locked/answers/`. No agent can read the folder.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.records import Record, frozen
from m3b.errors import ModelError
from m3b.isolation import untrusted
from m3b.models.checksums import sha256_of
from m3b.models.predict_process import parse_predictions
from m3b.models.predictions import ModelInfo, Prediction
from m3b.writing import json_text, write_text_atomically

ANSWERS_FOLDER, ANSWERS_FILE = "answers", "answers.json"
FORMAT_VERSION = 1
MAX_KEPT_BYTES = 4 * 2**30
"""Maximum size of all mask files of a run; those of later cases are left out, and answers.json names the cases."""
MAX_STEM_CHARS = 60


@dataclass(frozen=True)
class KeptAnswers:
    """What answers.json holds.

    Args:
        task: the task of the model.
        predictions: case key (`Record.key`) -> its prediction, with absolute paths of mask files.
        without_files: keys of cases whose mask files were left out, because all files were too large.
    """

    task: str
    predictions: Mapping[str, Prediction]
    without_files: tuple[str, ...] = ()


def keep_answers(
    locked: Path, task: str, records: Sequence[Record], predictions: Sequence[Prediction], source: Path
) -> None:
    """Write `locked/answers/`, replacing an earlier one.

    Args:
        predictions: one for each record; their mask files lie below `source`, where untrusted code wrote them.

    Raises:
        UnsafePathError: a link or special file instead of a mask file.
        OSError: a file cannot be copied.
    """
    folder, source = locked / ANSWERS_FOLDER, source.resolve()
    if folder.exists():
        untrusted.remove_tree(folder)
    folder.mkdir()
    free_bytes = min(MAX_KEPT_BYTES, shutil.disk_usage(folder).free // 2)
    cases, hashes, without_files = [], {}, []
    for number, (record, prediction) in enumerate(zip(records, predictions, strict=True), start=1):
        files = _list_files(prediction)
        size = sum(file.stat().st_size for file in files)
        if size > free_bytes:
            without_files.append(record.key)
            kept_prediction = replace(prediction, mask=None, masks={}, anomaly_map=None)
        else:
            free_bytes -= size
            names = {file: _choose_name(number, record, file, files) for file in files}
            for file, name in names.items():
                untrusted.copy_file(source, (file.parent.resolve() / file.name).relative_to(source), folder, name)
                hashes[name] = sha256_of(folder / name)
            kept_prediction = _with_files(prediction, names)
        answer = replace(kept_prediction, image=record.image).to_dict()
        cases.append({"case": record.key, "patient": record.patient, "answer": answer})
    content = {
        "version": FORMAT_VERSION,
        "task": task,
        "cases": cases,
        "files": hashes,
        "without_files": without_files,
    }
    write_text_atomically(folder / ANSWERS_FILE, json_text(content, indent=1))


def _list_files(prediction: Prediction) -> list[Path]:
    candidates = (prediction.mask, *prediction.masks.values(), prediction.anomaly_map)
    return list(dict.fromkeys(file for file in candidates if file is not None))


def _with_files(prediction: Prediction, names: Mapping[Path, str]) -> Prediction:
    return replace(
        prediction,
        mask=None if prediction.mask is None else Path(names[prediction.mask]),
        masks={name: Path(names[file]) for name, file in prediction.masks.items()},
        anomaly_map=None if prediction.anomaly_map is None else Path(names[prediction.anomaly_map]),
    )


def _choose_name(number: int, record: Record, file: Path, files: Sequence[Path]) -> str:
    """Return a name from the position of the case, its own file name, and the position of the mask, with its suffix."""
    case_name = record.images[0].rpartition("/")[2]
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", case_name.split(".", 1)[0]).strip("-")[:MAX_STEM_CHARS]
    suffix = re.search(r"(\.nii\.gz|\.[A-Za-z0-9]{1,8})$", file.name)
    mask_number = f"-{files.index(file) + 1}" if len(files) > 1 else ""
    return f"masks/{number:04d}{f'-{stem}' if stem else ''}{mask_number}{suffix.group(1) if suffix else ''}"


def read_answers(locked: Path, model_info: ModelInfo) -> KeptAnswers | None:
    """Return the kept answers; None if the run has none (it has not got that far, or an earlier version made it).

    Raises:
        ModelError: answers.json cannot be read, or does not fit the model.
    """
    folder = locked / ANSWERS_FOLDER
    try:
        content = json.loads((folder / ANSWERS_FILE).read_text(encoding="utf-8"))
        entries: list[dict[str, Any]] = content["cases"]
        without_files = tuple(map(str, content["without_files"]))
        complete = [entry for entry in entries if entry["case"] not in without_files]
        answers = [entry["answer"] for entry in complete]
        images = [frozen(answer["image"]) for answer in answers]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / ANSWERS_FILE} cannot be read: {error!r}") from error
    predictions = parse_predictions(answers, images, model_info, folder=folder, strict=False)
    return KeptAnswers(
        model_info.task,
        {entry["case"]: prediction for entry, prediction in zip(complete, predictions, strict=True)},
        without_files,
    )


def find_changed_answers(locked: Path) -> list[str]:
    """Return the names of mask files of answers.json that are missing, or not those that were kept."""
    folder = locked / ANSWERS_FOLDER
    hashes = json.loads((folder / ANSWERS_FILE).read_text(encoding="utf-8"))["files"]
    return [
        f"{ANSWERS_FOLDER}/{name}"
        for name, digest in hashes.items()
        if not (folder / name).is_file() or sha256_of(folder / name) != digest
    ]
