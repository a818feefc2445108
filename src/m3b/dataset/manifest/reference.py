"""The page about manifests for agents and people, and their JSON schema, both made from `m3b.dataset.manifest.model`."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from m3b.dataset.manifest import model
from m3b.dataset.manifest.model import Files, Images, Manifest, ManifestPart
from m3b.dataset.manifest.resolve import OPTIONAL_PARTS, TARGET_PARTS, TARGETS

EXAMPLES: dict[str, dict[str, Any]] = {
    "diagnosis": {
        "task": "diagnosis",
        "images": {"files": "images/{patient}_{side}.{png,jpg}"},
        "tables": {"labels": {"files": "labels.csv", "key": "{image_id}", "image": "{stem}", "match": "stem"}},
        "labels": {"value": "{labels.diagnosis}", "classes": {"benign": ["0", "benign"], "malignant": ["1", "cancer"]}},
        "patient": "{patient}",
        "split": {"value": "{labels.fold}", "train": ["train"], "test": ["test"]},
        "attributes": {"sex": "{labels.sex}"},
    },
    "grading": {
        "task": "grading",
        "images": {"files": "{part}/{grade:number}/*.png"},
        "labels": {"value": "{grade}", "classes": {"none": ["0"], "mild": ["1"], "severe": ["2"]}, "ordered": True},
        "split": {"value": "{part}", "train": ["train"], "val": ["val"], "test": ["test"]},
    },
    "segmentation": {
        "task": "segmentation",
        "images": {"files": "images/{case}.nii.gz"},
        "masks": {
            "files": "labels/{case}_seg.nii.gz",
            "key": "{case}",
            "image": "{case}",
            "classes": {"liver": [1], "tumour": [2]},
        },
        "patient": {"value": "{case}", "find": "^([0-9]+)_"},
    },
    "detection": {
        "task": "detection",
        "images": {"files": "*/images/*.jpg"},
        "boxes": {
            "format": "coco",
            "files": "annotations/*.json",
            "classes": {"nodule": ["nodule"], "mass": ["mass", "lump"]},
        },
        "split": {"value": "{folder0}", "train": ["train"], "test": ["test"]},
    },
    "report": {
        "task": "report",
        "images": {"files": "films/{study}/*.png", "case": "{study}", "several": "views"},
        "tables": {"reports": {"files": "reports.xlsx", "key": "{Study}", "image": "{study}"}},
        "report": {"findings": "{reports.Findings}", "impression": "{reports.Impression}"},
        "patient": "{reports.Patient}",
    },
    "regression": {
        "task": "regression",
        "images": {"files": "dicom/*/*", "unit": "folder", "where": {"{tag.Modality}": ["MR"]}},
        "tables": {
            "people": {
                "files": "participants.tsv",
                "key": "{participant_id}",
                "image": "{tag.PatientID}",
                "match": "normalized",
            }
        },
        "value": {"value": {"value": "{people.age}", "unknown": ["-1", "999"]}, "title": "age", "unit": "years"},
        "patient": "{tag.PatientID}",
    },
    "survival": {
        "task": "survival",
        "images": {"files": "{part}_images.npz", "member": "images[#]"},
        "tables": {"follow_up": {"files": "{part}_outcome.csv", "key": "{part} {(row)}", "image": "{part} {index}"}},
        "survival": {
            "time": {"value": "{follow_up.days}", "title": "overall survival", "unit": "days"},
            "event": "{follow_up.status}",
            "observed": ["dead"],
            "censored": ["alive", "lost"],
        },
        "patient": "{follow_up.patient}",
        "covariates": {"age": {"value": "{follow_up.age}", "unit": "years"}},
        "split": {"value": "{part}", "train": ["train"], "test": ["test"]},
    },
}
"""Task -> a manifest."""

FIELD_EXAMPLES: dict[str, dict[str, Any]] = {
    "Manifest": {
        "patient": "{patients.id}",
        "together": ["{patients.family}"],
        "attributes": {"sex": "{patients.sex}"},
        "explained": {"same_image_two_classes": "both classes apply"},
    },
    "ValueSource": {"value": "{stem}", "find": "^([0-9]+)_", "unknown": ["-1", "NA"], "missing": "healthy"},
    "Files": {
        "files": ["images/*.png"],
        "exclude": ["images/*_mask.png"],
        "member": "images[#]",
        "where": {"{tag.Modality}": ["CT"]},
    },
    "Channel": {"name": "T2", "key": "{case}", "image": "{case}"},
    "Images": {
        "case": "{folder}",
        "frames": 8,
        "name": "T1",
    },
    "ColumnChoice": {"image": "{side}", "columns": {"L": "grade left", "R": "grade right"}},
    "Agreement": {"readers": ["reader 1", "reader 2"], "consensus": "consensus"},
    "Table": {
        "files": "labels.xlsx",
        "sheet": "Sheet1",
        "records": "images",
        "header": 0,
        "key": "{file_name}",
        "image": "{name}",
    },
    "Labels": {
        "value": "{patients.grade}",
        "columns": {"edema": "{patients.edema}"},
        "classes": {"benign": ["0"], "malignant": ["1", "2"]},
        "separator": "|",
    },
    "Masks": {
        "format": "image",
        "files": "masks/*.png",
        "exclude": ["masks/old*"],
        "member": "masks[#]",
        "key": "{stem}",
        "image": "{stem}",
        "classes": {"liver": [1, 2], "tumour": ["#ff0000"]},
        "void": [255],
        "per_file": {"disc": ["OD"], "cup": ["OC"]},
        "class_key": "{structure}",
        "above": 127,
        "layers": {"liver": [0], "tumour": [1, 2]},
        "table": "runs",
        "columns": {"runs": "EncodedPixels", "class": "ClassId"},
    },
    "Boxes": {
        "format": "table",
        "files": "labels/*.txt",
        "key": "{stem}",
        "image": "{stem}",
        "classes": {"nodule": ["0", "nodule"]},
        "table": "boxes",
        "columns": {"class": "label", "xmin": "x1", "ymin": "y1", "xmax": "x2", "ymax": "y2"},
    },
    "States": {"value": "{folder0}", "normal": ["good"], "abnormal": ["bad"]},
    "Report": {"findings": "{reports.Findings}", "impression": "{reports.Impression}"},
    "Number": {"value": "{patients.age}", "title": "age", "unit": "years"},
    "Survival": {
        "event": "{patients.status}",
        "observed": ["dead"],
        "censored": ["alive", "lost"],
    },
    "Covariate": {"value": "{patients.age}", "unit": "years"},
    "Split": {
        "value": "{folder0}",
        "train": ["train"],
        "val": ["val"],
        "test": ["test"],
        "test_images": ["images/7.png"],
    },
    "Exclusion": {"files": "old/**", "reason": "an older version"},
    "CaseFilter": {
        "value": "{patients.view}",
        "texts": ["AP", "PA"],
        "without": ["lateral"],
        "reason": "lateral views are not asked for",
    },
}
"""Class -> key -> an example of its value; other keys are shown with their class, choices or default."""

_ENTRY = re.compile(r"^        (?P<names>[a-z_]\w*(?:, [a-z_]\w*)*): (?P<text>.*)$")


def parts() -> list[type[ManifestPart]]:
    """The classes of the model in the order in which a manifest holds them, the manifest first."""
    classes = [
        item
        for item in vars(model).values()
        if inspect.isclass(item) and issubclass(item, ManifestPart) and item is not ManifestPart
    ]
    return [Manifest, *(item for item in classes if item is not Manifest)]


def describe_fields(part: type[BaseModel]) -> dict[str, str]:
    """Field -> what its docstring says, that of a base class included; fields without an entry have an empty text."""
    described: dict[str, str] = {}
    for base in reversed(part.__mro__):
        if not (inspect.isclass(base) and issubclass(base, ManifestPart)) or base is ManifestPart:
            continue
        names: list[str] = []
        for line in (base.__doc__ or "").splitlines():
            if (entry := _ENTRY.match(line)) is not None:
                names = entry["names"].split(", ")
                described |= dict.fromkeys(names, entry["text"])
            elif names and line.startswith(" " * 12):
                described |= {name: f"{described[name]} {line.strip()}" for name in names}
            elif line.strip():
                names = []
    return {name: described.get(name, "") for name in part.model_fields}


def json_schema() -> dict[str, Any]:
    """The JSON schema of a manifest, with the descriptions of the page."""
    schema = Manifest.model_json_schema()
    definitions = {**schema.get("$defs", {}), "Manifest": schema}
    for part in parts():
        definition = definitions.get(part.__name__)
        if definition is None:
            continue
        definition["description"] = _summary(part)
        for name, text in describe_fields(part).items():
            if text and name in definition.get("properties", {}):
                definition["properties"][name]["description"] = text
    value = schema["$defs"]["ValueSource"]
    schema["$defs"]["ValueSource"] = {"anyOf": [{"type": "string"}, value], "description": value["description"]}
    return schema


def _summary(part: type[BaseModel]) -> str:
    """The docstring up to its arguments, as one paragraph."""
    return " ".join((part.__doc__ or "").partition("Args:")[0].split())


def short_page(task: str) -> str:
    """Return what an agent needs to write a manifest of a task, in fewer than 2,000 tokens."""
    lines = [
        "# Manifest",
        "",
        *_introduction(),
        "",
        'Keys with examples (`*`: needed; `|`: one of; a text with `{columns}` stands for `{"value": text}` wherever a value is '
        "meant):",
        "",
    ]
    other_targets = {*TARGET_PARTS} - {*TARGETS[task], *OPTIONAL_PARTS.get(task, ())}
    reached: list[type[ManifestPart]] = [Manifest]
    for part in reached:  # grows while it is read
        fields = {
            name: field
            for name, field in part.model_fields.items()
            if part is not Manifest or name not in other_targets
        }
        inner_parts = dict.fromkeys(inner for field in fields.values() for inner in _parts_of(field.annotation))
        reached += [inner for inner in inner_parts if inner not in reached]
        lines.append(
            f"- {part.__name__}: {', '.join(_short_field(part, name, field) for name, field in fields.items())}"
        )
    lines += ["", *_short_notes(), "", *_match_lines(), "", json.dumps(EXAMPLES[task])]
    return "\n".join(lines).replace('task* ""', f'task* "{task}"')


SHORT_NOTES: tuple[tuple[type[ManifestPart], str], ...] = (
    (Manifest, "exclude"),
    (Images, "frames"),
)
"""Keys whose meaning the short page gives, since their names do not say it."""


def _short_notes() -> list[str]:
    """Return the meaning of keys that an example does not tell."""
    return [f"- `{part.__name__}.{name}`: {describe_fields(part)[name]}" for part, name in SHORT_NOTES]


def _parts_of(annotation: Any) -> list[type[ManifestPart]]:
    """Return the classes of the model in the type of a field."""
    if inspect.isclass(annotation) and issubclass(annotation, ManifestPart):
        return [annotation]
    return list(dict.fromkeys(part for inner in get_args(annotation) for part in _parts_of(inner)))


def full_page() -> str:
    """Everything about manifests: every key with its meaning, and an example a task."""
    lines = ["# Manifest", "", *_introduction(), "", *_match_lines()]
    for part in parts():
        lines += ["", f"## {part.__name__}", "", _summary(part), ""]
        described = describe_fields(part)
        for name, field in part.model_fields.items():
            default = (
                ""
                if field.is_required()
                else f", default `{json.dumps(_to_json(field.get_default(call_default_factory=True)))}`"
            )
            text = described[name] or _summary_of_annotation(field.annotation)
            lines.append(f"- `{name}` ({_type_name(field.annotation)}{default}): {text}")
    lines += ["", "## Examples"]
    for task, example in EXAMPLES.items():
        lines += ["", f"{task}:", "", "```json", json.dumps(example, indent=1), "```"]
    return "\n".join(lines) + "\n"


def _introduction() -> list[str]:
    """The paragraphs of the module about columns, templates and patterns."""
    text = (model.__doc__ or "").partition("**Columns.**")
    return (text[1] + text[2]).strip().splitlines()


def _match_lines() -> list[str]:
    source = inspect.getsource(model)
    docstring = re.search(r'^Match = .*?"""(.*?)"""', source, re.DOTALL | re.MULTILINE)
    return ["**Match.** " + " ".join(docstring[1].split())] if docstring else []


def _short_field(part: type[ManifestPart], name: str, field: FieldInfo) -> str:
    examples = FIELD_EXAMPLES["Files"] if issubclass(part, Files) else {}
    examples = examples | FIELD_EXAMPLES[part.__name__]
    inner_parts = [inner.__name__ for inner in _parts_of(field.annotation)]
    choices = [json.dumps(choice) for choice in _choices(field.annotation)]
    if name in examples:
        text = json.dumps(examples[name])
    elif inner_parts and str(field.annotation).startswith("dict"):
        text = f'{{"name": {inner_parts[0]}}}'
    elif inner_parts:
        text = f"[{inner_parts[0]}]" if str(field.annotation).startswith("tuple") else inner_parts[0]
    elif choices and name not in ("task", "match"):
        text = "|".join(choices)
    else:
        text = json.dumps("" if field.is_required() else field.get_default(call_default_factory=True))
    return f"{name}{'*' if field.is_required() else ''} {text}"


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a Literal."""
    return get_args(annotation) if str(annotation).startswith("typing.Literal") else ()


