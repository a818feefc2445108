"""IU-Xray: chest X-rays with de-identified reports in CSV.

Planted signal: a large heart, an effusion and an opacity, with sides, in the image and in the report; 35 % are normal.
Planted faults: one or two views per study, studies without findings, without impression or without both, `XXXX` for
removed identifiers, commas and quotes in the text, a row without a file. The official layout (as on Kaggle) has reports
and projections in two tables; the card's has one row per image. The archives of Open-i can be read too.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

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
    save_picture,
)
from m3b.bench.datasets.layout_reading import (
    CaseCollector,
    get_only_file,
    list_files,
    list_folders,
    read_rows,
    relative_path,
    require_entries,
)
from m3b.bench.datasets.report_text import bleu_1, compose_text
from m3b.bench.datasets.shapes import Blob, Floats, Random, noise, texture, to_bytes
from m3b.errors import DataError

SENTENCES = {
    "effusion": (
        "Blunting of the {0} costophrenic XXXX with layering fluid, suggesting a moderate {0} pleural effusion.",
        "Moderate {0} pleural effusion, obscuring the {0} hemidiaphragm.",
    ),
    "no effusion": ("No pleural effusion.", "There is no pneumothorax or pleural effusion."),
    "opacity": (
        'Patchy airspace opacity projects over much of the {0} midlung zone, with "fluffy" ill-defined margins.',
        "There is {0} midlung opacity.",
    ),
    "clear": ("Lungs are clear.", "The lungs are clear, without focal consolidation."),
    "heart": (
        "Cardiac silhouette markedly enlarged, its transverse diameter exceeds half the thoracic width.",
        "There is cardiomegaly.",
    ),
    "no heart": ("Heart size normal.", "The cardiac silhouette is within normal limits."),
    "bones": ("No acute bony abnormality.", "The XXXX are intact."),
}
SUMMARY_SENTENCES = {
    "effusion": ("{} pleural effusion.",), "opacity": ("{} lung opacity, consider pneumonia.",),
    "heart": ("Cardiomegaly.",), "normal": ("No acute cardiopulmonary abnormality.",),
}  # fmt: skip
REPORTS_FILE, PROJECTIONS_FILE = "indiana_reports.csv", "indiana_projections.csv"
OPENI_FOLDER = "ecgen-radiology"
SIDE = 256
IMAGE_COLUMNS = ("image_id", "image", "filename", "id", "image_path")
"""Possible names of the image column in the single table of the card layout."""


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: two of three studies have a lateral view too."""
    random = np.random.default_rng(options.seed)
    image_folder = options.folder / "images" / ("images_normalized" if options.layout == OFFICIAL else "")
    reports: list[list[object]] = []
    views: list[list[object]] = []
    card_rows: list[list[object]] = []
    references, usual_texts = [], []
    uids = np.sort(random.permutation(3999)[: options.patients + 1] + 1)
    for number, uid in enumerate(uids[:-1]):
        facts = draw_facts(random)
        text, summary = (
            compose_text(SENTENCES, list_findings(facts), random),
            compose_text(SUMMARY_SENTENCES, facts or ["normal"]).capitalize(),
        )
        text, summary = _blank_texts(number, text, summary)
        if text:
            references.append(text)
            usual_texts.append(compose_text(SENTENCES, list_findings(facts)))
        body_seed = int(random.integers(1 << 31))
        for view in ("Frontal", "Lateral")[: 1 if number % 3 == 2 else 2]:
            name = f"{uid}_IM-{uid % 2400:04d}-{1001 if view == 'Frontal' else 2001}.dcm.png"
            save_picture(image_folder / name, draw(np.random.default_rng(body_seed), random, facts, view))
            views.append([uid, name, view])
            card_rows.append([name, text, summary])
        mesh = "normal" if not facts else ";".join(facts)
        reports.append([uid, mesh, mesh, "Xray Chest PA and Lateral", "XXXX-year-old", "None.", text, summary])
    missing_image = f"{uids[-1]}_IM-0001-1001.dcm.png"
    reports.append([uids[-1], "normal", "normal", "Xray Chest", "", "", "The lungs are clear.", "Normal."])
    views.append([uids[-1], missing_image, "Frontal"])
    card_rows.append([missing_image, "The lungs are clear.", "Normal."])
    if options.layout == OFFICIAL:
        header = ("uid", "MeSH", "Problems", "image", "indication", "comparison", "findings", "impression")
        save_csv(options.folder / REPORTS_FILE, header, reports)
        save_csv(options.folder / PROJECTIONS_FILE, ("uid", "filename", "projection"), views)
    else:
        save_csv(options.folder / "reports.csv", ("image_id", "findings", "impression"), card_rows)
    empty_studies = sum(1 for number in range(options.patients) if _blank_texts(number, "x", "x") == ("", ""))
    planted_faults = ("studies of one or two views", "empty findings", "empty impressions", "studies without any text", "XXXX",
           "a row without a file", "commas and quotes in the text")  # fmt: skip
    return GeneratedSet(
        options.patients - empty_studies,
        options.patients - empty_studies,
        bleu_1(references, usual_texts),
        planted_faults,
    )


