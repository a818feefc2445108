"""ChestX-Det10: ten kinds of abnormality in frontal chest X-rays, as boxes or as masks of filled boxes.

Planted signal: box-shaped patches, each kind with its own brightness, grain and position; recorded boxes have a small
error. Planted faults: overlapping boxes of different kinds (the smaller one is on top in the mask), images without a
finding, an image in RGBA, mask values that look black, no patient ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.definitions import (
    CARD,
    OFFICIAL,
    GeneratedSet,
    GeneratorOptions,
    PixelBox,
    RawCase,
    RawDataset,
    StandIn,
    make_spec,
    save_json,
    save_picture,
)
from m3b.bench.datasets.layout_reading import (
    CaseCollector,
    describe_contents,
    read_json,
    require_entries,
    resolve_inside,
)
from m3b.bench.datasets.shapes import Blob, Floats, Random, dice, noise, texture, to_bytes
from m3b.errors import DataError

from .masks import pair_masks, require_card_layout


@dataclass(frozen=True)
class FindingStyle:
    """Appearance of a kind of abnormality in 256 pixels: median box, brightness, grain, and frequency."""

    width: int
    height: int
    brightness: float
    grain: float
    frequency: int


FINDING_STYLES = {
    "Consolidation": FindingStyle(58, 74, 0.2, 0.02, 2091),
    "Fibrosis": FindingStyle(50, 50, 0.06, 0.14, 618),
    "Effusion": FindingStyle(60, 58, 0.3, 0.0, 1720),
    "Nodule": FindingStyle(14, 14, 0.4, 0.0, 789),
    "Mass": FindingStyle(34, 40, 0.36, 0.03, 129),
    "Emphysema": FindingStyle(76, 150, -0.14, 0.02, 232),
    "Calcification": FindingStyle(10, 12, 0.55, 0.0, 280),
    "Atelectasis": FindingStyle(56, 24, 0.26, 0.06, 289),
    "Fracture": FindingStyle(20, 18, -0.3, 0.1, 546),
    "Pneumothorax": FindingStyle(46, 70, -0.24, 0.0, 169),
}
VALUES = dict(enumerate(FINDING_STYLES, 1))
SIDE = 256
EMPTY_SHARE = 0.2
BOX_ERROR = 0.05
TEST_EVERY = 5


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: a fifth of the images have no finding, and a fifth are the official test split."""
    random = np.random.default_rng(options.seed)
    numbers = random.permutation(60_000)[: options.patients] + 36_000
    records_by_part: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    agreements = []
    for index, number in enumerate(numbers):
        name = f"{number}.png"
        boxes = [] if index % round(1 / EMPTY_SHARE) == 3 else place_findings(random, index)
        picture, true_mask = draw(random, boxes)
        noted_boxes = [jitter_box(random, box) for box in boxes]
        mask = fill_boxes(noted_boxes)
        agreements += [dice(true_mask, mask > 0)] if boxes else []
        part = "test" if index % TEST_EVERY == 4 else "train"
        if index == 1:
            picture = np.dstack([picture] * 3 + [np.full_like(picture, 255)])
        if options.layout == CARD:
            save_picture(options.folder / "images" / name, picture)
            save_picture(options.folder / "masks" / name, mask)
        else:
            save_picture(options.folder / f"{part}_data" / name, picture)
        corners = [[box.x1, box.y1, box.x2, box.y2] for box in noted_boxes]
        records_by_part[part].append({"file_name": name, "syms": [box.label for box in noted_boxes], "boxes": corners})
    if options.layout == CARD:
        save_json(options.folder / "labels.json", list(FINDING_STYLES))
    else:
        for part, records in records_by_part.items():
            save_json(options.folder / f"{part}.json", records)
    planted_faults = (
        "boxes of different kinds overlap",
        "images without a finding",
        "an image in RGBA",
        "no patient anywhere",
    )
    return GeneratedSet(len(numbers), 0, float(np.mean(agreements)), planted_faults)


def place_findings(random: Random, index: int) -> list[PixelBox]:
    """Return one to four findings inside the lungs; in every other image the second overlaps the first."""
    frequencies = np.array([style.frequency for style in FINDING_STYLES.values()], dtype=float) ** 0.7
    labels = [
        str(style_name)
        for style_name in random.choice(
            list(FINDING_STYLES), size=int(random.integers(1, 5)), p=frequencies / frequencies.sum()
        )
    ]
    if index % 2 == 0 and len(set(labels)) == 1:
        labels = [labels[0], next(name for name in ("Nodule", "Effusion") if name != labels[0])]
    boxes: list[PixelBox] = []
    for label in labels:
        style = FINDING_STYLES[label]
        w, h = (max(8, round(size * random.uniform(0.6, 0.95))) for size in (style.width, style.height))
        x, y = 128 + random.choice([-1, 1]) * random.uniform(34, 70), random.uniform(55, 180)
        if label == "Effusion":
            y = random.uniform(170, 190)
        if index % 2 == 0 and len(boxes) == 1:
            x, y = (boxes[0].x1 + boxes[0].x2) / 2 + 4, (boxes[0].y1 + boxes[0].y2) / 2 + 4
        x1, y1 = int(np.clip(x - w / 2, 4, SIDE - 8 - w)), int(np.clip(y - h / 2, 4, SIDE - 8 - h))
        boxes.append(PixelBox(label, x1, y1, x1 + w, y1 + h))
    return boxes


