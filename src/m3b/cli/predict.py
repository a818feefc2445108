"""`m3b predict`: predict images or folders with a delivered model, to the screen, a file or a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.delivered import Unconfined, open_model
from m3b.cli.output import echo, print_error, print_json, refuse_overwriting
from m3b.cli.run import ForceOption, JsonOption, ModelArgument
from m3b.errors import DataError, UsageError

if TYPE_CHECKING:
    from m3b.models import Model, Prediction

FILE_SUFFIXES = (".json", ".csv")
PREDICTIONS_FILE = "predictions.json"


def predict(
    model: ModelArgument,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, volumes, series folders; folders are searched for images. If a case has several images, "
            "NAME=PATH for each of them; a repeated name begins the next case."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="A folder for predictions.json and masks, or a .json or .csv file."),
    ] = None,
    covariates: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=VALUE",
            help="A covariate of the model, one option each; `NAME=` means unknown.",
        ),
    ] = None,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Draw each image with its prediction, as PNG, into the folder.")
    ] = False,
    dicom: Annotated[
        bool,
        typer.Option(
            "--dicom", help="For DICOM images: write masks as DICOM SEG, classes and numbers as SR, into the folder."
        ),
    ] = False,
    unconfined: Unconfined = False,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Predict images with a delivered model, whose code runs confined."""
    from m3b.data.records import paths_of

    _require_paths(str(path) for path in images if "=" not in str(path))
    opened_model = open_model(model, unconfined=unconfined)
    cases = parse_cases(images, opened_model.channels)
    _require_paths(path for case in cases for path in paths_of(case))
    folder = _resolve_output_folder(out, opened_model.task, overlay, dicom)
    if folder is not None:
        refuse_overwriting([folder / name for name in (PREDICTIONS_FILE, "masks", "overlays", "dicom")], force=force)
    elif out is not None:
        refuse_overwriting([out], force=force)
    paths = cases if opened_model.channels else _find_images(images, opened_model)
    if dicom:
        _require_dicom_support(paths, opened_model)
    with opened_model:
        predictions = opened_model.predict(
            add_covariates(paths, covariates or [], opened_model), strict=False, out=folder
        )
    dicom_files = _write_dicom_files(predictions, opened_model, folder) if dicom and folder is not None else {}
    overlay_files = _draw_overlays(predictions, opened_model, folder) if overlay and folder is not None else {}
    entries = [
        _to_entry(entry, folder, overlay_files.get(index), dicom_files.get(index))
        for index, entry in enumerate(predictions)
    ]
    if folder is not None:
        _write_entries(entries, folder / PREDICTIONS_FILE)
    elif out is not None:
        _write_entries(entries, out)
    if json:
        print_json({"model": str(opened_model.folder), "predictions": entries})
    else:
        for entry in entries:
            echo(_format_entry(entry))
        if folder is not None:
            echo(f"written to {folder}: {_describe_written_files(entries)}", err=True)
    raise typer.Exit(1 if any(entry.get("error") for entry in entries) else 0)


def _require_paths(paths: Iterable[str]) -> None:
    missing = [path for path in paths if not Path(path.split("#")[0]).exists()]
    if missing:
        raise UsageError(
            f"There is no {missing[0]}" + (f" (and {len(missing) - 1} more)." if len(missing) > 1 else ".")
        )


def _resolve_output_folder(out: Path | None, task: str, overlay: bool, dicom: bool) -> Path | None:
    """Return the output folder; None if `-o` is missing or names a file."""
    from m3b.models.answers import answer_format_of

    is_file_path = out is not None and out.suffix.lower() in FILE_SUFFIXES and not out.is_dir()
    if out is not None and out.is_file() and not is_file_path:
        raise UsageError(f"-o {out}: this is a file; name a folder, or a .json or .csv file.")
    if out is not None and not is_file_path and out.suffix and not out.is_dir():
        raise UsageError(
            f"-o {out}: name a folder (one without an ending, or one that exists), or a .json or .csv file."
        )
    if out is not None and is_file_path and not out.parent.is_dir():
        raise UsageError(f"-o {out}: there is no folder {out.parent}.")
    folder = None if is_file_path else out
    if folder is None and answer_format_of(task).requires_output_folder():
        raise UsageError(f"A {task} model writes masks: name a folder for them with -o DIR.")
    if folder is None and overlay:
        raise UsageError("--overlay draws pictures: name a folder for them with -o DIR.")
    if folder is None and dicom:
        raise UsageError("--dicom writes DICOM objects: name a folder for them with -o DIR.")
    return folder


def parse_cases(arguments: Sequence[str], channel_names: Sequence[str]) -> list[Any]:
    """Return the cases: paths, or objects channel -> path if a case has several images.

    Raises:
        UsageError: an argument has no channel name, or a case lacks a channel.
    """
    from m3b.data.reading import shared, shared_channels

    channels = shared_channels()
    try:
        cases: list[Any] = channels.cases_of(arguments, list(channel_names))
        return [channels.arranged(case, list(channel_names)) for case in cases] if channel_names else cases
    except shared().ImageError as error:
        raise UsageError(f"{error}") from error


