"""The axes of a layout, their values, which values go together, and how they are drawn.

Each axis is drawn uniformly and independently of the others, in the order of `AXES`. If the value cannot be combined with the
values drawn before, the axis is drawn again, uniformly among the values that can (`valid_values`). One axis is not uniform:
`solvability` is `solvable` with the share `SOLVABLE_SHARE` (the test of the generator asks for at least a fifth of others),
and uniform among the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from layouts.terms import DOMAINS, LANGUAGES

UNUSED = "-"
"""Value of an axis that means nothing for a layout, such as the mask form of a diagnosis."""
SOLVABLE_SHARE = 0.65
MAX_DRAWS, MAX_PLAIN_DRAWS = 5000, 100
"""Draws until fixed values are taken not to go together; plain draws repeat themselves."""
PLAIN_CHOICES = {
    "solvability": "solvable", "carrier_family": "pictures", "carrier": "png", "folder_language": "en", "request_language": "en",
    "label_place": "table", "mask_form": "ids", "mask_place": "same_name", "box_format": "coco", "patients": "none",
    "images_per_patient": "one", "split": "none", "id_style": "padded", "sizes": "same", "join": "file_name", "table_dress": "plain",
    "class_naming": "english", "legend": "txt", "distractor": "none", "notes": "description", "request_wording": "names_classes",
    "wrapping": "none", "balance": "even", "habit": "none",
}  # fmt: skip
"""The most usual value of each axis but task and domain."""

IMAGE_TASKS = ("diagnosis", "multi_label", "grading", "regression", "survival", "report")
MASK_TASKS = ("segmentation_2d", "segmentation_3d")
CLASS_TASKS = ("diagnosis", "multi_label", "detection", *MASK_TASKS)

FAMILIES: dict[str, tuple[str, ...]] = {
    "pictures": ("png", "jpeg", "jpeg_exif", "png16", "png_palette", "tiff", "tiff16", "ome_tiff", "bmp", "webp", "gif", "jpeg2000",
                 "slice_folder", "tiff_stack"),
    "dicom": ("dicom", "dicom_plain", "dicom_inverted", "dicom_series", "dicom_frames"),
    "headers": ("nifti_2d", "nrrd_2d", "nifti_3d", "nifti_plain", "nifti_pair", "nifti_slope", "nrrd", "mha", "mhd", "mgz"),
    "arrays": ("npy_case", "npz_case", "hdf5_case", "mat_case", "npy_volume", "npz_volume", "hdf5_volume", "mat_volume",
               "npy_set", "npz_set", "hdf5_set", "mat_set", "npz_volumes", "hdf5_volumes"),
    "archives": ("zip", "tar_gz", "parquet", "webdataset"),
}  # fmt: skip
"""Carriers by kind, so that a kind with few formats, such as DICOM, is as frequent as the others."""
FLAT_FILES = (
    "png",
    "jpeg",
    "jpeg_exif",
    "png16",
    "png_palette",
    "tiff",
    "tiff16",
    "ome_tiff",
    "bmp",
    "webp",
    "gif",
    "jpeg2000",
    "dicom",
    "dicom_plain",
    "dicom_inverted",
    "nifti_2d",
    "nrrd_2d",
    "npy_case",
    "npz_case",
    "hdf5_case",
    "mat_case",
)
WRAPPED = ("zip", "tar_gz")
"""PNG files, the whole folder in one archive."""
FLAT_SETS = ("npy_set", "npz_set", "hdf5_set", "mat_set", "parquet", "webdataset")
"""All images of a side in one file."""
VOLUME_FILES = (
    "dicom_series",
    "dicom_frames",
    "slice_folder",
    "nifti_3d",
    "nifti_plain",
    "nifti_pair",
    "nifti_slope",
    "nrrd",
    "mha",
    "mhd",
    "mgz",
    "tiff_stack",
    "npy_volume",
    "npz_volume",
    "hdf5_volume",
    "mat_volume",
)
VOLUME_SETS = ("npz_volumes", "hdf5_volumes")
SETS = (*FLAT_SETS, *VOLUME_SETS)
VOLUMES = (*VOLUME_FILES, *VOLUME_SETS)
CASE_ARRAYS = ("npz_case", "hdf5_case", "mat_case", "npz_volume", "hdf5_volume", "mat_volume")
"""One container a case, which can hold image, mask and label."""
DICOM = ("dicom", "dicom_plain", "dicom_inverted", "dicom_series", "dicom_frames")
GREY_ONLY = (*DICOM, "png16", "tiff16", "nifti_2d", "nrrd_2d", *VOLUMES)
COLOUR_CAPABLE = tuple(name for name in (*FLAT_FILES, *WRAPPED, *FLAT_SETS) if name not in GREY_ONLY)
PICTURES = tuple(name for name in (*FLAT_FILES, *WRAPPED) if name not in CASE_ARRAYS)

TABLES = ("table", "split_tables", "one_hot")
TABLE_DRESSES = ("plain", "semicolon", "tab", "legacy_encoding", "utf16", "bom", "title_rows", "xlsx", "xlsx_sheets",
                 "decimal_comma", "trailing_cells", "quoted_newlines")  # fmt: skip
MASK_FORMS_2D = ("binary_255", "ids", "palette_void", "colours", "file_per_class", "file_per_object", "other_size", "rle", "coco",
                 "coco_rle", "yolo_outline", "labelme", "via", "cvat", "inside")  # fmt: skip
MASK_FORMS_3D = ("binary_255", "ids", "slope", "file_per_class", "seg_nrrd", "dicom_seg", "rtstruct", "inside")
FILE_MASKS = ("binary_255", "ids", "palette_void", "colours", "file_per_class", "other_size", "slope", "seg_nrrd")
SINGLE_CLASS_MASKS = ("binary_255", "file_per_object")
BOX_FORMATS = ("coco", "coco_parts_stale", "yolo", "voc", "kitti", "csv_corners_pixels", "csv_size_pixels", "csv_centre_shares",
               "csv_corners_shares", "labelme", "via", "cvat")  # fmt: skip
LISTING_FORMATS = ("coco", "coco_parts_stale", "coco_rle", "via", "cvat")
"""Formats with a list of images, which holds those without marks, too."""
MARK_TABLES = ("csv_corners_pixels", "csv_size_pixels", "csv_centre_shares", "csv_corners_shares")
"""Tables with a row for each mark, which hold no image without marks."""
FILE_FORMATS = ("yolo", "yolo_outline", "voc", "kitti", "labelme")
"""Formats with a file for each image, which is empty if nothing is marked."""

AXES: dict[str, tuple[str, ...]] = {
    "task": ("diagnosis", "multi_label", "grading", "regression", "survival", "segmentation_2d", "segmentation_3d", "detection",
             "report"),
    "solvability": ("solvable", "two_targets", "two_label_tables", "other_anatomy", "other_modality", "other_classes", "more_classes",
                    "no_targets", "unmatched_targets", "no_images", "test_unlabelled_but_wanted", "one_class_only"),
    "carrier_family": tuple(FAMILIES),
    "carrier": (*FLAT_FILES, *WRAPPED, *FLAT_SETS, *VOLUMES),
    "domain": tuple(DOMAINS),
    "folder_language": LANGUAGES,
    "request_language": LANGUAGES,
    "label_place": ("class_folders", "table", "split_tables", "one_hot", "json", "json_lines", "name_part", "sidecar", "header_tag",
                    "inside", UNUSED),
    "mask_form": (*dict.fromkeys((*MASK_FORMS_2D, *MASK_FORMS_3D)), UNUSED),
    "mask_place": ("same_name", "suffix_beside", "suffix_folder", "prefix_folder", "number_only", "case_folder", UNUSED),
    "box_format": (*BOX_FORMATS, UNUSED),
    "patients": ("none", "column", "name_part", "folder", "dicom_tag", "two_columns", "own_table", "inside"),
    "images_per_patient": ("one", "several"),
    "split": ("none", "folders", "column", "lists", "name_part", "tables", "set_files", "crossing", "test_unlabelled"),
    "id_style": ("padded", "unpadded", "lettered", "hexadecimal", "dated"),
    "sizes": ("same", "varied"),
    "join": ("stem", "file_name", "path", "id_without_zeros", "prefix", "suffix", "two_columns", UNUSED),
    "table_dress": (*TABLE_DRESSES, UNUSED),
    "class_naming": ("english", "local", "abbreviation", "initials", "codes", UNUSED),
    "legend": ("txt", "csv", "json", "readme", UNUSED),
    "distractor": ("none", "previews", "second_masks", "coincidental_column", "other_modality", "copies", "truncated", "localizers",
                   "system_files", "demographics"),
    "notes": ("none", "title", "description"),
    "request_wording": ("names_classes", "task_only", "synonyms", "superfluous"),
    "wrapping": ("none", "one_folder", "two_folders"),
    "balance": ("even", "skewed"),
    "habit": ("none", "images_outside_list", "further_structures"),
}  # fmt: skip


@dataclass(frozen=True)
class Axes:
    """One value of each axis of `AXES`."""

    task: str
    solvability: str
    carrier_family: str
    carrier: str
    domain: str
    folder_language: str
    request_language: str
    label_place: str
    mask_form: str
    mask_place: str
    box_format: str
    patients: str
    images_per_patient: str
    split: str
    id_style: str
    sizes: str
    join: str
    table_dress: str
    class_naming: str
    legend: str
    distractor: str
    notes: str
    request_wording: str
    wrapping: str
    balance: str
    habit: str = "none"

    def to_dict(self) -> dict[str, str]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @property
    def is_volume(self) -> bool:
        return self.carrier in VOLUMES

    @property
    def is_set(self) -> bool:
        return self.carrier in SETS

    @property
    def is_mask_task(self) -> bool:
        return self.task in MASK_TASKS

    @property
    def has_table(self) -> bool:
        return has_table(self.to_dict())


def has_table(choices: Mapping[str, str]) -> bool:
    """Return whether a layout has a table of cases."""
    return (
        choices["label_place"] in TABLES
        or choices["patients"] in ("column", "two_columns")
        or choices["split"] == "column"
    )


# --- which values go together --------------------------------------------------------------------------------------


def _solvability(choices: Mapping[str, str]) -> tuple[str, ...]:
    values = ["solvable", "other_anatomy", "other_modality", "no_targets", "unmatched_targets", "no_images"]
    values.append("test_unlabelled_but_wanted")
    if choices["task"] in ("diagnosis", "grading", "regression", "segmentation_2d", "segmentation_3d"):
        values.append("two_targets")
    if choices["task"] in ("diagnosis", "regression"):
        values.append("two_label_tables")
    if choices["task"] in CLASS_TASKS:
        values += ["other_classes", "more_classes"]
    if choices["task"] == "diagnosis":
        values.append("one_class_only")
    return tuple(values)


def _carrier_family(choices: Mapping[str, str]) -> tuple[str, ...]:
    possible = set(_possible_carriers(choices))
    return tuple(family for family, carriers in FAMILIES.items() if possible & set(carriers))


def _carrier(choices: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in _possible_carriers(choices) if name in FAMILIES[choices["carrier_family"]])


def _possible_carriers(choices: Mapping[str, str]) -> tuple[str, ...]:
    task, solvability = choices["task"], choices["solvability"]
    if task == "segmentation_3d":
        values: tuple[str, ...] = VOLUMES
    elif task == "segmentation_2d":
        values = tuple(
            name for name in (*FLAT_FILES, *WRAPPED, *FLAT_SETS) if name not in ("gif", "webdataset", "parquet")
        )
    elif task == "detection":
        values = PICTURES
    elif task == "report":
        values = (*FLAT_FILES, *WRAPPED, "parquet", "webdataset", *VOLUME_FILES)
    else:
        values = AXES["carrier"]
    if solvability != "solvable" and solvability in ("two_label_tables", "unmatched_targets", "no_targets",
                                                     "no_images", "test_unlabelled_but_wanted", "two_targets"):  # fmt: skip
        values = tuple(name for name in values if name not in SETS)
    if solvability in ("unmatched_targets", "two_label_tables", "no_images", "test_unlabelled_but_wanted"):
        values = tuple(name for name in values if name not in CASE_ARRAYS)
    return values


def _domain(choices: Mapping[str, str]) -> tuple[str, ...]:
    carrier = choices["carrier"]
    dimensions = 3 if carrier in VOLUMES else 2
    return tuple(
        key
        for key, domain in DOMAINS.items()
        if dimensions in domain.dimensions and (not domain.colour or carrier in COLOUR_CAPABLE)
    )


def _label_place(choices: Mapping[str, str]) -> tuple[str, ...]:
    task, carrier, solvability = choices["task"], choices["carrier"], choices["solvability"]
    if task not in IMAGE_TASKS:
        return (UNUSED,)
    if solvability == "two_label_tables":
        return ("table",)
    if solvability in ("two_targets", "unmatched_targets", "no_images"):
        return ("table", "json", "json_lines")
    if carrier in SETS:
        return ("inside",)
    places: dict[str, tuple[str, ...]] = {
        "diagnosis": (
            "class_folders",
            "table",
            "split_tables",
            "one_hot",
            "json",
            "json_lines",
            "name_part",
            "sidecar",
        ),
        "grading": ("class_folders", "table", "split_tables", "json", "json_lines", "name_part", "sidecar"),
        "multi_label": ("table", "split_tables", "one_hot", "json", "json_lines", "sidecar"),
        "regression": ("table", "split_tables", "json", "json_lines", "name_part", "sidecar"),
        "survival": ("table", "split_tables", "json", "json_lines"),
        "report": ("table", "split_tables", "json", "json_lines", "sidecar"),
    }
    values = places[task]
    if carrier in DICOM and task in ("diagnosis", "grading", "regression"):
        values += ("header_tag",)
    if carrier in CASE_ARRAYS and task in ("diagnosis", "grading", "regression"):
        values += ("inside",)
    if carrier == "slice_folder":
        values = tuple(place for place in values if place != "sidecar")
    if solvability == "test_unlabelled_but_wanted":
        values = tuple(place for place in values if place not in ("split_tables", "header_tag", "name_part"))
    return values


def _mask_form(choices: Mapping[str, str]) -> tuple[str, ...]:
    task, carrier = choices["task"], choices["carrier"]
    if task not in MASK_TASKS:
        return (UNUSED,)
    if carrier in SETS:
        return ("inside",)
    if task == "segmentation_3d":
        values: tuple[str, ...] = ("binary_255", "ids", "file_per_class")
        if carrier.startswith("nifti"):
            values += ("slope",)
        if carrier in ("nrrd", "mha", "nifti_3d"):
            values += ("seg_nrrd",)
        if carrier == "dicom_series":
            values += ("dicom_seg", "rtstruct")
    elif carrier in PICTURES:
        values = tuple(form for form in MASK_FORMS_2D if form != "inside")
    else:
        values = ("binary_255", "ids", "file_per_class")
    if carrier in CASE_ARRAYS:
        values += ("inside",)
        if choices["solvability"] in ("no_targets", "unmatched_targets"):
            values = values[:-1]
    if choices["solvability"] == "two_targets":
        values = tuple(form for form in values if form in FILE_MASKS)
    if choices["solvability"] == "unmatched_targets":
        values = tuple(form for form in values if form not in ("dicom_seg", "rtstruct"))  # these refer by identifiers
    if choices["solvability"] in ("other_classes", "more_classes"):
        # a single structure whose name stands nowhere cannot contradict a request
        values = tuple(form for form in values if form not in SINGLE_CLASS_MASKS and form != "other_size")
    return values


def _mask_place(choices: Mapping[str, str]) -> tuple[str, ...]:
    if choices["mask_form"] not in (*FILE_MASKS, "dicom_seg", "rtstruct"):
        return (UNUSED,)
    if choices["carrier"] in ("dicom_series", "slice_folder"):
        return ("same_name", "suffix_folder", "case_folder")
    if choices["solvability"] == "unmatched_targets":
        return ("same_name", "suffix_folder")
    return tuple(value for value in AXES["mask_place"] if value != UNUSED)


def _box_format(choices: Mapping[str, str]) -> tuple[str, ...]:
    return BOX_FORMATS if choices["task"] == "detection" else (UNUSED,)


def _patients(choices: Mapping[str, str]) -> tuple[str, ...]:
    carrier = choices["carrier"]
    if carrier in SETS:
        return ("none", "inside")
    values = ["none", "column", "name_part", "folder", "two_columns", "own_table"]
    if carrier in DICOM:
        values.append("dicom_tag")
    if choices["label_place"] == "split_tables":
        values = [value for value in values if value != "own_table"]
    if choices["mask_place"] == "number_only":
        values = [value for value in values if value != "name_part"]
    return tuple(values)


def _images_per_patient(choices: Mapping[str, str]) -> tuple[str, ...]:
    return ("one",) if choices["patients"] == "none" else ("one", "several")


def _split(choices: Mapping[str, str]) -> tuple[str, ...]:
    carrier, place = choices["carrier"], choices["label_place"]
    if choices["solvability"] == "test_unlabelled_but_wanted":
        return ("test_unlabelled",)
    if place == "split_tables":
        return ("tables",)
    if carrier in SETS:
        return ("none", "set_files")
    values = ["none", "folders", "column", "lists"]
    if choices["mask_place"] != "number_only":
        values.append("name_part")
    if choices["patients"] != "none" and choices["images_per_patient"] == "several" and choices["patients"] != "folder":
        values.append("crossing")
    if place not in ("header_tag", "name_part", "inside") and choices["mask_form"] != "inside":
        values.append("test_unlabelled")
    return tuple(values)


def _join(choices: Mapping[str, str]) -> tuple[str, ...]:
    has_keys = has_table(choices) or choices["label_place"] in ("json", "json_lines") or choices["mask_form"] == "rle"
    if not has_keys:
        return (UNUSED,)
    values = ["stem", "file_name", "path", "prefix", "suffix"]
    if choices["mask_form"] == "rle":
        return ("stem", "file_name")
    plain_names = (
        choices["patients"] != "name_part" and choices["split"] != "name_part" and choices["label_place"] != "name_part"
    )
    if choices["label_place"] not in ("json", "json_lines"):
        if plain_names and choices["id_style"] == "padded":
            values.append("id_without_zeros")
        is_matched = choices["solvability"] != "unmatched_targets"
        if is_matched and choices["patients"] in ("column", "name_part") and choices["split"] != "name_part":
            values.append("two_columns")
    return tuple(values)


def _id_style(choices: Mapping[str, str]) -> tuple[str, ...]:
    return ("padded", "unpadded", "lettered") if choices["mask_place"] == "number_only" else AXES["id_style"]


def _sizes(choices: Mapping[str, str]) -> tuple[str, ...]:
    return ("same",) if choices["carrier"] in SETS else AXES["sizes"]


def _table_dress(choices: Mapping[str, str]) -> tuple[str, ...]:
    return TABLE_DRESSES if has_table(choices) else (UNUSED,)


def _class_naming(choices: Mapping[str, str]) -> tuple[str, ...]:
    if choices["task"] not in CLASS_TASKS and choices["task"] != "grading":
        return (UNUSED,)
    if choices["task"] == "grading":
        return ("english", "local", "codes")
    if choices["solvability"] in ("other_classes", "more_classes"):
        return ("english", "local", "codes")
    return ("english", "local", "abbreviation", "initials", "codes")


def _legend(choices: Mapping[str, str]) -> tuple[str, ...]:
    coded = choices["class_naming"] == "codes"
    valued = choices["mask_form"] in ("ids", "palette_void", "colours", "slope", "inside", "rle", "other_size")
    numbered = choices["box_format"] == "yolo" or choices["mask_form"] == "yolo_outline"
    return ("txt", "csv", "json", "readme") if coded or valued or numbered else (UNUSED,)


def _distractor(choices: Mapping[str, str]) -> tuple[str, ...]:
    values = ["none", "system_files"]
    carrier = choices["carrier"]
    if carrier in SETS:
        return (*values, "previews")
    values += ["other_modality", "truncated", "previews"]
    if carrier not in WRAPPED and choices["label_place"] != "class_folders":
        values.append("copies")
    if has_table(choices):
        values += ["coincidental_column", "demographics"]
    if choices["task"] in MASK_TASKS and choices["mask_form"] in ("binary_255", "ids"):
        values.append("second_masks")
    if carrier == "dicom_series":
        values.append("localizers")
    if choices["label_place"] == "inside" or choices["mask_form"] == "inside":
        values.remove("truncated")
    return tuple(values)


def _notes(choices: Mapping[str, str]) -> tuple[str, ...]:
    stated_in_notes = ("other_anatomy", "other_modality", "other_classes", "more_classes", "two_targets")
    if choices["legend"] == "readme" or choices["mask_form"] in ("binary_255", "file_per_object"):
        return ("title", "description")
    return ("title", "description") if choices["solvability"] in stated_in_notes else AXES["notes"]


def _request_wording(choices: Mapping[str, str]) -> tuple[str, ...]:
    if choices["solvability"] in ("other_classes", "more_classes"):
        return ("names_classes",)
    if choices["task"] not in CLASS_TASKS:
        return ("task_only", "superfluous")
    return AXES["request_wording"]


def _has_images_outside_list(choices: Mapping[str, str]) -> bool:
    formats = (*LISTING_FORMATS, *MARK_TABLES, *FILE_FORMATS)
    has_list = choices["mask_form"] in formats or choices["box_format"] in formats
    return choices["solvability"] == "solvable" and has_list and choices["split"] != "test_unlabelled"


def _has_further_structures(choices: Mapping[str, str]) -> bool:
    return (
        choices["task"] in (*MASK_TASKS, "detection")
        and choices["solvability"] in ("solvable", "other_classes")
        and choices["request_wording"] in ("names_classes", "synonyms")
        and choices["mask_form"] not in SINGLE_CLASS_MASKS
    )


HABITS: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "images_outside_list": _has_images_outside_list,
    "further_structures": _has_further_structures,
}
"""Value of the axis `habit` -> whether it goes with the other axes. `layouts.habits` changes the layout."""


def _habit(choices: Mapping[str, str]) -> tuple[str, ...]:
    return ("none", *(habit for habit, is_valid in HABITS.items() if is_valid(choices)))


VALID: dict[str, Callable[[Mapping[str, str]], tuple[str, ...]]] = {
    "solvability": _solvability,
    "carrier_family": _carrier_family,
    "carrier": _carrier,
    "domain": _domain,
    "label_place": _label_place,
    "mask_form": _mask_form,
    "mask_place": _mask_place,
    "box_format": _box_format,
    "patients": _patients,
    "images_per_patient": _images_per_patient,
    "split": _split,
    "id_style": _id_style,
    "sizes": _sizes,
    "join": _join,
    "table_dress": _table_dress,
    "class_naming": _class_naming,
    "legend": _legend,
    "distractor": _distractor,
    "notes": _notes,
    "request_wording": _request_wording,
    "habit": _habit,
}


def valid_values(axis: str, choices: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of an axis that go with those of the axes before it."""
    return VALID[axis](choices) if axis in VALID else AXES[axis]


