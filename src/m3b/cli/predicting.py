"""`m3b predict`: images or folders through a delivered model, to the screen, a file or a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.delivered import Unconfined, open_model
from m3b.cli.run import Force, Json, ModelName
from m3b.cli.show import complain, echo, print_json, spare
from m3b.errors import DataError, WrongUse

if TYPE_CHECKING:
    from m3b.models import Model, Prediction

FILES = (".json", ".csv")
ANSWERS = "predictions.json"


def predict(
    model: ModelName,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, volumes, series folders; folders are searched for images. Of a model whose cases are several "
            "images, NAME=PATH for each of them; a name that comes again begins the next case."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="A folder for predictions.json and masks, or a .json or .csv file."),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=VALUE",
            help="What the model is given beside the images, one option each; NAME= is unknown.",
        ),
    ] = None,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Draw each image with what was found, as PNG, into the folder.")
    ] = False,
    dicom: Annotated[
        bool,
        typer.Option(
            "--dicom", help="Of DICOM images: masks as DICOM SEG, classes and numbers as SR, into the folder."
        ),
    ] = False,
    unconfined: Unconfined = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict images with a delivered model, whose code runs confined."""
    from m3b.data.records import paths_of

    _require_paths(str(path) for path in images if "=" not in str(path))
    loaded = open_model(model, unconfined=unconfined)
    cases = named_cases(images, loaded.channels)
    _require_paths(path for case in cases for path in paths_of(case))
    folder = _folder(out, loaded.task, overlay, dicom)
    if folder is not None:
        spare([folder / name for name in (ANSWERS, "masks", "overlays", "dicom")], force=force)
    elif out is not None:
        spare([out], force=force)
    paths = cases if loaded.channels else _images(images, loaded)
    if dicom:
        _require_dicom_support(paths, loaded)
    with loaded:
        predictions = loaded.predict(with_covariates(paths, given or [], loaded), strict=False, out=folder)
    dicom_files = _objects(predictions, loaded, folder) if dicom and folder is not None else {}
    overlay_files = _draw_overlays(predictions, loaded, folder) if overlay and folder is not None else {}
    entries = [
        _entry(entry, folder, overlay_files.get(index), dicom_files.get(index))
        for index, entry in enumerate(predictions)
    ]
    if folder is not None:
        _write(entries, folder / ANSWERS)
    elif out is not None:
        _write(entries, out)
    if json:
        print_json({"model": str(loaded.folder), "predictions": entries})
    else:
        for entry in entries:
            echo(_line(entry))
        if folder is not None:
            echo(f"written to {folder}: {_describe_written_files(entries)}", err=True)
    raise typer.Exit(1 if any(entry.get("error") for entry in entries) else 0)


def _require_paths(paths: Iterable[str]) -> None:
    missing = [path for path in paths if not Path(path.split("#")[0]).exists()]
    if missing:
        raise WrongUse(f"There is no {missing[0]}" + (f" (and {len(missing) - 1} more)." if len(missing) > 1 else "."))


def _folder(out: Path | None, task: str, overlay: bool, dicom: bool) -> Path | None:
    """The output folder, where `-o` names one and no file."""
    from m3b.models.answers import of as answers_of

    is_file_path = out is not None and out.suffix.lower() in FILES and not out.is_dir()
    if out is not None and out.is_file() and not is_file_path:
        raise WrongUse(f"-o {out}: this is a file; name a folder, or a .json or .csv file.")
    if out is not None and not is_file_path and out.suffix and not out.is_dir():
        raise WrongUse(f"-o {out}: name a folder (one without an ending, or one that exists), or a .json or .csv file.")
    if out is not None and is_file_path and not out.parent.is_dir():
        raise WrongUse(f"-o {out}: there is no folder {out.parent}.")
    folder = None if is_file_path else out
    if folder is None and answers_of(task).needs_folder:
        raise WrongUse(f"A {task} model writes masks: name a folder for them with -o DIR.")
    if folder is None and overlay:
        raise WrongUse("--overlay draws pictures: name a folder for them with -o DIR.")
    if folder is None and dicom:
        raise WrongUse("--dicom writes DICOM objects: name a folder for them with -o DIR.")
    return folder


def named_cases(words: Sequence[str], names: Sequence[str]) -> list[Any]:
    """What was asked for: paths, or where a case is several images, objects channel -> path.

    Raises:
        WrongUse: a word without a channel's name, or a case without one of its channels.
    """
    from m3b.data.reading import shared, shared_channels

    channels = shared_channels()
    try:
        cases: list[Any] = channels.cases_of(words, list(names))
        return [channels.arranged(case, list(names)) for case in cases] if names else cases
    except shared().ImageError as error:
        raise WrongUse(f"{error}") from error