def add_covariates(paths: Sequence[Any], assignments: Sequence[str], model: Model) -> list[Any]:
    """Return the cases with the covariates of `NAME=VALUE` arguments, the same for all cases.

    Raises:
        UsageError: the model takes no covariates, a name is unknown, or a required one is missing.
    """
    from m3b.errors import ModelError
    from m3b.models.loading import split_covariates

    rules = {str(rule["name"]): rule for rule in model.covariates}
    if not rules and not assignments:
        return list(paths)
    covariates: dict[str, Any] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or name not in rules:
            expected = f"name one of {', '.join(rules)}" if rules else "this model takes images only"
            raise UsageError(f"--with {assignment}: {expected}.")
        covariates[name] = value or None
        if value and rules[name]["kind"] == "number":
            try:
                covariates[name] = float(value)
            except ValueError:
                raise UsageError(f"--with {assignment}: {name} is a number.") from None
    try:
        split_covariates({"image": "", **covariates}, model.covariates)
    except ModelError as error:
        raise UsageError(f"{error}; name each with --with NAME=VALUE.") from error
    return [{"image": path, **covariates} for path in paths]


def _find_images(images: Iterable[str], model: Model) -> list[Any]:
    from m3b.models.image_jobs import find_images_confined

    plan = model.config.get("plan")
    plan = plan if isinstance(plan, dict) else {}
    views = plan.get("views") or 1
    has_several_views = isinstance(views, int) and views > 1
    search_result = find_images_confined(images, is_2d=plan.get("dims") == 2, group_views=has_several_views)
    for note in search_result.notes:
        echo(note, err=True)
    if not search_result.images:
        raise UsageError("No image was found below the paths given.")
    return search_result.images


def _draw_overlays(predictions: list[Prediction], model: Model, folder: Path) -> dict[int, Path]:
    """Return position -> PNG file; for an image that cannot be drawn, print the error and continue."""
    from m3b.data.records import paths_of
    from m3b.isolation.reader.inprocess import open_reader
    from m3b.models import read_model_info
    from m3b.models.image_jobs import OverlayPainter, paths_to_mount
    from m3b.writing import to_one_line

    model_info, plan = read_model_info(model.folder), model.config.get("plan")
    window = plan.get("intensity") if isinstance(plan, dict) else None
    overlay_files: dict[int, Path] = {}
    with open_reader(paths_to_mount(predictions)) as reader:
        painter = OverlayPainter(reader, model_info, window if isinstance(window, dict) else None)
        for index, prediction in enumerate(predictions):
            if prediction.error:
                continue
            stem = to_one_line(Path(paths_of(prediction.image)[0]).name.split(".")[0]) or "image"
            try:
                overlay_files[index] = painter.draw(prediction, folder / "overlays" / f"{index + 1:04d}_{stem}.png")
            except DataError as error:
                print_error(error)
    return overlay_files


def _require_dicom_support(paths: Sequence[Any], model: Model) -> None:
    """Raise UsageError if DICOM cannot be written; called before anything is predicted."""
    from m3b.models.answers import answer_format_of
    from m3b.models.dicom.output import check_sources

    if not answer_format_of(model.task).fits_dicom():
        raise UsageError(f"--dicom writes masks, classes and numbers; a {model.task} model answers in text.")
    check_sources(paths)


def _write_dicom_files(predictions: list[Prediction], model: Model, folder: Path) -> dict[int, list[Path]]:
    """Return position -> DICOM objects, which carry the model's title and the version of its measured files."""
    from m3b.models import read_model_info
    from m3b.models.checksums import PROVENANCE_FILE, sha256_of
    from m3b.models.dicom.output import write_dicom

    title = next((line.removeprefix("# ") for line in model.card.splitlines() if line.startswith("# ")), model.task)
    manifest_file = model.folder / PROVENANCE_FILE
    version = sha256_of(manifest_file)[:16] if manifest_file.is_file() else "0"
    return write_dicom(predictions, read_model_info(model.folder), title, version, folder / "dicom")


def _to_entry(
    prediction: Prediction, folder: Path | None, overlay: Path | None, dicom_files: list[Path] | None = None
) -> dict[str, Any]:
    """Return a prediction as JSON, with files relative to the output folder; without a folder, files are omitted."""
    if folder is None:
        return replace(prediction, mask=None, masks={}, anomaly_map=None).to_dict()
    entry = prediction.to_dict()
    if prediction.mask is not None:
        entry["mask"] = _relative_to(prediction.mask, folder)
    if prediction.masks:
        entry["masks"] = {name: _relative_to(file, folder) for name, file in prediction.masks.items()}
    if prediction.anomaly_map is not None:
        entry["anomaly_map"] = _relative_to(prediction.anomaly_map, folder)
    if overlay is not None:
        entry["overlay"] = _relative_to(overlay, folder)
    if dicom_files:
        entry["dicom"] = [_relative_to(file, folder) for file in dicom_files]
    return entry


