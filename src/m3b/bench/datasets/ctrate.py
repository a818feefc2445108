"""CT-RATE: reports of chest CT, in nested case folders.

Planted signal: effusion, opacity and nodule, each with a side, and a large heart, in the image and in the report.
Planted faults: reconstructions that share a report, a listed volume without a file; in the official layout, stored
values whose conversion to HU is only in the table (intercept -1024 or -8192), spacings that are only in the table, a
head scan, and `Not given.` instead of a text.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.definitions import (
    CARD,
    OFFICIAL,
    GeneratedSet,
    GeneratorOptions,
    RawCase,
    RawDataset,
    StandIn,
    make_spec,
    save_csv,
    save_json,
    save_nifti,
)
from m3b.bench.datasets.layout_reading import (
    CaseCollector,
    describe_contents,
    read_rows,
    require_entries,
    resolve_inside,
)
from m3b.bench.datasets.report_text import bleu_1, compose_text, read_reports
from m3b.bench.datasets.shapes import Blob, Random, noise, texture, to_hu
from m3b.errors import DataError

SENTENCES = {
    "effusion": (
        "Free pleural fluid reaching {0} 4 cm in depth is observed with compression atelectasis beneath it on the {0}.",
        "There is {0} pleural effusion; adjacent parenchyma of the {0} base is compressed.",
    ),
    "opacity": (
        "Consolidation with ground glass density around and air bronchograms occupies much of the {0} upper lobe.",
        "Infiltration with air bronchograms is seen in the {0} upper lobe.",
    ),
    "nodule": (
        "A solid round nodule measuring 9 mm lies subpleurally next to the fissure in the middle zone, {0} lung.",
        "One nodule of 9 mm was measured in the {0} lung.",
    ),
    "heart": (
        "Cardiothoracic ratio has increased in favor of the heart and all chambers appear dilated.",
        "Heart size is increased.",
    ),
    "no heart": ("Heart contour normal.", "Heart size normal."),
    "no effusion": ("No pleural effusion.", "Pleural effusion was not detected."),
    "clear": ("Both lungs are clear.", "No infiltrative lesion in both lungs."),
}
SUMMARY_SENTENCES = {
    "effusion": ("Pleural effusion on the {}.",), "opacity": ("Pneumonic infiltration in the {} lung.",),
    "nodule": ("Nodule in the {} lung.",), "heart": ("Cardiomegaly.",), "clear": ("Findings within normal limits.",),
}  # fmt: skip
SHAPE = (80, 80, 40)
SPACING = (3.9, 3.9, 7.5)
PARTS = {"train": ("train", "train_reports.csv", "train_metadata.csv", "no_chest_train.txt"),
         "test": ("valid", "validation_reports.csv", "validation_metadata.csv", "no_chest_valid.txt")}  # fmt: skip
NOT_GIVEN = "Not given."
VOLUME_NAME = re.compile(r"^((?:train|valid)_\d+)_([a-z]+)_(\d+)\.nii(?:\.gz)?$")


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: a quarter of the patients are the test split; every third scan has two reconstructions."""
    random = np.random.default_rng(options.seed)
    records_by_part: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    metadata_rows: dict[str, list[list[object]]] = {"train": [], "test": []}
    references, usual_texts = [], []
    test_count = max(2, options.patients // 4)
    for number in range(options.patients):
        part = "test" if number >= options.patients - test_count else "train"
        patient = f"{PARTS[part][0]}_{number + 1}"
        facts = draw_facts(random)
        report = {
            "finding": compose_text(SENTENCES, list_findings(facts), random),
            "impression": compose_text(SUMMARY_SENTENCES, facts or ["clear"]),
        }
        if number == 4:
            report["impression"] = NOT_GIVEN if options.layout == OFFICIAL else ""
        references.append(report["finding"])
        usual_texts.append(compose_text(SENTENCES, list_findings(facts)))
        body_seed = int(random.integers(1 << 31))
        for reconstruction in range(1, 3 if number % 3 == 0 else 2):
            name = f"{patient}_a_{reconstruction}.nii.gz"
            path = f"dataset/{PARTS[part][0]}/{patient}/{patient}_a/{name}"
            hu = to_hu(draw(np.random.default_rng(body_seed), facts) + noise(random, SHAPE, 40))
            metadata_rows[part].append(_save_volume(options, options.folder / path, hu, number))
            records_by_part[part].append({"image_path": path, **report})
    missing_record = {"image_path": "dataset/train/train_999/train_999_a/train_999_a_1.nii.gz", "finding": "Heart size is normal.",
             "impression": "Normal."}  # fmt: skip
    records_by_part["train"].append(missing_record)
    _write_lists(options, records_by_part, metadata_rows)
    official_faults = (
        ("values that only the table turns into HU", "a head scan", "Not given.") if options.layout == OFFICIAL else ()
    )
    planted_faults = ("reconstructions that share a report", "a listed volume without a file", *official_faults)
    return GeneratedSet(options.patients, options.patients, bleu_1(references, usual_texts), planted_faults)


def _save_volume(options: GeneratorOptions, file: Path, hu: NDArray[np.int16], number: int) -> list[object]:
    """Save a volume, in the official layout as stored values with a meaningless header; return its metadata row."""
    intercept = 0
    if options.layout == OFFICIAL:
        intercept = -8192 if number % 4 == 1 else -1024
        save_nifti(file, (hu.astype(np.int32) - intercept).astype(np.int16), (1, 1, 1))
    else:
        save_nifti(file, hu, SPACING)
    return [
        file.name,
        "Drawn",
        SHAPE[0],
        SHAPE[1],
        str([SPACING[0], SPACING[1]]),
        intercept,
        1,
        "HU",
        SHAPE[2],
        SPACING[2],
    ]


def _write_lists(
    options: GeneratorOptions,
    records_by_part: dict[str, list[dict[str, str]]],
    metadata_rows: dict[str, list[list[object]]],
) -> None:
    if options.layout == CARD:
        for part, records in records_by_part.items():
            save_json(options.folder / f"{part}_reports.json", records)
        return
    for part, (_, reports, metadata, no_chest) in PARTS.items():
        rows = [[Path(record["image_path"]).name, NOT_GIVEN, NOT_GIVEN, record["finding"], record["impression"]]
                for record in records_by_part[part]]  # fmt: skip
        if part == "train":
            source_path = records_by_part[part][1]["image_path"]
            (options.folder / "dataset" / "metadata").mkdir(parents=True)
            rows.append(["train_998_a_1.nii.gz", NOT_GIVEN, NOT_GIVEN, "Ventricles are of normal width.", "Normal."])
            head_scan_file = options.folder / "dataset/train/train_998/train_998_a/train_998_a_1.nii.gz"
            head_scan_file.parent.mkdir(parents=True)
            head_scan_file.write_bytes((options.folder / source_path).read_bytes())
        no_chest_text = "train_998_a_1.nii.gz\n" if part == "train" else ""
        save_csv(options.folder / "dataset/radiology_text_reports" / reports, (
            "VolumeName", "ClinicalInformation_EN", "Technique_EN", "Findings_EN", "Impressions_EN"), rows)  # fmt: skip
        save_csv(options.folder / "dataset/metadata" / metadata, (
            "VolumeName", "Manufacturer", "Rows", "Columns", "XYSpacing", "RescaleIntercept", "RescaleSlope",
            "RescaleType", "NumberofSlices", "ZSpacing"), metadata_rows[part])  # fmt: skip
        (options.folder / "dataset/metadata" / no_chest).write_text(no_chest_text, encoding="utf-8")


def draw_facts(random: Random) -> list[str]:
    """Return the facts of one patient; about a fifth have none."""
    facts = [f"{name}:{random.choice(['left', 'right'])}" for name, probability in
             (("effusion", 0.45), ("opacity", 0.45), ("nodule", 0.2)) if random.random() < probability]  # fmt: skip
    return facts + (["heart"] if random.random() < 0.35 else [])


def list_findings(facts: list[str]) -> list[str]:
    """Return the facts that the report mentions, present or absent."""
    fact_by_name = {fact.partition(":")[0]: fact for fact in facts}
    lungs = [fact_by_name[name] for name in ("opacity", "nodule") if name in fact_by_name] or ["clear"]
    return [fact_by_name.get("heart", "no heart"), fact_by_name.get("effusion", "no effusion"), *lungs]


def draw(random: Random, facts: list[str]) -> NDArray[np.float32]:
    """Return a chest CT `(80, 80, 40)` in HU with these findings; the patient's left is at small x."""
    sides = {name: -1 if side == "left" else 1 for name, _, side in (fact.partition(":") for fact in facts)}
    image = np.full(SHAPE, -1000, dtype=np.float32)

    def blob(offset: tuple[float, float, float], radii: tuple[float, float, float], rough: float = 0.0) -> Blob:
        """Return a blob; positions are relative to the centre, in tenths of the half width."""
        size, middle = np.array(SHAPE) / 20, (np.array(SHAPE) - 1) / 2
        return Blob(SHAPE, middle + np.array(offset) * size, np.array(radii) * size, random=random, rough=rough)

    blob((0, 0, 0), (9.4, 7.5, 30)).fill(image, 35)
    for side in (-1, 1):
        blob((side * 4.2, 0, 0.4), (3.4, 5.4, 10), 0.02).fill(image, -820)
        if sides.get("effusion") == side:
            blob((side * 4.4, -3.6, -5.8), (3.2, 2.6, 5.4)).fill(image, 12)
        if sides.get("opacity") == side:
            position = (side * 4.2 + random.uniform(-0.5, 0.5), random.uniform(-0.4, 1.6), 4)
            blob(position, (2.3, 2.9, 3.8), 0.08).add(image, 600)
        if sides.get("nodule") == side:
            blob((side * 4.4, 2.1 + random.uniform(-1, 1), -1), (1.3, 1.3, 2)).fill(image, 60)
    heart_scale = 1.45 if "heart" in facts else 1.0
    blob((-1, 1.7, -2.9), (2.5 * heart_scale, 2.3 * heart_scale, 3.8 * heart_scale)).fill(image, 45)
    blob((0, -6.2, 0), (1.3, 1.3, 40)).fill(image, 260)
    return image + texture(random, SHAPE, 20)


def read(folder: Path) -> RawDataset:
    """Read one case per scan: the first existing reconstruction of those that share a report."""
    if (folder / "train_reports.json").is_file() or (folder / "train.json").is_file():
        return _read_card(folder)
    root = folder / "dataset" if (folder / "dataset").is_dir() else folder
    if not (root / "radiology_text_reports").is_dir():
        raise DataError(
            f"{folder} is not CT-RATE: neither two JSON lists (train_reports.json, test_reports.json) nor"
            f" radiology_text_reports; {describe_contents(folder)}."
        )
    return _read_official(folder, root)


def _read_card(folder: Path) -> RawDataset:
    suffix = "_reports.json" if (folder / "train_reports.json").is_file() else ".json"
    require_entries(folder, f"train{suffix}", f"test{suffix}", description="CT-RATE (a JSON list for each part)")
    collector = CaseCollector(folder, "CT-RATE", CARD)
    path_by_scan: dict[str, str] = {}
    for part in PARTS:
        file = folder / f"{part}{suffix}"
        for record in read_reports(file):
            path = resolve_inside(folder, record["image_path"], file)
            _add_case(collector, path_by_scan, part, path, record["findings"], record["impression"], None)
    return collector.finish()


def _read_official(folder: Path, root: Path) -> RawDataset:
    collector = CaseCollector(folder, "CT-RATE", OFFICIAL)
    path_by_scan: dict[str, str] = {}
    prefix = "" if root == folder else f"{root.name}/"
    require_entries(root, "metadata", description="CT-RATE as published (radiology_text_reports and metadata)")
    for part, (folder_name, reports, metadata, no_chest) in PARTS.items():
        if (root / f"{folder_name}_fixed").is_dir():
            folder_name = f"{folder_name}_fixed"
        rescale_by_volume = _read_rescales(root / "metadata" / metadata)
        no_chest_file = root / "metadata" / no_chest
        no_chest_volumes = set(no_chest_file.read_text(encoding="utf-8").split()) if no_chest_file.is_file() else set()
        columns = ("VolumeName", "Findings_EN", "Impressions_EN")
        for row in read_rows(root / "radiology_text_reports" / reports, columns):
            name = row["VolumeName"]
            if name in no_chest_volumes:
                collector.exclude("scans of another region", name)
                continue
            patient, scan, _ = _parse_volume_name(name)
            path = f"{prefix}{folder_name}/{patient}/{patient}_{scan}/{name}"
            texts = ["" if row[key] == NOT_GIVEN else row[key] for key in columns[1:]]
            rescale = None if folder_name.endswith("_fixed") else rescale_by_volume.get(name)
            _add_case(collector, path_by_scan, part, path, texts[0], texts[1], rescale)
    return collector.finish()


def _read_rescales(file: Path) -> dict[str, tuple[float, float]]:
    """Return volume -> slope and intercept of the conversion to HU."""
    scales = {}
    for row in read_rows(file, ("VolumeName", "RescaleSlope", "RescaleIntercept")):
        try:
            scales[row["VolumeName"]] = float(row["RescaleSlope"]), float(row["RescaleIntercept"])
        except ValueError as error:
            raise DataError(f"{file}: slope and intercept of {row['VolumeName']} are not numbers.") from error
    return scales


def _parse_volume_name(name: str) -> tuple[str, str, str]:
    match = VOLUME_NAME.match(name)
    if match is None:
        raise DataError(f"{name!r} is not a volume of CT-RATE; expected a name such as train_1_a_1.nii.gz.")
    return match[1], match[2], match[3]


def _add_case(
    collector: CaseCollector, path_by_scan: dict[str, str], part: str, path: str, text: str, summary: str,
    rescale: tuple[float, float] | None,
) -> None:  # fmt: skip
    patient, scan, _ = _parse_volume_name(path.rpartition("/")[2])
    key = f"{patient}_{scan}"
    if not (collector.folder / path).is_file():
        collector.exclude("listed volumes without a file", path, missing=True)
    elif not text and not summary:
        collector.exclude("scans without any text", path)
    elif key in path_by_scan:
        collector.exclude("further reconstructions of a scan", path)
    else:
        path_by_scan[key] = path
        collector.cases.append(RawCase(key, (path,), patient, part, findings=text, impression=summary, rescale=rescale))


SPEC = make_spec(
    "ct-rate",
    stand_in=StandIn(patients=120, acceptable=(0.63, None), baseline=0.57, ceiling=0.83, min_patients=8, minutes=2.0),
    generator=make,
    reader=read,
    layouts=(CARD, OFFICIAL),
)
