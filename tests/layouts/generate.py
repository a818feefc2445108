"""Draws the layout of a data folder with its truth, and writes it.

`draw_layout(seed)` draws the axes (see `axes.py` for how), the cases and the request, and knows the truth before anything is
written. `write_layout(layout, folder)` writes the files. Both give the same for the same seed. Odd seeds are for reports of how
well folders are read, even seeds for fitting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layouts import requests
from layouts.axes import CLASS_TASKS, IMAGE_TASKS, MARK_TABLES, MASK_TASKS, Axes, draw_axes
from layouts.carriers import SUFFIXES
from layouts.habits import HABIT_CHANGES
from layouts.layout import Case, Layout, case_files, distractor_files, image_file, truncated_cases
from layouts.shapes import Shape, label_map, place_shapes
from layouts.terms import DOMAINS, FOLDERS, QUANTITIES, SEVERITY, TERMS, Domain, Term
from layouts.truth import MASK_TOLERANCE, Box, Truth, TruthCase
from layouts.write import write_layout

__all__ = ["Case", "Layout", "draw_layout", "write_layout"]

SIDES = ("train", "val", "test")
OUTLINE_MASKS = ("coco", "yolo_outline", "labelme", "via", "cvat", "rtstruct")
"""Forms whose pixels depend on where a renderer puts the edge."""
HALF_SIZE_TOLERANCE = 0.05
SIDE_FORMS = (
    {"train": "train", "val": "val", "test": "test"},
    {"train": "training", "val": "validation", "test": "testing"},
)
REASONS = {
    "solvable": "",
    "two_targets": "two targets of equal standing differ, and nothing says which is meant",
    "two_label_tables": "two tables give different labels for the same images, and nothing says which holds",
    "other_anatomy": "the request names another organ than the folder",
    "other_modality": "the request names another kind of image than the folder",
    "other_classes": "the request names classes of which the folder has none",
    "more_classes": "the request names classes that the folder lacks",
    "no_targets": "the folder holds no targets",
    "unmatched_targets": "no target names an image of the folder",
    "no_images": "the targets name images that are not there",
    "test_unlabelled_but_wanted": "the request wants the folder's test part, which has no targets",
    "one_class_only": "all images are of one class",
}
FAR_CLASSES = ("fracture", "melanoma", "caries", "glioma", "polyp", "pneumothorax", "optic_disc", "platelet", "implant")
"""Classes that no word for another class means too."""
NESTED_ORGANS = ({"heart", "chest"}, {"breast", "chest"}, {"colon", "abdomen"}, {"kidney tissue", "abdomen"})
"""Organs of which one lies in the other."""
ASK_ONLY = ("two_targets", "two_label_tables")


def draw_layout(seed: int, *, plainness: float = 0.0, **fixed: str) -> Layout:
    """Draw a layout; the same for the same seed.

    Args:
        plainness: with which probability each axis has its most usual value; measurements draw with 0, which is uniform.
        fixed: values of axes, for looking at one kind of layout; measurements draw all.
    """
    rng = np.random.default_rng(seed)
    axes = draw_axes(rng, fixed, plainness)
    domain = DOMAINS[axes.domain]
    classes = _draw_classes(rng, axes, domain)
    class_names = _name_classes(axes, classes)
    quantity = _draw_quantity(rng, axes, domain)
    step = (
        40
        if rng.random() < 0.3 and not axes.is_volume and axes.carrier in SUFFIXES and axes.carrier != "nifti_2d"
        else 1
    )
    side_words = (
        {side: FOLDERS[side][axes.folder_language] for side in SIDES}
        if axes.class_naming == "local"
        else SIDE_FORMS[int(rng.integers(2))]
    )
    wrapper = FOLDERS["wrapper"][axes.folder_language if axes.class_naming == "local" else "en"]
    base = {"none": "", "one_folder": wrapper, "two_folders": f"{wrapper}/v1"}[axes.wrapping]
    layout = Layout(
        seed, axes, domain, classes, class_names, quantity, (), base, side_words,
        tuple((number + 1) * step for number in range(len(classes))), "", Truth(axes.task, (), "", ()),
    )  # fmt: skip
    layout = replace(layout, cases=_draw_cases(rng, layout))
    if change := HABIT_CHANGES.get(axes.habit):
        layout = change(np.random.default_rng([seed, 10**7]), layout)
        layout = replace(layout, class_names=_name_classes(axes, layout.classes))
    layout = _draw_request(rng, layout)
    return replace(layout, truth=_make_truth(layout))


# --- classes ---------------------------------------------------------------------------------------------------------


def _draw_classes(rng: np.random.Generator, axes: Axes, domain: Domain) -> tuple[str, ...]:
    if axes.task == "grading":
        return tuple(f"grade_{number}" for number in range(int(rng.integers(3, 5))))
    if axes.task == "diagnosis":
        pool, minimum, maximum = domain.findings, 2, 4
    elif axes.task == "multi_label":
        pool, minimum, maximum = tuple(name for name in domain.findings if name != "normal"), 2, 4
    elif axes.task == "report":
        pool, minimum, maximum = tuple(name for name in domain.findings if name != "normal"), 2, 3
    elif axes.task == "detection":
        pool, minimum, maximum = domain.objects, 1, 3
    elif axes.task in MASK_TASKS:
        pool, minimum, maximum = domain.structures, 1, 3
        if axes.mask_form in ("binary_255", "file_per_object"):
            maximum = 1
    else:
        return ("object",)  # what the drawn images show
    if axes.solvability in ("other_classes", "more_classes"):
        maximum = min(maximum, max(minimum, len(pool) - 1))
    count = int(rng.integers(min(minimum, len(pool)), min(maximum, len(pool)) + 1))
    positions = sorted(rng.permutation(len(pool))[:count])
    return tuple(pool[number] for number in positions)


def _name_classes(axes: Axes, classes: Sequence[str]) -> tuple[str, ...]:
    """Return how the folder calls its classes."""
    if axes.task == "grading":
        words = SEVERITY["en" if axes.class_naming == "english" else axes.folder_language]
        return tuple(str(number) if axes.class_naming == "codes" else words[number] for number in range(len(classes)))
    if classes == ("object",):
        return ("object",)
    if axes.class_naming == "codes":
        return tuple(map(str, range(len(classes))))
    if axes.class_naming == "local":
        return tuple(TERMS[name].words[axes.folder_language] for name in classes)
    if axes.class_naming == "abbreviation":
        return tuple(TERMS[name].abbreviation for name in classes)
    if axes.class_naming == "initials":
        names = [_initials(TERMS[name].words["en"]) for name in classes]
        return (
            tuple(names)
            if len(set(names)) == len(names)
            else tuple(TERMS[name].abbreviation.upper() for name in classes)
        )
    return tuple(TERMS[name].words["en"] for name in classes)


def _initials(words: str) -> str:
    parts = words.split()
    return "".join(part[0] for part in parts).upper() if len(parts) > 1 else words[:2].upper()


def _class_forms(layout: Layout) -> tuple[frozenset[str], ...]:
    """Return the words that mean each class: the folder's own, and those of the languages; codes only mean what a legend says."""
    forms = []
    for number, (key, name) in enumerate(zip(layout.classes, layout.class_names, strict=True)):
        words = {name}
        if key in TERMS:
            term = TERMS[key]
            words |= {*term.words.values(), term.synonym}
        elif key.startswith("grade_"):
            words |= {SEVERITY[language][number] for language in SEVERITY}
        forms.append({word.lower().replace("_", " ") for word in words if word})
    return tuple(frozenset(words) for words in forms)


