"""Writes the files of a drawn layout."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from layouts import masks, requests
from layouts.annotations import ANNOTATION_WRITERS, BOX_COLUMNS, OUTLINE_WRITERS, AnnotatedImage, box_cells
from layouts.axes import CASE_ARRAYS, DICOM, MASK_TASKS, SETS, UNUSED, VOLUMES
from layouts.carriers import (
    MASK_CARRIERS,
    Header,
    pack_folder,
    to_json,
    to_png_bytes,
    write_image,
    write_parquet,
    write_set,
    write_webdataset,
)  # fmt: skip
from layouts.layout import (
    ARCHIVES,
    COPIED_CASES,
    OTHER_IMAGES,
    PREVIEWED_CASES,
    SCOUTED_CASES,
    Case,
    Layout,
    image_file,
    other_domain,
    truncated_cases,
)  # fmt: skip
from layouts.shapes import Shape, draw_pixels, label_map, place_shapes
from layouts.tables import Cell, write_table
from layouts.terms import COLUMNS, QUANTITIES, TERMS

Array = NDArray[Any]
ORIENTATIONS = (1, 6, 3, 8)
"""EXIF orientations that files take in turn."""
MASK_SUFFIXES = ("_mask", "_seg", "-label", "_gt")
NORMAL = TERMS["normal"]


def write_layout(layout: Layout, folder: Path) -> None:
    """Write all files of a layout into an empty or new folder."""
    _Writer(layout, folder).write()


class _Writer:
    """Writes one layout.

    Args:
        layout: what is written.
        folder: the root.
    """

    def __init__(self, layout: Layout, folder: Path) -> None:
        self.layout, self.axes, self.root = layout, layout.axes, folder
        self.base = folder / layout.base
        self.notes: list[str] = []
        self.rng = np.random.default_rng([layout.seed, 10**6])
        self.files: dict[int, list[Path]] = {}

    def write(self) -> None:
        self.base.mkdir(parents=True, exist_ok=True)
        self.write_images()
        if self.axes.task in MASK_TASKS and self.axes.mask_form != "inside" and self.has_targets:
            self.write_masks()
        if self.axes.task == "detection" and self.has_targets:
            self.write_boxes()
        self.write_labels()
        self.write_patients_and_sides()
        if self.axes.legend != UNUSED and self.has_targets:
            self.write_legend()
        self.write_distractor()
        self.write_readme()
        if self.axes.carrier in ARCHIVES:
            pack_folder(self.base, self.base / ARCHIVES[self.axes.carrier])

    @property
    def has_targets(self) -> bool:
        return self.axes.solvability != "no_targets"

    @property
    def labelled(self) -> list[Case]:
        return [case for case in self.layout.cases if case.is_labelled]

    # --- images ---------------------------------------------------------------------------------------------------

    def pixels(self, case: Case) -> Array:
        is_colour = self.layout.domain.colour
        return draw_pixels(case.rng(self.layout.seed), case.size, case.shapes, is_colour=is_colour)

    def labels(self, case: Case) -> Array:
        """Return the values of a mask."""
        table = np.array([0, *self.layout.values], np.uint8)
        return table[label_map(case.size, case.shapes)]

    def write_images(self) -> None:
        if self.axes.carrier in SETS:
            self.write_sets()
        elif self.axes.solvability != "no_images":
            for case in self.layout.cases:
                base = self.base / image_file(self.layout, case)
                suffix = self._suffix()
                base = base.with_name(base.name.removesuffix(suffix)) if suffix else base
                self.files[case.number] = write_image(base, self.pixels(case), self.axes.carrier, self.header(case))

    def _suffix(self) -> str:
        from layouts.carriers import SUFFIXES

        return SUFFIXES[self.axes.carrier]

    def header(self, case: Case) -> Header:
        axes = self.axes
        tags: dict[str, Any] = {}
        items: dict[str, Any] = {}
        if axes.carrier in DICOM:
            tags = {
                "Modality": self.layout.domain.modality,
                "BodyPartExamined": self.layout.domain.anatomy["en"].upper(),
            }
            if axes.patients == "dicom_tag":
                tags["PatientID"] = case.patient or ""
            if axes.label_place == "header_tag" and self.has_targets:
                is_age = axes.task == "regression" and self.layout.quantity == "age"
                tags |= {"PatientAge": f"{case.value:03.0f}Y"} if is_age else {"ImageComments": str(self.label(case))}
        if axes.carrier in CASE_ARRAYS and self.has_targets:
            if axes.label_place == "inside":
                items["label" if axes.task != "regression" else self.layout.quantity] = self.label(case)
            if axes.mask_form == "inside":
                items["mask"] = self.labels(case)
        orientation = ORIENTATIONS[case.number % 4] if axes.carrier == "jpeg_exif" else 1
        return Header(tags, items, orientation, f"{self.layout.seed}-{case.number}")

    def label(self, case: Case, *, second: bool = False) -> Cell:
        """Return the target as a cell."""
        axes, names = self.axes, self.layout.class_names
        if axes.task in ("diagnosis", "grading"):
            name = names[(case.second_classes if second else case.classes)[0]]
            return int(name) if name.isdigit() else name
        if axes.task == "regression":
            value = case.second_value if second else case.value
            return int(value or 0) if not QUANTITIES[self.layout.quantity][4] else value
        if axes.task == "multi_label":
            mark = "|" if self.layout.seed % 2 else "; "
            return (
                mark.join(names[position] for position in case.classes) or NORMAL.words[self.layout.language_of_names]
            )
        return case.report

    def write_sets(self) -> None:
        by_side: dict[str, list[Case]] = {}
        for case in self.layout.cases:
            side = self.layout.side_words[case.side] if self.axes.split == "set_files" and case.side else ""
            by_side.setdefault(side, []).append(case)
        for side, cases in by_side.items():
            if self.axes.carrier in ("parquet", "webdataset"):
                self._write_hub_set(side, cases)
            else:
                arrays = {"images": np.stack([self.pixels(case) for case in cases]), **self._set_targets(cases)}
                if self.axes.patients == "inside":
                    arrays["patients"] = [case.patient for case in cases]
                write_set(self.base, side, self.axes.carrier, arrays)

    def _set_targets(self, cases: Sequence[Case]) -> dict[str, Any]:
        if not self.has_targets:
            return {}
        task, names = self.axes.task, self.layout.class_names
        if task in MASK_TASKS:
            return {"masks": np.stack([self.labels(case) for case in cases])}
        if task == "multi_label":
            flags = np.zeros((len(cases), len(names)), np.uint8)
            for row, case in enumerate(cases):
                flags[row, list(case.classes)] = 1
            return {"labels": flags, "classes": list(names)}
        if task == "survival":
            return {
                "time": np.array([case.value for case in cases]),
                "event": np.array([int(bool(case.event)) for case in cases]),
            }
        key = self.layout.quantity if task == "regression" else "labels"
        labels = [self.label(case) for case in cases]
        return {key: labels if isinstance(labels[0], str) else np.array(labels)}

    def _write_hub_set(self, side: str, cases: Sequence[Case]) -> None:
        rows = [self._hub_row(case) for case in cases]
        names, images = [case.stem for case in cases], [self.pixels(case) for case in cases]
        if self.axes.carrier == "parquet":
            columns = {key: [row[key] for row in rows] for key in rows[0]}
            write_parquet(self.base / f"data/{side or 'train'}-00000-of-00001.parquet", names, images, columns)
            return
        members: list[dict[str, str]] = []
        for row in rows:
            if set(row) == {"label"} and isinstance(row["label"], int):
                members.append({"cls": str(row["label"])})
            elif set(row) == {"report"}:
                members.append({"txt": str(row["report"])})
            else:
                members.append({"json": json.dumps(row, ensure_ascii=False)})
        write_webdataset(self.base / f"{side or 'shard'}-000000.tar", names, images, members)

    def _hub_row(self, case: Case) -> dict[str, Any]:
        row: dict[str, Any] = {}
        task = self.axes.task
        if self.has_targets:
            if task == "survival":
                row |= {"time": case.value, "event": int(bool(case.event))}
            elif task == "multi_label":
                row["labels"] = [self.layout.class_names[position] for position in case.classes]
            elif task == "report":
                row["report"] = case.report
            else:
                row[self.layout.quantity or "label"] = self.label(case)
        if self.axes.patients == "inside":
            row["patient"] = case.patient
        return row

    # --- masks and boxes ------------------------------------------------------------------------------------------

    def annotation_stem(self, case: Case) -> str:
        """Return what annotations call a case; if they are to match nothing, a name that no file has."""
        if self.axes.solvability == "unmatched_targets":
            return "q" + hashlib.sha256(case.stem.encode()).hexdigest()[:9]
        return case.stem

    def mask_folder(self, case: Case, variant: str = "") -> Path:
        word = self.layout.folder_word("images")
        parts = [
            self.layout.folder_word("masks") + variant if part == word else part for part in case.directory.split("/")
        ]
        return self.base.joinpath(*parts)

    def mask_base(self, case: Case, class_name: str = "", variant: str = "") -> Path:
        """Return the path of a mask without suffix.

        Args:
            class_name: of a mask of one class among several.
            variant: ending of the name of another set of masks.
        """
        place, stem, folder = self.axes.mask_place, self.annotation_stem(case), self.mask_folder(case, variant)
        word = class_name.replace(" ", "_")
        if self.axes.mask_form == "file_per_object":
            return folder / stem
        if place == "case_folder":
            return self.base / case.directory / stem / f"{word or 'mask'}{variant}"
        suffix = MASK_SUFFIXES[self.layout.seed % len(MASK_SUFFIXES)]
        if place == "suffix_beside":
            return self.base / case.directory / f"{stem}{'_' + word if word else suffix}{variant}"
        if place == "suffix_folder":
            return folder / f"{stem}{'_' + word if word else suffix}"
        if word and place == "prefix_folder":
            return folder / f"{word}_{stem}"
        folder = folder / word if word else folder
        if place == "prefix_folder":
            return folder / f"seg_{stem}"
        if place == "number_only":
            return folder / f"lab{'_'.join(re.findall(r'[0-9]+', stem))}"
        return folder / stem

    def write_masks(self) -> None:
        form = self.axes.mask_form
        if form in OUTLINE_WRITERS:
            images = [self.annotated(case) for case in self.labelled]
            OUTLINE_WRITERS[form](self.base / self.layout.folder_word("annotations"), images, self.layout.class_names)
            return
        if form == "rle":
            self._write_run_lengths()
            return
        for case in self.labelled:
            if self.axes.solvability == "two_targets":
                self._write_mask(case, "_reader1")
                self._write_mask(self._second_reading(case), "_reader2")
            else:
                self._write_mask(case)
        if self.axes.distractor == "second_masks":
            for case in self.labelled:
                self._write_mask(self._second_reading(case), "_auto_uncorrected")

    def _second_reading(self, case: Case) -> Case:
        """Return a case whose shapes lie a little elsewhere."""

        def move(shape: Shape) -> Shape:
            *leading, end = shape.high
            return replace(shape, high=(*leading, end - 2)) if end - shape.low[-1] > 4 else shape

        return replace(case, shapes=tuple(map(move, case.shapes)))

    def _write_mask(self, case: Case, variant: str = "") -> None:
        form, labels, names = self.axes.mask_form, self.labels(case), self.layout.class_names
        carrier = MASK_CARRIERS.get(self.axes.carrier, self.axes.carrier)
        base = self.mask_base(case, variant=variant)
        positions = label_map(case.size, case.shapes)
        white = 255 if carrier in ("png", "bmp", "tiff", "tiff_stack", "slice_folder") and form != "ids" else 1
        header = Header(key="mask")
        if form == "ids":
            write_image(base, labels, carrier, header)
        elif form == "binary_255":
            write_image(base, ((labels > 0) * white).astype(np.uint8), carrier, header)
        elif form == "file_per_class":
            for position, name in enumerate(names):
                one_class = ((positions == position + 1) * white).astype(np.uint8)
                write_image(self.mask_base(case, name, variant), one_class, carrier, header)
        elif form == "file_per_object":
            for number, shape in enumerate(case.shapes):
                file = base / str(number) if self.layout.seed % 2 else base.with_name(f"{base.name}_{number}")
                write_image(file, (shape.mask(case.size) * 255).astype(np.uint8), "png")
        elif form == "palette_void":
            masks.write_palette(base.with_name(base.name + ".png"), positions)
        elif form == "colours":
            write_image(base, masks.to_colours(positions), "png")
        elif form == "other_size":
            write_image(base, masks.to_half_size(labels), "png")
        elif form == "slope":
            masks.write_slope(base.with_name(base.name + ".nii.gz"), labels)
        elif form == "seg_nrrd":
            masks.write_seg_nrrd(base.with_name(base.name + ".seg.nrrd"), positions, names)
        elif form == "dicom_seg":
            masks.write_dicom_seg(base.with_name(base.name + ".dcm"), self.files[case.number], positions, names)
        else:
            masks.write_rtstruct(base.with_name(base.name + ".dcm"), self.files[case.number], case.shapes, names)

    def _write_run_lengths(self) -> None:
        header = [self.column("image"), self.column("label"), "EncodedPixels"]
        rows: list[list[Cell]] = []
        for case in self.labelled:
            positions = label_map(case.size, case.shapes)
            key = case.key if self.axes.solvability != "unmatched_targets" else self.annotation_stem(case)
            for position, name in enumerate(self.layout.class_names):
                if (positions == position + 1).any():
                    rows.append([key, name, masks.to_run_lengths(positions == position + 1)])
        if len(self.layout.class_names) == 1:
            header, rows = [header[0], header[2]], [[row[0], row[2]] for row in rows]
        write_table(self.base / "run_lengths", header, rows, "plain", self.layout.language, "")

    def annotated(self, case: Case) -> AnnotatedImage:
        file = image_file(self.layout, case)
        name = file.rpartition("/")[2]
        stem = self.annotation_stem(case)
        if self.axes.solvability == "unmatched_targets":
            name = stem + self._suffix()
        if self.layout.seed % 2 and self.axes.solvability != "unmatched_targets":
            name = file
        has_sides = self.axes.split in ("folders", "crossing") and case.side is not None
        part = self.layout.side_words[case.side] if has_sides and case.side else f"part{case.number % 2 + 1}"
        word = self.layout.folder_word("images")
        target = self.layout.folder_word("annotations")
        parts = [target if directory == word else directory for directory in case.directory.split("/")]
        is_beside_image = self.layout.seed % 3 == 0 and (self.axes.box_format or self.axes.mask_form) == "labelme"
        base = self.base / (case.directory if is_beside_image else "/".join(parts)) / stem
        return AnnotatedImage(name, base, part, (case.size[-2], case.size[-1]), case.shapes)

    def write_boxes(self) -> None:
        box_format, names = self.axes.box_format, self.layout.class_names
        if box_format in ANNOTATION_WRITERS:
            images = [self.annotated(case) for case in self.labelled]
            ANNOTATION_WRITERS[box_format](self.base / self.layout.folder_word("annotations"), images, names)
            return
        header = [self.column("image"), *BOX_COLUMNS[box_format], self.column("label")]
        rows: list[list[Cell]] = []
        for case in self.labelled:
            image = self.annotated(case)
            rows += [
                [image.name, *box_cells(shape, image.size, box_format), names[shape.class_index]]
                for shape in case.shapes
            ]
        write_table(self.base / "boxes", header, rows, "plain", self.layout.language, "")

    # --- labels ---------------------------------------------------------------------------------------------------

    def column(self, key: str) -> str:
        """Return the name of a column in the folder's language."""
        words = COLUMNS[key][self.layout.language if self.axes.class_naming in ("local", UNUSED) else "en"]
        return words[self.layout.seed % len(words)]

    def key(self, case: Case) -> Cell:
        if self.axes.solvability == "unmatched_targets":
            return self.annotation_stem(case)
        return int(case.key) if self.axes.join == "id_without_zeros" else case.key

    def target_cells(self, case: Case, *, second: bool = False) -> dict[str, Cell]:
        """Return the columns of a target."""
        task, names = self.axes.task, self.layout.class_names
        if not self.has_targets or task in MASK_TASKS or task == "detection":
            return {}
        if not case.is_labelled:
            return dict.fromkeys(self.target_cells(replace(case, is_labelled=True), second=second))
        if task == "survival":
            return {self.column("time"): case.value, self.column("event"): int(bool(case.event))}
        if task == "report":
            return {self.column("report"): case.report}
        if self.axes.label_place == "one_hot":
            return {name: int(position in case.classes) for position, name in enumerate(names)}
        name = self.column("label" if task in ("diagnosis", "multi_label") else "grade")
        if task == "regression":
            words, *_ = QUANTITIES[self.layout.quantity]
            name = words["en" if self.axes.request_wording == "task_only" else self.layout.language].replace(" ", "_")
        if self.axes.solvability == "two_targets":
            return {f"{name}_reader1": self.label(case), f"{name}_reader2": self.label(case, second=True)}
        return {name: self.label(case, second=second)}

    def table_row(self, case: Case, *, with_target: bool, second: bool = False) -> dict[str, Cell]:
        axes = self.axes
        row: dict[str, Cell] = {}
        if axes.join == "two_columns":
            row[self.column("patient")] = case.stem.rpartition("_")[0]
            row[self.column("slice")] = case.counter
        else:
            row[self.column("image")] = self.key(case)
        if axes.patients == "column" and axes.join != "two_columns":
            row[self.column("patient")] = case.patient
        if axes.patients == "two_columns":
            row |= {self.column("site"): case.site, self.column("number"): case.patient_number}
        if axes.split == "column" and case.side is not None:
            row[self.column("split")] = self.layout.side_words[case.side]
        if axes.table_dress == "decimal_comma":
            row[self.column("weight")] = round(50 + case.number * 0.37, 1)
        if axes.table_dress == "quoted_newlines":
            row[self.column("remark")] = f'{case.number % 7}\nok, "{case.number % 3}"'
        if axes.distractor == "demographics":
            row[self.column("sex")] = "FM"[case.number % 2]
            row["scanner"] = "XYZ"[case.number % 3]
        if axes.distractor == "coincidental_column":
            cases = self.layout.cases
            row["compared_with"] = self.key(cases[(case.number + len(cases) // 2) % len(cases)])
        return row | (self.target_cells(case, second=second) if with_target else {})

    def write_labels(self) -> None:
        axes, place = self.axes, self.axes.label_place
        if axes.has_table:
            in_table = place in ("table", "split_tables", "one_hot")
            # half of the folders name the images without a target, with empty cells
            listed_cases = [
                case for case in self.layout.cases if case.is_labelled or not in_table or self.layout.seed % 2
            ]
            sides = {case.side for case in listed_cases} if place == "split_tables" else {None}
            for side in sorted(sides, key=str):
                cases = [case for case in listed_cases if place != "split_tables" or case.side == side]
                name = self.layout.side_words[side] if side else "cases"
                self.write_cases(name, cases, with_target=in_table)
            if axes.solvability == "two_label_tables":
                self.write_cases("cases_2", listed_cases, with_target=True, second=True)
        if not self.has_targets:
            return
        if place in ("json", "json_lines"):
            self._write_json()
        elif place == "sidecar":
            self._write_sidecars()

    def write_cases(self, name: str, cases: Sequence[Case], *, with_target: bool, second: bool = False) -> None:
        """Write a table of cases; for some of these seeds the columns stand in reverse order."""
        rows = [self.table_row(case, with_target=with_target, second=second) for case in cases]
        columns = list(rows[0])
        if self.layout.seed % 5 == 0:
            columns.reverse()
        title = requests.make_title(self.layout.domain, self.layout.language)
        cells = [[row[column] for column in columns] for row in rows]
        write_table(self.base / name, columns, cells, self.axes.table_dress, self.layout.language, title)

    def _write_json(self) -> None:
        entries: list[dict[str, Any]] = []
        for case in self.labelled:
            target: dict[str, Any] = dict(self.target_cells(case))
            if self.axes.task == "multi_label":
                target = {"labels": [self.layout.class_names[position] for position in case.classes]}
            entries.append({"image": self.key(case), **target})
        if self.axes.label_place == "json_lines":
            lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
            (self.base / "cases.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
            return
        document: Any = entries
        if self.layout.seed % 2:
            document = {str(entry.pop("image")): entry for entry in entries}
        (self.base / "cases.json").write_text(to_json(document), "utf-8")

    def _write_sidecars(self) -> None:
        for case in self.labelled:
            folder = self.base / case.directory
            if self.axes.task == "report" and self.layout.seed % 2:
                word, target = self.layout.folder_word("images"), self.layout.folder_word("reports")
                folder = self.base.joinpath(*[target if part == word else part for part in case.directory.split("/")])
            folder.mkdir(parents=True, exist_ok=True)
            text = str(self.label(case))
            if self.axes.task == "multi_label":
                text = "\n".join(self.layout.class_names[position] for position in case.classes)
            (folder / f"{case.stem}.txt").write_text(text + "\n", "utf-8")

    def write_patients_and_sides(self) -> None:
        cases, language = self.layout.cases, self.layout.language
        if self.axes.patients == "own_table":
            rows: list[list[Cell]] = [[case.stem, case.patient] for case in cases]
            write_table(
                self.base / "patients", [self.column("image"), self.column("patient")], rows, "plain", language, ""
            )
        if self.axes.split == "lists":
            for side in sorted({case.side for case in cases if case.side}):
                names = [
                    case.stem if self.layout.seed % 3 else image_file(self.layout, case)
                    for case in cases
                    if case.side == side
                ]
                (self.base / f"{self.layout.side_words[side]}.txt").write_text("\n".join(names) + "\n", "utf-8")

    # --- legend, notes, distractors -------------------------------------------------------------------------------

    def legend(self) -> list[tuple[str, str]]:
        """Return what each code of a class means."""
        names = list(self.layout.class_names)
        if self.axes.class_naming == "codes" and self.axes.task != "grading":
            names = [TERMS[key].words[self.layout.language] for key in self.layout.classes]
        if self.axes.task == "grading":
            names = [f"{number}/{len(names) - 1}" for number in range(len(names))] if names[0].isdigit() else names
        codes = list(map(str, range(len(names))))
        if self.axes.mask_form in ("ids", "other_size", "inside"):
            codes = list(map(str, self.layout.values))
        elif self.axes.mask_form in ("palette_void", "slope"):
            codes = [str(number + 1) for number in range(len(names))]
        elif self.axes.mask_form == "colours":
            codes = [",".join(map(str, colour)) for colour in masks.COLOURS[: len(names)]]
        return list(zip(codes, names, strict=True))

    def write_legend(self) -> None:
        pairs = self.legend()
        if self.axes.legend == "readme":
            self.notes += [f"{code} = {name}" for code, name in pairs]
        elif self.axes.legend == "json":
            (self.base / "classes.json").write_text(to_json(dict(pairs)), "utf-8")
        elif self.axes.legend == "csv":
            header = ["code", "name"]
            write_table(
                self.base / "classes", header, [list(pair) for pair in pairs], "plain", self.layout.language, ""
            )
        else:
            is_list = self.axes.box_format == "yolo" or self.axes.mask_form == "yolo_outline"
            lines = [name if is_list else f"{code} {name}" for code, name in pairs]
            (self.base / "labels.txt").write_text("\n".join(lines) + "\n", "utf-8")

    def write_readme(self) -> None:
        axes, language = self.axes, self.layout.language
        if axes.notes == "none":
            return
        lines = [requests.make_title(self.layout.domain, language), ""]
        terms = [TERMS[key].words[language] for key in self.layout.classes if key in TERMS]
        if axes.task in MASK_TASKS and (
            axes.notes == "description" or axes.mask_form in ("binary_255", "file_per_object")
        ):
            lines.append(requests.MARKED[language] + ", ".join(terms))
        elif axes.notes == "description" and terms and axes.task != "report":
            lines.append(requests.CLASSES[language] + ", ".join(terms))
        file = self.root / ("README.md" if self.layout.seed % 2 else "README.txt")
        file.write_text("\n".join([*lines, *self.notes]) + "\n", "utf-8")

    def write_distractor(self) -> None:
        distractor = self.axes.distractor
        if distractor == "previews":
            self._write_previews()
        elif distractor == "other_modality":
            self._write_other_modality()
        elif distractor == "copies" and self.files:
            for case in self.layout.cases[:COPIED_CASES]:
                for file in self.files[case.number]:
                    target = self.base / "backup" / file.relative_to(self.base)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)
        elif distractor == "truncated" and self.files:
            for case in truncated_cases(self.layout):
                file = max(self.files[case.number], key=lambda path: path.stat().st_size)
                content = file.read_bytes()
                file.write_bytes(content[: len(content) * 2 // 5])
        elif distractor == "localizers" and self.files:
            self._write_localizers()
        elif distractor == "system_files":
            for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
                (self.base / name).write_bytes(b"\0\0\0\1Bud1" + bytes(60))

    def _write_previews(self) -> None:
        folder = self.base / self.layout.folder_word("previews")
        folder.mkdir(parents=True, exist_ok=True)
        for case in self.layout.cases[:PREVIEWED_CASES]:
            pixels = self.pixels(case)
            plane = pixels[len(pixels) // 2] if self.axes.carrier in VOLUMES else pixels
            picture = Image.fromarray(np.ascontiguousarray(plane))
            picture.resize((24, 24)).save(folder / f"{case.stem}.png")

    def _write_other_modality(self) -> None:
        domain, name = other_domain(self.layout)
        folder = self.base / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(OTHER_IMAGES):
            shapes = place_shapes(self.rng, (48, 56), [0], is_round=True)
            pixels = draw_pixels(self.rng, (48, 56), shapes, is_colour=domain.colour)
            (folder / f"extra{number:02d}.png").write_bytes(to_png_bytes(pixels))

    def _write_localizers(self) -> None:
        for case in self.layout.cases[:SCOUTED_CASES]:
            base = self.base / case.directory / f"{case.stem}_scout"
            header = replace(self.header(case), is_localizer=True)
            write_image(base, self.pixels(case)[:1], "dicom_series", header)