def with_covariates(paths: Sequence[Any], words: Sequence[str], model: Model) -> list[Any]:
    """Cases with what `NAME=VALUE` words say beside the images, the same for all.

    Raises:
        WrongUse: the model is given none, a name that it does not know, or one that it needs is missing.
    """
    from m3b.errors import ModelError
    from m3b.models.beside import parted_case

    rules = {str(rule["name"]): rule for rule in model.covariates}
    if not rules and not words:
        return list(paths)
    covariates: dict[str, Any] = {}
    for assignment in words:
        name, separator, value = assignment.partition("=")
        if not separator or name not in rules:
            expected = f"name one of {', '.join(rules)}" if rules else "this model is given images alone"
            raise WrongUse(f"--with {assignment}: {expected}.")
        covariates[name] = value or None
        if value and rules[name]["kind"] == "number":
            try:
                covariates[name] = float(value)
            except ValueError:
                raise WrongUse(f"--with {assignment}: {name} is a number.") from None
    try:
        parted_case({"image": "", **covariates}, model.covariates)
    except ModelError as error:
        raise WrongUse(f"{error}; name each with --with NAME=VALUE.") from error
    return [{"image": path, **covariates} for path in paths]


def _images(images: Iterable[str], model: Model) -> list[Any]:
    from m3b.models.opened import found_in

    plan = model.config.get("plan")
    plan = plan if isinstance(plan, dict) else {}
    views = plan.get("views") or 1
    has_several_views = isinstance(views, int) and views > 1
    search_result = found_in(images, flat=plan.get("dims") == 2, studies=has_several_views)
    for note in search_result.notes:
        echo(note, err=True)
    if not search_result.images:
        raise WrongUse("No image was found below the paths given.")
    return search_result.images


def _draw_overlays(predictions: list[Prediction], model: Model, folder: Path) -> dict[int, Path]:
    """PNG files by position; what cannot be drawn is said and left out."""
    from m3b.data.records import paths_of
    from m3b.models import read_promise
    from m3b.models.opened import Painter, places_of
    from m3b.reader.outside import reading
    from m3b.writing import one_line

    model_info, plan = read_promise(model.folder), model.config.get("plan")
    window = plan.get("intensity") if isinstance(plan, dict) else None
    overlay_files: dict[int, Path] = {}
    with reading(places_of(predictions)) as reader:
        painter = Painter(reader, model_info, window if isinstance(window, dict) else None)
        for index, prediction in enumerate(predictions):
            if prediction.error:
                continue
            stem = one_line(Path(paths_of(prediction.image)[0]).name.split(".")[0]) or "image"
            try:
                overlay_files[index] = painter.draw(prediction, folder / "overlays" / f"{index + 1:04d}_{stem}.png")
            except DataError as error:
                complain(error)
    return overlay_files


def _require_dicom_support(paths: Sequence[Any], model: Model) -> None:
    """Raises WrongUse where it cannot; before anything is predicted."""
    from m3b.models.answers import of as answers_of
    from m3b.models.dicom.writing import check_sources

    if not answers_of(model.task).as_dicom:
        raise WrongUse(f"--dicom writes masks, classes and numbers; a {model.task} model answers in text.")
    check_sources(paths)


def _objects(found: list[Prediction], model: Model, folder: Path) -> dict[int, list[Path]]:
    """DICOM objects by position, named after the model's title and the version of its measured files."""
    from m3b.models import read_promise
    from m3b.models.dicom.writing import write_dicom
    from m3b.models.manifest import MANIFEST, sha256_of

    title = next((line.removeprefix("# ") for line in model.card.splitlines() if line.startswith("# ")), model.task)
    manifest_file = model.folder / MANIFEST
    version = sha256_of(manifest_file)[:16] if manifest_file.is_file() else "0"
    return write_dicom(found, read_promise(model.folder), title, version, folder / "dicom")


def _entry(
    item: Prediction, folder: Path | None, overlay: Path | None, objects: list[Path] | None = None
) -> dict[str, Any]:
    """The answer as JSON; files count from the output folder, and are left out where there is none."""
    if folder is None:
        return replace(item, mask=None, masks={}, anomaly_map=None).to_dict()
    entry = item.to_dict()
    if item.mask is not None:
        entry["mask"] = _inside(item.mask, folder)
    if item.masks:
        entry["masks"] = {name: _inside(file, folder) for name, file in item.masks.items()}
    if item.anomaly_map is not None:
        entry["anomaly_map"] = _inside(item.anomaly_map, folder)
    if overlay is not None:
        entry["overlay"] = _inside(overlay, folder)
    if objects:
        entry["dicom"] = [_inside(file, folder) for file in objects]
    return entry


def _inside(file: Path, folder: Path) -> str:
    return Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()