def draw_axes(rng: np.random.Generator, fixed: Mapping[str, str] | None = None, plainness: float = 0.0) -> Axes:
    """Draw each axis on its own, again among the valid values if the first does not fit.

    Args:
        fixed: axes that must have a value; all axes are drawn until they have.
        plainness: with which probability each other axis takes its most usual value, where that goes with those before.

    Raises:
        ValueError: the fixed values do not go together, as far as many draws can tell.
    """
    fixed = dict(fixed or {})
    if "carrier" in fixed:
        family = next(name for name, carriers in FAMILIES.items() if fixed["carrier"] in carriers)
        fixed.setdefault("carrier_family", family)
    habit_rng = rng.spawn(1)[0]  # layouts without a habit stay those that were drawn before there were habits
    for _ in range(MAX_DRAWS if not plainness else MAX_PLAIN_DRAWS):
        choices: dict[str, str] = {}
        for axis in AXES:
            usual = PLAIN_CHOICES.get(axis, "")
            axis_rng = habit_rng if axis == "habit" else rng
            is_usual = plainness > 0 and usual in valid_values(axis, choices) and axis_rng.random() < plainness
            choices[axis] = usual if is_usual else _draw_value(axis_rng, axis, choices)
            if axis in fixed and fixed[axis] != choices[axis]:
                if fixed[axis] not in valid_values(axis, choices):
                    break
                choices[axis] = fixed[axis]
        else:
            return Axes(**choices)
    raise ValueError(f"{fixed} do not go together")


def _draw_value(rng: np.random.Generator, axis: str, choices: Mapping[str, str]) -> str:
    """Draw a value that goes with the axes before this one."""
    values, valid = AXES[axis], valid_values(axis, choices)
    if axis == "solvability":
        values, valid = values[1:], valid[1:]  # what is not solvable
        if rng.random() < SOLVABLE_SHARE:
            return "solvable"
    value = str(rng.choice(values))
    return value if value in valid else str(rng.choice(valid))