def _blank_texts(number: int, text: str, summary: str) -> tuple[str, str]:
    """Return the texts with some removed: findings in every eighth study, findings or both in others."""
    return "" if number % 8 == 5 else text, "" if number % 48 in (5, 30) else summary


def draw_facts(random: Random) -> list[str]:
    """Return the facts of one study; 35 % have none."""
    if random.random() < 0.35:
        return []
    finding_names = [name for name in ("effusion", "opacity", "heart") if random.random() < 0.5] or ["opacity"]
    return [name if name == "heart" else f"{name}:{random.choice(['left', 'right'])}" for name in finding_names]


def list_findings(facts: list[str]) -> list[str]:
    """Return the facts that the report mentions, present or absent."""
    fact_by_name = {fact.partition(":")[0]: fact for fact in facts}
    return [
        fact_by_name.get("heart", "no heart"),
        fact_by_name.get("opacity", "clear"),
        fact_by_name.get("effusion", "no effusion"),
        "bones",
    ]


def draw(body: Random, scan: Random, facts: list[str], view: str) -> NDArray[np.uint8]:
    """Return a frontal or lateral chest X-ray `(256, 256)`; the patient's left is on the right of a frontal view."""
    sides = {name: 1 if side == "left" else -1 for name, _, side in (fact.partition(":") for fact in facts)}
    shape = (SIDE, SIDE)
    is_lateral = view == "Lateral"
    image: Floats = np.full(shape, 0.6, dtype=np.float32)
    for side in (0,) if is_lateral else (-1, 1):
        position = (120 + body.uniform(-3, 3), 128 + side * 52)
        Blob(shape, position, (88, 60 if is_lateral else 40), random=body, rough=0.02).add(image, -0.34, sharp=8)
    size = (1.4 if "heart" in facts else 1.0) * body.uniform(0.95, 1.05)
    Blob(shape, (160, 142), (40 * size, 36 * size)).add(image, 0.24, sharp=8)
    if "effusion" in sides:
        x = 128 if is_lateral else 128 + sides["effusion"] * 54
        Blob(shape, (200, x), (30, 44)).add(image, 0.34, sharp=6)
    if "opacity" in sides:
        x = 128 if is_lateral else 128 + sides["opacity"] * 52
        Blob(shape, (100 + body.uniform(-15, 15), x), (26, 22), random=body, rough=0.1).add(image, 0.3, sharp=4)
    rows = np.arange(SIDE, dtype=np.float32)[:, None]
    image += 0.02 * np.sin(rows / body.uniform(3.6, 4.4) + body.uniform(0, 6))
    return to_bytes(image + texture(scan, shape, 0.02, cells=10) + noise(scan, shape, 0.03))