def jitter_box(random: Random, box: PixelBox) -> PixelBox:
    """Return the box as recorded by a reader: every edge has an error of a few percent of the side."""
    w, h = box.x2 - box.x1, box.y2 - box.y1
    edge_errors = random.normal(0, BOX_ERROR, 4) * (w, h, w, h)
    x1, y1, x2, y2 = (
        int(np.clip(round(v), 0, SIDE - 2)) for v in np.add((box.x1, box.y1, box.x2, box.y2), edge_errors)
    )
    return PixelBox(box.label, x1, y1, max(x2, x1 + 3), max(y2, y1 + 3))


def fill_boxes(boxes: list[PixelBox]) -> NDArray[np.uint8]:
    """Return a mask of filled boxes with the number of their kind, smaller boxes over larger ones."""
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for box in sorted(boxes, key=lambda box: -(box.x2 - box.x1) * (box.y2 - box.y1)):
        mask[box.y1 : box.y2, box.x1 : box.x2] = list(FINDING_STYLES).index(box.label) + 1
    return mask


def draw(random: Random, boxes: list[PixelBox]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return a frontal chest X-ray `(256, 256)` with the findings, and their true mask."""
    shape = (SIDE, SIDE)
    image: Floats = np.full(shape, 0.55, dtype=np.float32)
    for side in (-1, 1):
        Blob(shape, (122, 128 + side * 52), (90, 40), random=random, rough=0.02).add(image, -0.3, sharp=8)
    Blob(shape, (165, 140), (42, 40)).add(image, 0.18, sharp=8)
    rows = np.arange(SIDE, dtype=np.float32)[:, None]
    image += 0.02 * np.sin(rows / random.uniform(3.6, 4.4) + random.uniform(0, 6))
    true_mask = np.zeros(shape, dtype=np.bool_)
    for box in boxes:
        style, part = FINDING_STYLES[box.label], (slice(box.y1, box.y2), slice(box.x1, box.x2))
        size = (box.y2 - box.y1, box.x2 - box.x1)
        image[part] += np.float32(style.brightness * random.uniform(0.85, 1.15))
        image[part] += texture(random, size, style.grain, cells=9) if style.grain else 0
        true_mask[part] = True
    image += texture(random, shape, 0.02, cells=10) + noise(random, shape, 0.03)
    return to_bytes(image), true_mask


def read(folder: Path) -> RawDataset:
    """Read one case per image; the official layout has boxes and a split, the card's has masks."""
    if (folder / "masks").is_dir() or (folder / "images").is_dir():
        require_card_layout(folder, "masks", "ChestX-Det10", VALUES)
        collector = CaseCollector(folder, "ChestX-Det10", CARD)
        pair_masks(collector, folder / "images", folder / "masks", patient=str, suffixes=(".png",))
        return collector.finish()
    if not (folder / "train.json").is_file():
        raise DataError(
            f"{folder} is not ChestX-Det10: neither images and masks nor train.json; {describe_contents(folder)}."
        )
    collector = CaseCollector(folder, "ChestX-Det10", OFFICIAL)
    for part in ("train", "test"):
        require_entries(folder, f"{part}.json", f"{part}_data", description="ChestX-Det10 as published")
        for record in read_json(folder / f"{part}.json", list):
            _add_record(collector, part, record, folder / f"{part}.json")
    return collector.finish()


def _read_columns(record: Any) -> tuple[list[Any], list[Any]]:
    """Return the two lists of a record; lists of different lengths if the record is malformed."""
    syms, corners = (record.get(key) if isinstance(record, dict) else None for key in ("syms", "boxes"))
    return (syms, corners) if isinstance(syms, list) and isinstance(corners, list) else ([], [None])


def _add_record(collector: CaseCollector, part: str, record: Any, source: Path) -> None:
    syms, corners = _read_columns(record)
    if len(syms) != len(corners) or not all(isinstance(text, str) for text in (record.get("file_name"), *syms)):
        raise DataError(f"{source}: a record needs file_name, and syms and boxes of one length; found {record!r:.200}.")
    unknown = sorted(set(syms) - set(FINDING_STYLES))
    if unknown:
        raise DataError(
            f"{source}: {record['file_name']} names unknown findings {unknown}; known are {list(FINDING_STYLES)}."
        )
    path = resolve_inside(collector.folder, f"{part}_data/{record['file_name']}", source)
    if not (collector.folder / path).is_file():
        collector.exclude("listed images without a file", path, missing=True)
        return
    try:
        boxes = tuple(PixelBox(label, *map(int, box)) for label, box in zip(syms, corners, strict=True))
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: a box of {record['file_name']} is not x1, y1, x2, y2.") from error
    name = Path(path).stem
    labels = tuple(dict.fromkeys(syms))
    collector.cases.append(RawCase(name, (path,), name, part, labels, boxes=boxes))


SPEC = make_spec(
    "chestx-det10",
    stand_in=StandIn(patients=100, acceptable=(0.42, None), baseline=0.3, ceiling=0.93, min_patients=10, minutes=2.0),
    merged_class="abnormality",
    generator=make,
    reader=read,
    values=VALUES,
    layouts=(CARD, OFFICIAL),
)
