"""Reading array archives (NPZ) into cases."""

from __future__ import annotations

import re
from pathlib import Path

from folder_layouts import Case, natural

PAIRS = (
    ("images", "labels"),
    ("images", "label"),
    ("image", "label"),
    ("x", "y"),
    ("data", "labels"),
    ("data", "targets"),
)


def from_archive(file: Path, names: dict[str, str]) -> list[Case]:
    """Cases of an NPZ archive: arrays `train_images`, `train_labels`, `test_images`, ... (or `x_train`, `y_train`).

    Args:
        names: from a label's number (as text) to its name.
    """
    import numpy as np

    cases = []
    with np.load(file, allow_pickle=False) as archive:
        pairs = _pairs(list(archive.files))
        if not pairs:
            raise SystemExit(
                f"{file} holds {', '.join(sorted(archive.files))}; expected pairs such as train_images and train_labels."
            )
        for images, label, split in pairs:
            table = archive[label]
            for number, row in enumerate(table.reshape(len(table), -1)):
                if len(row) > 1:
                    values = [names.get(str(at), str(at)) for at, on in enumerate(row) if on]
                else:
                    values = [_label(row[0], names)]
                place = f"{file.as_posix()}#{images}[{number}]"
                cases.append(Case(place, values, f"{split or 'case'}-{number}", {}, split))
    return cases


def _pairs(keys: list[str]) -> list[tuple[str, str, str]]:
    """(images, labels, split) for every array of images that has labels."""
    found = []
    for key in sorted(keys, key=natural):
        words = key.lower().split("_")
        for image, label in PAIRS:
            if image in words:
                at = words.index(image)
                mate = "_".join(label if place == at else word for place, word in enumerate(words))
                other = next((k for k in keys if k.lower() == mate), None)
                if other:
                    found.append((key, other, "_".join(words[:at] + words[at + 1 :])))
                    break
    return found


def _label(value: object, names: dict[str, str]) -> str:
    """A label as text; whole numbers without a fraction."""
    text = str(value)
    if re.fullmatch(r"-?\d+\.0+", text):
        text = text.split(".")[0]
    return names.get(text, text)