def _draw_quantity(rng: np.random.Generator, axes: Axes, domain: Domain) -> str:
    if axes.task != "regression":
        return ""
    quantities = domain.quantities
    if axes.label_place == "name_part":
        quantities = tuple(name for name in quantities if QUANTITIES[name][4] == 0)
    return str(rng.choice(quantities))


# --- cases -----------------------------------------------------------------------------------------------------------


def _draw_cases(rng: np.random.Generator, layout: Layout) -> tuple[Case, ...]:
    axes = layout.axes
    count = int(rng.integers(60, 64)) if axes.is_volume else int(rng.integers(70, 150))
    patients = _draw_patients(rng, axes, count)
    sides = _draw_sides(rng, axes, [patient[0] for patient in patients])
    identifiers = _draw_identifiers(rng, axes, count)
    shape = _draw_size(rng, axes)
    patient_style = str(rng.choice(["P{:03d}", "{:04d}", "pat-{}", "S{:02d}x"]))
    classes_by_patient: dict[int, int] = {}
    share = _class_shares(axes, len(layout.classes))
    cases = []
    for number in range(count):
        person, site, site_number, counter = patients[number]
        patient = None
        if axes.patients == "two_columns":
            patient = f"{site}-{site_number}"
        elif axes.patients != "none":
            patient = patient_style.format(person + 1)
        first_class = classes_by_patient.setdefault(person, int(rng.choice(len(share), p=share)))
        target = _draw_target(rng, layout, first_class, number)
        size = shape if axes.sizes == "same" else _vary_size(rng, shape, is_series=axes.carrier == "dicom_series")
        case = Case(
            number=number,
            stem=identifiers[number],
            key="",
            directory="",
            side=sides[number],
            is_labelled=not (axes.split == "test_unlabelled" and sides[number] == "test"),
            patient=patient,
            site=site,
            patient_number=site_number,
            counter=counter,
            size=size,
            shapes=(),
            **target,
        )
        case = replace(case, shapes=_draw_shapes(rng, layout, case))
        cases.append(_name_case(layout, case, patient_style.format(person + 1)))
    return tuple(cases)