def _type_name(annotation: Any) -> str:
    """A type in the words of JSON."""
    if choices := _choices(annotation):
        return " | ".join(f"`{json.dumps(choice)}`" for choice in choices)
    text = str(annotation)
    if inspect.isclass(annotation):
        names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
        return names.get(annotation, annotation.__name__)
    text = re.sub(r"typing\.Annotated\[(.*?), BeforeValidator\(.*?\)\]", r"\1", text)
    text = re.sub(r"Optional\[(.*)\]", r"\1", text)
    text = re.sub(r"m3b\.dataset\.manifest\.model\.|typing\.|, \.\.\.", "", text)
    for python, json_word in (
        ("ValueSource", "value"),
        ("tuple", "list"),
        ("dict", "object"),
        ("str", "text"),
        ("bool", "true or false"),
        ("int", "whole number"),
        ("float", "number"),
        (" | None", ""),
    ):
        text = re.sub(rf"\b{python}\b" if python[0] != " " else re.escape(python), json_word, text)
    text = re.sub(r"object\[text, (.+)\]$", r"object of \1", text)
    return re.sub(r"list\[([^\]]+)\]", r"list of \1", text)


def _summary_of_annotation(annotation: Any) -> str:
    """What the class of a field says of itself."""
    for candidate in (annotation, *get_args(annotation)):
        if inspect.isclass(candidate) and issubclass(candidate, ManifestPart):
            return _summary(candidate)
        for inner in get_args(candidate):
            if inspect.isclass(inner) and issubclass(inner, ManifestPart):
                return _summary(inner)
    return ""


def _to_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    return list(value) if isinstance(value, tuple) else value