def _relative_to(file: Path, folder: Path) -> str:
    return Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()


def _format_entry(entry: dict[str, Any]) -> str:
    from m3b.data.records import paths_of

    first_path, *other_paths = paths_of(entry["image"])
    case_name = f"{first_path} and {len(other_paths)} more" if other_paths else first_path
    if entry.get("error"):
        return f"{case_name}: not predicted: {entry['error']}"
    parts = [f"OUT OF DISTRIBUTION: {entry['why']}"] if entry.get("out_of_distribution") else []
    if "probabilities" in entry:
        values = ", ".join(f"{name} {value:.3f}" for name, value in entry["probabilities"].items())
        parts.append(f"{', '.join(entry['prediction']) or 'none'} ({values})")
    if entry.get("abstains"):
        parts.append(f"abstains: {', '.join(entry['prediction_set']) or 'no class'} at {entry['set_level']:.0%}")
    if "value" in entry:
        parts.append(format_value_with_interval(entry))
    if "risk" in entry:
        median_text = (
            f"median {entry['median']:.4g}"
            if entry.get("median") is not None
            else f"median beyond {entry['survival'][-1][0]:g}"
        )
        parts.append(f"risk {entry['risk']:.3f} ({median_text})")
    if "volumes_ml" in entry:
        volume_texts = [(n, "?" if v is None else f"{v:.2f}") for n, v in entry["volumes_ml"].items()]
        parts.append(", ".join(f"{name} {value} ml" for name, value in volume_texts))
    if "anomaly_score" in entry:
        parts.append(f"anomaly score {entry['anomaly_score']:.3f}")
    if "boxes" in entry:
        parts.append(f"{len(entry['boxes'])} box(es)")
    for part in ("findings", "impression"):
        if entry.get(part):
            parts.append(f"{part}: {entry[part]}")
    if "mask" in entry:
        parts.append(entry["mask"])
    parts += [f"{name} {value}" for name, value in _select_custom_fields(entry).items() if name not in VALUE_FIELDS]
    return f"{case_name}: {'; '.join(parts) or 'nothing found'}"


VALUE_FIELDS = ("value", "interval", "interval_level", "risk", "survival", "median")


def format_value_with_interval(entry: dict[str, Any]) -> str:
    """Return text such as `131.4 (90 % interval 112.0 to 150.8)`."""
    if "interval" not in entry:
        return f"{entry['value']:.4g}"
    low, high = entry["interval"]
    return f"{entry['value']:.4g} ({entry.get('interval_level', 0):.0%} interval {low:.4g} to {high:.4g})"


def _select_custom_fields(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a prediction that a task family of the user added."""
    from m3b.models import Prediction

    return {
        name: value
        for name, value in entry.items()
        if name not in (*Prediction.__dataclass_fields__, "overlay", "dicom")
    }


def _describe_written_files(entries: list[dict[str, Any]]) -> str:
    """Return which files were written now; older files with other names are kept."""
    masks = {file for entry in entries for file in (entry.get("mask"), *entry.get("masks", {}).values()) if file}
    overlays = {entry["overlay"] for entry in entries if "overlay" in entry}
    dicom_files = {file for entry in entries for file in entry.get("dicom", ())}
    file_counts = (("masks", len(masks)), ("overlays", len(overlays)), ("dicom", len(dicom_files)))
    return ", ".join([PREDICTIONS_FILE, *(f"{count} in {name}/" for name, count in file_counts if count)])


def _write_entries(entries: list[dict[str, Any]], file: Path) -> None:
    import csv

    from m3b.writing import csv_cell, json_text

    if file.suffix.lower() == ".json":
        file.write_text(json_text(entries, indent=1) + "\n", encoding="utf-8")
        return
    with file.open("w", newline="", encoding="utf-8") as stream:
        rows = [_to_csv_row(entry) for entry in entries]
        names = list(dict.fromkeys(name for row in rows for name in row if name not in ("prediction", "error")))
        names = [*names, "prediction", "error"]
        writer = csv.writer(stream)
        writer.writerow(map(csv_cell, names))
        writer.writerows([csv_cell(row.get(name, "")) for name in names] for row in rows)


def _to_csv_row(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table: a column for each probability and volume, the number of boxes, the texts."""
    from m3b.data.records import paths_of

    image = "|".join(paths_of(entry["image"]))
    row = {"image": image, **entry.get("probabilities", {})}
    row |= {f"{name} ml": value for name, value in entry.get("volumes_ml", {}).items()}
    if "boxes" in entry:
        row["boxes"] = len(entry["boxes"])
    row |= {key: entry[key] for key in ("anomaly_score", "findings", "impression") if key in entry}
    row |= {key: entry[key] for key in ("out_of_distribution", "why", "abstains") if key in entry}
    row |= {"prediction_set": "|".join(entry["prediction_set"])} if "prediction_set" in entry else {}
    row |= _select_custom_fields(entry)
    prediction = entry.get("prediction", "")
    text = prediction if isinstance(prediction, str) else "|".join(prediction)
    return {**row, "prediction": text, "error": entry.get("error", "")}