def read(folder: Path) -> RawDataset:
    """Read one case per study, with frontal views first; studies without text or image are excluded."""
    if (folder / OPENI_FOLDER).is_dir():
        return _read_openi(folder)
    if (folder / REPORTS_FILE).is_file() or (folder / PROJECTIONS_FILE).is_file():
        return _read_official(folder)
    require_entries(folder, "images", description="IU-Xray (a folder images and one CSV)")
    table = get_only_file(folder, ".csv", "image names, findings and impressions")
    columns = set(read_rows(table, ("findings",))[0]) if read_rows(table, ("findings",)) else set()
    name = next((name for name in IMAGE_COLUMNS if name in columns), None)
    summary = next((name for name in ("impression", "impressions") if name in columns), None)
    if name is None or summary is None:
        raise DataError(
            f"{table} needs a column with the image's name ({', '.join(IMAGE_COLUMNS)}) and an impression column."
        )
    studies: dict[str, tuple[list[str], str, str]] = {}
    for row in read_rows(table, (name, "findings", summary)):
        uid = uid_of(row[name])
        studies.setdefault(uid, ([], row["findings"], row[summary]))[0].append(Path(row[name]).name)
    return _collect(folder, CARD, studies)


def _read_official(folder: Path) -> RawDataset:
    require_entries(
        folder, REPORTS_FILE, PROJECTIONS_FILE, "images", description="IU-Xray as on Kaggle (two tables and images)"
    )
    views: dict[str, list[tuple[str, str]]] = {}
    for row in read_rows(folder / PROJECTIONS_FILE, ("uid", "filename", "projection")):
        views.setdefault(row["uid"], []).append((row["projection"], row["filename"]))
    studies = {}
    for row in read_rows(folder / REPORTS_FILE, ("uid", "findings", "impression")):
        names = [name for _, name in sorted(views.get(row["uid"], []))]
        studies[row["uid"]] = (names, row["findings"], row["impression"])
    return _collect(folder, OFFICIAL, studies)


def _read_openi(folder: Path) -> RawDataset:
    """Read the archives of Open-i: one XML report per study, which names its images."""
    studies = {}
    for file in list_files(folder / OPENI_FOLDER, ".xml"):
        try:
            root = ElementTree.parse(file).getroot()  # nosec B314  # a data set that the user has named
        except (ElementTree.ParseError, OSError) as error:
            raise DataError(f"The report {file} cannot be read as XML: {error}.") from error
        texts = {part.get("Label", ""): (part.text or "").strip() for part in root.iter("AbstractText")}
        names = sorted(f"{image.get('id')}.png" for image in root.iter("parentImage"))
        studies[file.stem] = (names, texts.get("FINDINGS", ""), texts.get("IMPRESSION", ""))
    image_folder = folder / "NLMCXR_png" if (folder / "NLMCXR_png").is_dir() else folder
    return _collect(folder, "openi", studies, image_folder)


def uid_of(name: str) -> str:
    """Return the study of an image: `1` for `1_IM-0001-4001.dcm.png` and for `CXR1_1_IM-0001-3001.png`.

    Raises:
        DataError: the name does not begin with a number.
    """
    match = re.match(r"(?:CXR)?(\d+)_", Path(name).name)
    if match is None:
        raise DataError(
            f"The image name {name!r} does not begin with the number of the study, as in 1_IM-0001-4001.dcm.png."
        )
    return match[1]


def _collect(
    folder: Path, layout: str, studies: dict[str, tuple[list[str], str, str]], images: Path | None = None
) -> RawDataset:
    collector = CaseCollector(folder, "IU-Xray", layout)
    images = images or folder / "images"
    image_folders = [images, *list_folders(images)]
    path_by_name = {
        file.name: relative_path(folder, file)
        for image_folder in image_folders
        for file in list_files(image_folder, ".png", ".jpg")
    }
    for uid, (names, text, summary) in studies.items():
        image_paths = tuple(path_by_name[name] for name in names if name in path_by_name)
        if not image_paths:
            collector.exclude("studies without an image", uid, missing=True)
        elif not text and not summary:
            collector.exclude("studies without any text", uid)
        else:
            collector.cases.append(RawCase(uid, image_paths, uid, findings=text, impression=summary))
    return collector.finish()


SPEC = make_spec(
    "iu-xray",
    stand_in=StandIn(patients=120, acceptable=(0.63, None), baseline=0.57, ceiling=0.85, min_patients=10, minutes=2.0),
    generator=make,
    reader=read,
    layouts=(CARD, OFFICIAL),
)
