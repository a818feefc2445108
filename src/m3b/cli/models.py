"""`m3b predict` and `m3b score`: using and measuring a delivered model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from m3b.cli.run import Json
from m3b.cli.show import complain, measure_line, print_json
from m3b.errors import ModelError, WrongUse


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a delivered model.")],
    images: Annotated[
        list[Path], typer.Argument(help="Images, volumes, series folders; folders of images are opened.")
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write predictions to a .json or .csv file.")] = None,
    json: Json = False,
) -> None:
    """Predict images with a delivered model, in a process of its own."""
    from m3b.models import load_model

    missing = [str(path) for path in images if not Path(str(path).split("#")[0]).exists()]
    if missing:
        raise WrongUse(f"There is no {missing[0]}" + (f" (and {len(missing) - 1} more)." if len(missing) > 1 else "."))
    if out is not None and out.suffix.lower() not in (".json", ".csv"):
        raise WrongUse(f"-o {out}: the name must end in .json or .csv.")
    loaded = load_model(model)
    plan = loaded.config.get("plan")
    flat = isinstance(plan, dict) and plan.get("dims") == 2
    paths = [str(path) for path in _expand(images, flat)]
    predictions = [item.to_dict() for item in loaded.predict(paths, strict=False)]
    if out is not None:
        _write(predictions, out)
    if json:
        print_json({"model": str(model), "predictions": predictions})
    else:
        for item in predictions:
            typer.echo(_line(item))
    raise typer.Exit(1 if any(item.get("error") for item in predictions) else 0)


FLAT = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm", ".dicom")


def _expand(images: list[Path], flat: bool) -> list[Path]:
    """Folders that hold single images become their files; a series or a stack of slices stays a folder.

    Args:
        flat: whether the model takes 2D images, so that a folder of them is no stack.
    """
    paths: list[Path] = []
    for path in images:
        inside = sorted(p for p in path.iterdir() if not p.name.startswith(".")) if path.is_dir() else []
        volumes = (".nii", ".gz", ".nrrd", ".mha", ".npy")
        pictures = [p for p in inside if p.is_file() and p.suffix.lower() in FLAT]
        if flat and pictures:
            paths += pictures
        elif inside and (any(p.is_dir() for p in inside) or inside[0].suffix.lower() in volumes):
            paths += inside
        else:
            paths.append(path)
    return paths


def _line(item: dict[str, Any]) -> str:
    if item.get("error"):
        return f"{item['image']}: not predicted: {item['error']}"
    shown = ", ".join(f"{name} {value:.3f}" for name, value in item["probabilities"].items())
    decided = item["prediction"]
    return f"{item['image']}: {decided if isinstance(decided, str) else ', '.join(decided) or 'none'} ({shown})"


def _write(predictions: list[dict[str, Any]], file: Path) -> None:
    import csv
    import json

    if file.suffix.lower() == ".json":
        file.write_text(json.dumps(predictions, indent=1, ensure_ascii=False), encoding="utf-8")
    else:
        names = list(dict.fromkeys(name for item in predictions for name in item.get("probabilities", {})))
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["image", *names, "prediction", "error"])
            for item in predictions:
                values = [item.get("probabilities", {}).get(name, "") for name in names]
                decided = item.get("prediction", "")
                text = decided if isinstance(decided, str) else "|".join(decided)
                writer.writerow([item["image"], *values, text, item.get("error", "")])


def score(
    model: Annotated[Path, typer.Argument(help="The folder of a delivered model.")],
    index: Annotated[Path, typer.Argument(help="An index file with images, labels and patients, such as test.json.")],
    base: Annotated[
        Path | None, typer.Option(help="What the index's paths count from. Default: beside or above the index.")
    ] = None,
    metric: Annotated[str, typer.Option(help="The metric to lead with.")] = "auroc",
    json: Json = False,
) -> None:
    """Measure a delivered model on labelled cases, with intervals."""
    from m3b.agents.checks.model import cases_of
    from m3b.data.index import read_records
    from m3b.metrics import score_diagnosis
    from m3b.models import load_model

    records = read_records(index)
    root = base or _base(index, records[0].files[0])
    loaded = load_model(model)
    paths = [_under(root, r.image) if isinstance(r.image, str) else [_under(root, p) for p in r.image] for r in records]
    answers = loaded.predict(paths, strict=False)
    bad = [answer.error for answer in answers if answer.error]
    if bad:
        complain(ModelError(f"{len(bad)} of {len(answers)} images could not be predicted: {bad[0]}"))
        raise typer.Exit(1)
    cases = cases_of(records, [dict(answer.probabilities) for answer in answers])
    try:
        scores = score_diagnosis(cases, loaded.classes, loaded.multi_label, primary=metric)
    except ValueError as error:
        raise WrongUse(f"These cases cannot be scored: {error}") from error
    if json:
        print_json(scores.to_dict())
        return
    for measure in scores.to_dict()["metrics"].values():
        typer.echo(measure_line(measure))


def _base(index: Path, first: str) -> Path:
    for folder in (index.parent, *index.absolute().parents):
        if (folder / first).exists():
            return folder
    raise WrongUse(f"{first}, the first image of {index}, is found neither beside nor above it. Give --base.")


def _under(root: Path, path: str) -> str:
    return str((root / path).absolute())