def _line(item: dict[str, Any]) -> str:
    from m3b.data.records import paths_of

    first_path, *other_paths = paths_of(item["image"])
    case_name = f"{first_path} and {len(other_paths)} more" if other_paths else first_path
    if item.get("error"):
        return f"{case_name}: not predicted: {item['error']}"
    parts = [f"OUT OF DISTRIBUTION: {item['why']}"] if item.get("out_of_distribution") else []
    if "probabilities" in item:
        values = ", ".join(f"{name} {value:.3f}" for name, value in item["probabilities"].items())
        parts.append(f"{', '.join(item['prediction']) or 'none'} ({values})")
    if item.get("abstains"):
        parts.append(f"abstains: {', '.join(item['prediction_set']) or 'no class'} at {item['set_level']:.0%}")
    if "value" in item:
        parts.append(number_told(item))
    if "risk" in item:
        median_text = (
            f"median {item['median']:.4g}"
            if item.get("median") is not None
            else f"median beyond {item['survival'][-1][0]:g}"
        )
        parts.append(f"risk {item['risk']:.3f} ({median_text})")
    if "volumes_ml" in item:
        volume_texts = [(n, "?" if v is None else f"{v:.2f}") for n, v in item["volumes_ml"].items()]
        parts.append(", ".join(f"{name} {value} ml" for name, value in volume_texts))
    if "anomaly_score" in item:
        parts.append(f"anomaly score {item['anomaly_score']:.3f}")
    if "boxes" in item:
        parts.append(f"{len(item['boxes'])} box(es)")
    for part in ("findings", "impression"):
        if item.get(part):
            parts.append(f"{part}: {item[part]}")
    if "mask" in item:
        parts.append(item["mask"])
    parts += [f"{name} {value}" for name, value in _others(item).items() if name not in NUMBER]
    return f"{case_name}: {'; '.join(parts) or 'nothing found'}"


NUMBER = ("value", "interval", "interval_level", "risk", "survival", "median")


def number_told(item: dict[str, Any]) -> str:
    """`131.4 (90 % interval 112.0 to 150.8)`."""
    if "interval" not in item:
        return f"{item['value']:.4g}"
    low, high = item["interval"]
    return f"{item['value']:.4g} ({item.get('interval_level', 0):.0%} interval {low:.4g} to {high:.4g})"


def _others(item: dict[str, Any]) -> dict[str, Any]:
    """What the answers of a task family of one's own hold."""
    from m3b.models import Prediction

    return {
        name: value
        for name, value in item.items()
        if name not in (*Prediction.__dataclass_fields__, "overlay", "dicom")
    }


def _describe_written_files(entries: list[dict[str, Any]]) -> str:
    """What was written now; older files of other names stay."""
    masks = {file for entry in entries for file in (entry.get("mask"), *entry.get("masks", {}).values()) if file}
    overlays = {entry["overlay"] for entry in entries if "overlay" in entry}
    dicom_files = {file for entry in entries for file in entry.get("dicom", ())}
    file_counts = (("masks", len(masks)), ("overlays", len(overlays)), ("dicom", len(dicom_files)))
    return ", ".join([ANSWERS, *(f"{count} in {name}/" for name, count in file_counts if count)])


def _write(predictions: list[dict[str, Any]], file: Path) -> None:
    import csv

    from m3b.writing import csv_cell, json_text

    if file.suffix.lower() == ".json":
        file.write_text(json_text(predictions, indent=1) + "\n", encoding="utf-8")
        return
    with file.open("w", newline="", encoding="utf-8") as stream:
        rows = [_row(entry) for entry in predictions]
        names = list(dict.fromkeys(name for row in rows for name in row if name not in ("prediction", "error")))
        names = [*names, "prediction", "error"]
        writer = csv.writer(stream)
        writer.writerow(map(csv_cell, names))
        writer.writerows([csv_cell(row.get(name, "")) for name in names] for row in rows)


def _row(item: dict[str, Any]) -> dict[str, Any]:
    """One line of a table: a column for each probability and volume, the number of boxes, the texts."""
    from m3b.data.records import paths_of

    image = "|".join(paths_of(item["image"]))
    row = {"image": image, **item.get("probabilities", {})}
    row |= {f"{name} ml": value for name, value in item.get("volumes_ml", {}).items()}
    if "boxes" in item:
        row["boxes"] = len(item["boxes"])
    row |= {key: item[key] for key in ("anomaly_score", "findings", "impression") if key in item}
    row |= {key: item[key] for key in ("out_of_distribution", "why", "abstains") if key in item}
    row |= {"prediction_set": "|".join(item["prediction_set"])} if "prediction_set" in item else {}
    row |= _others(item)
    prediction = item.get("prediction", "")
    text = prediction if isinstance(prediction, str) else "|".join(prediction)
    return {**row, "prediction": text, "error": item.get("error", "")}