def _draw_patients(rng: np.random.Generator, axes: Axes, count: int) -> list[tuple[int, str, int, int]]:
    """Return of each case: person, site, number of the person at the site, number of the image of the person."""
    patients: list[tuple[int, str, int, int]] = []
    person = 0
    while len(patients) < count:
        images = int(rng.integers(2, 4)) if axes.images_per_patient == "several" else 1
        for image in range(images):
            patients.append((person, "AB"[person % 2], person // 2 + 1, image + 1))
        person += 1
    return patients[:count]


def _draw_sides(rng: np.random.Generator, axes: Axes, people: Sequence[int]) -> list[str | None]:
    """Draw the sides; a person has all images on one, unless the sides are to cross."""
    if axes.split == "none":
        return [None] * len(people)
    with_val = bool(rng.random() < 0.4) and axes.split not in ("test_unlabelled", "crossing")
    shares = [0.65, 0.1, 0.25] if with_val else [0.7, 0.0, 0.3]
    units = list(range(len(people))) if axes.split == "crossing" else list(people)
    side_of = {unit: str(rng.choice(SIDES, p=shares)) for unit in sorted(set(units))}
    for unit, side in zip(sorted(side_of), ("train", "test", "val" if with_val else "train"), strict=False):
        side_of[unit] = side  # none is empty
    return [side_of[unit] for unit in units]


def _draw_identifiers(rng: np.random.Generator, axes: Axes, count: int) -> list[str]:
    order = rng.permutation(count) + 1
    start = int(rng.integers(0, 300)) if axes.distractor != "coincidental_column" else 0
    if axes.id_style == "padded":
        return [f"{number + start:04d}" for number in order]
    if axes.id_style == "unpadded":
        return [str(number + start) for number in order]
    if axes.id_style == "lettered":
        word = str(rng.choice(["img", "case", "scan", "im"]))
        return [f"{word}{number + start:03d}" for number in order]
    if axes.id_style == "dated":
        return [
            f"20{number % 12 + 10}-{number % 9 + 1:02d}-{number % 27 + 1:02d}_{number + start:04d}" for number in order
        ]
    return [hashlib.sha256(f"{start}-{number}".encode()).hexdigest()[:10] for number in order]


def _draw_size(rng: np.random.Generator, axes: Axes) -> tuple[int, ...]:
    if axes.is_volume:
        slices = 5 if axes.carrier == "dicom_series" else int(rng.integers(6, 10))  # a file each takes a millisecond
        return (slices, 2 * int(rng.integers(18, 24)), 2 * int(rng.integers(18, 24)))
    return (2 * int(rng.integers(30, 50)), 2 * int(rng.integers(30, 50)))


def _vary_size(rng: np.random.Generator, size: Sequence[int], *, is_series: bool) -> tuple[int, ...]:
    *depth, rows, columns = size
    slices = [extent + int(rng.integers(0, 2 if is_series else 3)) for extent in depth]
    return (*slices, rows + 2 * int(rng.integers(0, 8)), columns + 2 * int(rng.integers(0, 8)))


def _class_shares(axes: Axes, count: int) -> list[float]:
    if axes.solvability == "one_class_only":
        return [1.0] + [0.0] * (count - 1)
    if axes.balance == "even" or count == 1:
        return [1.0 / count] * count
    return [0.55] + [0.45 / (count - 1)] * (count - 1)


def _draw_target(rng: np.random.Generator, layout: Layout, first_class: int, number: int) -> dict[str, Any]:
    axes, class_count = layout.axes, len(layout.classes)
    if axes.task in ("diagnosis", "grading"):
        if number < 2 * class_count and axes.images_per_patient == "one" and axes.solvability != "one_class_only":
            first_class = number % class_count
        second = (first_class + 1) % class_count if rng.random() < 0.25 else first_class
        return {"classes": (first_class,), "second_classes": (second,)}
    if axes.task in ("multi_label", "report"):
        present = [position for position in range(class_count) if rng.random() < 0.4]
        report = _draw_report(rng, layout, present) if axes.task == "report" else ""
        return {"classes": tuple(present), "report": report}
    if axes.task == "regression":
        _, _, low, high, decimals = QUANTITIES[layout.quantity]
        value: float = round(float(rng.uniform(low, high)), decimals)
        second = round(value + float(rng.normal(0, 0.1 * (high - low))), decimals)
        return {"value": value, "second_value": second}
    if axes.task == "survival":
        return {"value": round(float(rng.uniform(1, 80)), 1), "event": bool(rng.random() < 0.6)}
    if axes.task == "detection":
        minimum = (
            0 if axes.box_format in ("coco", "yolo", "voc", "kitti", "labelme", "cvat") and rng.random() < 0.1 else 1
        )
        objects = int(rng.integers(1, 5)) if minimum else 0
        return {"classes": tuple(int(rng.integers(class_count)) for _ in range(objects))}
    present = [position for position in range(class_count) if position == number % class_count or rng.random() < 0.7]
    repeated = [position for position in present for _ in range(int(rng.integers(1, 3)))]
    return {"classes": tuple(repeated)}


def _draw_report(rng: np.random.Generator, layout: Layout, present: Sequence[int]) -> str:
    language = layout.language
    sentences = [str(rng.choice(requests.REPORT_OPENINGS[language])).format(number=int(rng.integers(2, 30)))]
    if not present:
        sentences.append(str(rng.choice(requests.REPORT_NORMAL[language])))
    for position in present:
        sentence = str(rng.choice(requests.REPORT_FINDING[language]))
        finding = TERMS[layout.classes[position]].words[language]
        place = str(rng.choice(requests.PLACES[language]))
        sentences.append(sentence.format(finding=finding, place=place, anatomy=layout.domain.anatomy[language]))
    sentences.append(str(rng.choice(requests.REPORT_ENDS[language])).format(number=int(rng.integers(2, 13))))
    return " ".join(sentences)


def _draw_shapes(rng: np.random.Generator, layout: Layout, case: Case) -> tuple[Shape, ...]:
    """Draw what the image shows of its target."""
    axes = layout.axes
    is_round = axes.mask_form not in (*OUTLINE_MASKS, "other_size") and axes.task != "detection"
    scale = 0.8
    classes: Sequence[int] = case.classes
    if axes.task == "grading":
        scale, classes = 0.35 + 0.15 * case.classes[0], (0, 0)
    elif axes.task in ("regression", "survival"):
        low, high = QUANTITIES[layout.quantity][2:4] if layout.quantity else (0.0, 80.0)
        scale, classes = 0.3 + 0.6 * ((case.value or 0.0) - low) / (high - low), (0, 0)
    elif axes.task == "diagnosis" and layout.classes[case.classes[0]] == "normal":
        classes = ()
    is_notched = axes.mask_form in OUTLINE_MASKS  # outlines of boxes are read as boxes
    return place_shapes(
        rng, case.size, list(classes)[:9], is_round=is_round, is_notched=is_notched, scale=min(1.0, max(0.2, scale))
    )


def _name_case(layout: Layout, case: Case, patient_word: str) -> Case:
    """Return a case with stem, key and directory."""
    axes = layout.axes
    stem = case.stem
    if axes.join == "two_columns":
        stem = f"{patient_word}_{case.counter}"
    elif axes.patients == "name_part":
        stem = f"{patient_word}_{case.counter}" if axes.images_per_patient == "several" else f"{patient_word}_{stem}"
    if axes.label_place == "name_part" and axes.solvability != "no_targets":
        stem = f"{stem}_{_label_in_name(layout, case)}"
    if axes.split == "name_part" and case.side is not None:
        stem = f"{stem}_{layout.side_words[case.side]}"
    key = stem
    if axes.join == "id_without_zeros":
        key = str(int(stem))
    elif axes.join == "prefix":
        stem = f"IMG_{stem}"
    elif axes.join == "suffix":
        stem = f"{stem}_v2" if not axes.is_volume else f"{stem}_axial"
    directory = _directory_of(layout, case, patient_word)
    case = replace(case, stem=stem, directory=directory)
    if axes.join in ("file_name", "path"):
        file = image_file(layout, case)
        key = file if axes.join == "path" else file.rpartition("/")[2]
        if axes.join == "file_name" and axes.mask_place == "case_folder":
            key = stem
    return replace(case, key=key)


def _label_in_name(layout: Layout, case: Case) -> str:
    if layout.axes.task == "regression":
        return f"{layout.quantity}{case.value:.0f}"
    name = layout.class_names[case.classes[0]].replace(" ", "-")
    return f"{'grade' if layout.axes.task == 'grading' else 'class'}{name}" if name.isdigit() else name


def _directory_of(layout: Layout, case: Case, patient_word: str) -> str:
    axes = layout.axes
    parts: list[str] = []
    if axes.split in ("folders", "crossing", "test_unlabelled") and case.side is not None:
        parts.append(layout.side_words[case.side])
    has_class_folder = axes.label_place == "class_folders" and case.is_labelled and axes.solvability != "no_targets"
    if not has_class_folder and (axes.task not in ("diagnosis", "grading") or layout.seed % 4):
        parts.append(layout.folder_word("images"))
    if has_class_folder:
        name = layout.class_names[case.classes[0]].replace(" ", "_")
        parts.append(f"grade_{name}" if axes.task == "grading" and name.isdigit() and layout.seed % 3 else name)
    if axes.patients == "folder":
        parts.append(patient_word)
    return "/".join(parts)


# --- request and truth -----------------------------------------------------------------------------------------------


def _draw_request(rng: np.random.Generator, layout: Layout) -> Layout:
    """Return a layout with its request."""
    axes, domain = layout.axes, layout.domain
    kind = "segmentation" if axes.task in MASK_TASKS else axes.task
    language = axes.request_language
    imaging_of = domain
    classes: list[Term] = [TERMS[name] for name in layout.classes[: layout.n_targets] if name in TERMS]
    if axes.solvability == "other_anatomy":
        candidates = [
            candidate
            for candidate in DOMAINS.values()
            if candidate.anatomy["en"] not in (domain.anatomy["en"], "kidney tissue") and candidate.anatomy["en"] != "macula"
            and candidate.key != "retina"
        ]  # fmt: skip
        domain = candidates[int(rng.integers(len(candidates)))]
        pool = domain.structures if axes.task in MASK_TASKS else domain.findings
        classes = [TERMS[name] for name in pool[: max(2, min(3, len(pool)))]]
    elif axes.solvability == "other_modality":
        candidates = [candidate for candidate in DOMAINS.values() if candidate.imaging["en"] != domain.imaging["en"]]
        imaging_of = candidates[int(rng.integers(len(candidates)))]
    elif axes.solvability in ("other_classes", "more_classes"):
        absent = _draw_absent_classes(rng, layout)
        classes = absent if axes.solvability == "other_classes" else [*classes, *absent[:1]]
        if axes.habit == "further_structures":
            classes = absent[:1]
    images = requests.describe_images(domain, language, imaging_of)
    request = requests.make_request(
        kind, language, axes.request_wording, images, classes if axes.task != "report" else (), quantity=layout.quantity,
        variant=int(rng.integers(2)),
    )  # fmt: skip
    if axes.solvability == "test_unlabelled_but_wanted":
        request += requests.OWN_TEST[language]
    return replace(layout, request=request, requested_organ=domain.anatomy["en"])


def _draw_absent_classes(rng: np.random.Generator, layout: Layout) -> list[Term]:
    """Return two classes that the folder does not have, of the same organ as far as there are some."""
    domain = layout.domain
    domain_terms = {*domain.findings, *domain.structures, *domain.objects}
    pool = {"detection": domain.objects, "diagnosis": domain.findings, "multi_label": domain.findings}
    near = [name for name in pool.get(layout.axes.task, domain.structures) if name not in (*layout.classes, "normal")]
    far = [name for name in FAR_CLASSES if name not in domain_terms]
    names = [*near, *(str(name) for name in rng.choice(far, 2, replace=False))][:2]
    return [TERMS[name] for name in names]


def _make_truth(layout: Layout) -> Truth:
    axes = layout.axes
    task = "segmentation" if axes.task in MASK_TASKS else axes.task
    outcomes: tuple[str, ...] = ("proposed",)
    if axes.habit == "images_outside_list" and axes.box_format in MARK_TABLES:
        outcomes = ("proposed", "ask")  # nothing says whether images without a row were looked at
    if axes.solvability != "solvable":
        outcomes = ("ask",) if axes.solvability in ASK_ONLY else ("ask", "refuse")
    names_classes = axes.task in CLASS_TASKS and axes.request_wording != "task_only"
    if {layout.requested_organ, layout.domain.anatomy["en"]} in NESTED_ORGANS and not names_classes:
        outcomes = ("proposed", *outcomes)  # images of the heart are images of the chest, and nothing else is said
    reason = (
        "the list of annotations does not name it"
        if axes.habit == "images_outside_list"
        else "its test part has no targets"
    )
    exclusions = {file: reason for case in layout.cases if not case.is_labelled for file in case_files(layout, case)}
    exclusions |= distractor_files(layout)
    usable = [case for case in layout.cases if case.is_labelled]
    if axes.distractor == "truncated":
        broken = truncated_cases(layout)
        exclusions |= {file: "truncated" for case in broken for file in case_files(layout, case)}
        usable = [case for case in usable if case not in broken]
    side_rule = "own" if axes.split not in ("none", "test_unlabelled") else "free"
    return Truth(
        task=task,
        outcomes=outcomes,
        reason=REASONS[axes.solvability],
        cases=tuple(_make_truth_case(layout, case) for case in usable),
        class_forms=()
        if layout.classes == ("object",) or task == "report"
        else _class_forms(layout)[: layout.n_targets],
        exclusions=exclusions,
        side_rule="own_or_patients" if axes.split == "crossing" else side_rule,
    )


def _make_truth_case(layout: Layout, case: Case) -> TruthCase:
    task = layout.axes.task
    areas: dict[int, float] = {}
    tolerance: dict[int, float] = {}
    boxes: tuple[Box, ...] = ()
    if task in MASK_TASKS:
        labels = label_map(case.size, case.shapes)
        counts = np.bincount(labels.ravel(), minlength=len(layout.classes) + 1)
        areas = {
            position: float(counts[position + 1] / labels.size)
            for position in range(layout.n_targets)
            if counts[position + 1]
        }
        tolerance = {position: _area_tolerance(layout, case, position) for position in areas}
    elif task == "detection":
        shapes = [shape for shape in case.shapes if shape.class_index < layout.n_targets]
        boxes = tuple((shape.class_index, tuple(map(float, shape.box))) for shape in shapes)  # type: ignore[misc]
    return TruthCase(
        id=f"{case.number:03d}",
        files=case_files(layout, case),
        classes=case.classes if task in IMAGE_TASKS else (),
        value=case.value,
        event=case.event,
        areas=areas,
        area_tolerance=tolerance,
        boxes=boxes,
        report=case.report,
        patient=case.patient,
        side=case.side if layout.axes.split != "test_unlabelled" else None,
    )


def _area_tolerance(layout: Layout, case: Case, position: int) -> float:
    """Return the share of a class's area that may differ: 1 %, for outlines half a pixel along the edge."""
    if layout.axes.mask_form == "other_size":
        return HALF_SIZE_TOLERANCE
    if layout.axes.mask_form not in OUTLINE_MASKS:
        return MASK_TOLERANCE
    edge, area = 0.0, 0.0
    for shape in case.shapes:
        if shape.class_index == position:
            x0, y0, x1, y1 = shape.box
            edge += 2 * (x1 - x0 + y1 - y0)
            area += (x1 - x0) * (y1 - y0)
    return max(MASK_TOLERANCE, 0.6 * edge / area)
