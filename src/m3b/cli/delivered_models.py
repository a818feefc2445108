"""`m3b score`, `m3b recalibrate` and `m3b export`: a delivered model measured, fitted to a new site, and in other formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.delivered import Unconfined, announce_origin, open_model
from m3b.cli.output import format_metric, print_error, print_json, show_steps
from m3b.cli.run import JsonOption, ModelArgument
from m3b.errors import ModelError, UsageError

if TYPE_CHECKING:
    from m3b.data.index import Index
    from m3b.data.records import Record
    from m3b.models import Model, Prediction


def score(
    model: ModelArgument,
    index: Annotated[Path, typer.Argument(help="An index file with images, truth and patients, such as test.json.")],
    base: Annotated[
        Path | None,
        typer.Option(help="The folder that paths in the index are relative to. Default: found from the index."),
    ] = None,
    metric: Annotated[str | None, typer.Option(help="The primary metric. Default: that of the task.")] = None,
    unconfined: Unconfined = False,
    json: JsonOption = False,
) -> None:
    """Measure a delivered model on cases with known truth, with confidence intervals."""
    from dataclasses import replace

    from m3b.data.index import Index, read_records
    from m3b.measure import describe_test_sample
    from m3b.models.answers import describe_boxed, describe_ignored
    from m3b.tasks import get_default_metric, get_family, score_all

    if not index.is_file():
        raise UsageError(f"There is no {index}.")
    opened_model = open_model(model, unconfined=unconfined)
    records = read_records(index, opened_model.task)
    base_folder = base or _find_base_folder(index, records[0].files[0])
    records, sample = _take_test_sample(opened_model.folder, records)
    class_values = _read_class_values(opened_model, index)
    cases = Index((), records, tuple(class_values), opened_model.task, class_values)
    with opened_model:
        rows = _measure_cases(opened_model, cases, base_folder)
    task_family = get_family(opened_model.task)
    try:
        baseline = _predict_baseline(opened_model, cases, index, base_folder)
        scores = score_all(task_family, rows, cases, primary=metric or get_default_metric(cases), baseline=baseline)
    except ValueError as error:
        raise UsageError(f"These cases cannot be scored: {error}") from error
    if sample:
        scores = replace(scores, details={**scores.details, "test_sample": sample})
    if json:
        print_json(scores.to_dict())
        return
    if sample_note := describe_test_sample(sample):
        typer.echo(f"Measured on {sample_note}.")
    for measure in scores.to_dict()["metrics"].values():
        typer.echo(format_metric(measure))
    for sentence in (*describe_boxed(scores.details), *describe_ignored(scores.details)):
        typer.echo(sentence)


def recalibrate(
    model: ModelArgument,
    index: Annotated[
        Path, typer.Argument(help="An index file with labelled cases of the new site, such as train.json.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="A folder that does not exist yet.")],
    base: Annotated[
        Path | None,
        typer.Option(help="The folder that paths in the index are relative to. Default: found from the index."),
    ] = None,
    unconfined: Unconfined = False,
    json: JsonOption = False,
) -> None:
    """Fit thresholds and calibration of a model to labelled cases of a new site, and write the model with them."""
    from m3b.data.index import read_records
    from m3b.models import load_model
    from m3b.models.recalibration import recalibrate_model
    from m3b.run.folder import find_model_folder

    if not index.is_file():
        raise UsageError(f"There is no {index}.")
    folder = find_model_folder(model)
    announce_origin(folder, unconfined=unconfined)
    first_image = read_records(index, load_model(folder).task)[0].files[0]
    base_folder = base or _find_base_folder(index, first_image)
    result = recalibrate_model(folder, index, out, base=base_folder, unconfined=unconfined)
    if json:
        print_json(result.to_dict())
        return
    typer.echo(f"{result.folder}: fitted on {result.cases} cases of {result.patients} patients")
    for name, value in result.figures.items():
        typer.echo(f"  {name} {value}")


def _take_test_sample(
    model_folder: Path, records: tuple[Record, ...]
) -> tuple[tuple[Record, ...], dict[str, int] | None]:
    """Return the cases of an index that the run of a model measured, and their counts if they are a sample.

    All cases are returned unless the model is still in its run and the index holds the test part of that run.
    """
    from m3b.run.folder import RunFolder
    from m3b.run.sampled_test_part import read_test_sample

    sample = read_test_sample(RunFolder(model_folder.absolute().parent).locked)
    keys = {record.key for record in records}
    if sample is None or len(records) != sample.all_cases or not keys.issuperset(sample.keys):
        return records, None
    sampled_keys = set(sample.keys)
    return tuple(record for record in records if record.key in sampled_keys), sample.counts


def _measure_cases(model: Model, index: Index, base_folder: Path) -> list[dict[str, Any]]:
    """Return one row for each case. Predicted masks are deleted after they are measured."""
    from contextlib import closing

    from m3b.data.records import relocated
    from m3b.isolation.reader.inprocess import open_reader
    from m3b.isolation.untrusted import TemporaryFolder
    from m3b.models.input_cases import InputCases
    from m3b.models.prediction_session import PredictionSession
    from m3b.models.progress import report_progress
    from m3b.tasks.worker_jobs import measure_in_reader

    records = index.test
    images = [relocated(r.image, lambda path: str((base_folder / path).absolute())) for r in records]
    has_covariates = bool(model.covariates)
    inputs: list[Any] = [
        {"image": i, **r.covariates} if has_covariates else i for i, r in zip(images, records, strict=True)
    ]
    answers: list[Prediction] = []
    with TemporaryFolder("score") as scratch:
        with closing(InputCases(model.config, inputs, strict=False, expand_folders=False)) as input_cases:
            session = PredictionSession(model.worker, input_cases, output_folder=scratch, check_axes=False)
            with report_progress(len(input_cases) > 1, len(input_cases)) as advance:
                for answer in session.run():
                    answers.append(answer)
                    advance(len(answers), len(input_cases))
        errors = [answer.error for answer in answers if answer.error]
        if errors:
            print_error(ModelError(f"{len(errors)} of {len(answers)} images could not be predicted: {errors[0]}"))
            raise typer.Exit(1)
        with open_reader([*_list_reader_folders(base_folder), scratch]) as reader:
            return measure_in_reader(records, answers, index, base_folder.resolve(), reader)


def _read_class_values(model: Model, index: Path) -> dict[str, int]:
    """Return class -> number from label_dict.json next to the index if it exists, else from the model."""
    from m3b.data.index import read_values
    from m3b.models import read_model_info
    from m3b.models.answers import answer_format_of

    model_info = read_model_info(model.folder)
    class_values = dict(model_info.labels) or {name: number for number, name in enumerate(model_info.classes)}
    answer_format = answer_format_of(model.task)
    writes_masks = answer_format.has_mask_output(model_info)
    label_file = index.with_name("label_dict.json")
    if label_file.is_file() and answer_format.has_masks_option:
        file_values = read_values(label_file, masks=writes_masks)
        if writes_masks and dict(model_info.labels) not in ({}, file_values):
            raise UsageError(
                f"The model writes masks with the values {dict(model_info.labels)}, but {label_file} has {file_values}. Number the "
                "classes of the truth as the model does."
            )
        class_values = file_values
    return class_values


def _predict_baseline(model: Model, cases: Index, index: Path, base_folder: Path) -> Any:
    """Return the image-blind baseline of the training cases; None if they are not there.

    They are those of train.json next to the index, or of the run that made the model.
    """
    from m3b.isolation.reader.inprocess import open_reader
    from m3b.tasks.worker_jobs import compute_baseline_in_reader

    run_index = model.folder.parent / "locked" / "Datapath"
    for training_folder, training_base in ((index.parent, base_folder), (run_index, run_index.parent)):
        training = _read_training(training_folder / "train.json", index, model.task, training_base)
        if training:
            with open_reader([*_list_reader_folders(base_folder), *_list_reader_folders(training_base)]) as reader:
                return compute_baseline_in_reader(training, cases.test, cases, base_folder.resolve(), reader)
    return None


def _read_training(training_file: Path, index: Path, task: str, base_folder: Path) -> list[Record]:
    """Return the training records with absolute paths; none if the file or its first image is not there."""
    from m3b.data.index import read_records
    from m3b.data.records import relocate_record

    if not training_file.is_file() or training_file.resolve() == index.resolve():
        return []
    records = read_records(training_file, task)
    if not records or not (base_folder / records[0].files[0].split("#")[0]).exists():
        return []
    return [relocate_record(record, lambda path: str((base_folder / path).absolute())) for record in records]


def _list_reader_folders(base_folder: Path) -> list[Path]:
    """Return the folders that a reader of the index's files has to see."""
    from m3b.data.links import roots_of

    return [folder for folder in roots_of(base_folder) if folder.is_dir()]


def _find_base_folder(index: Path, first_image: str) -> Path:
    for folder in (index.parent, *index.absolute().parents):
        if (folder / first_image).exists():
            return folder
    raise UsageError(
        f"{first_image}, the first image of {index}, is neither next to the index nor in a folder above it. Give --base."
    )


def export(
    model: ModelArgument,
    export_format: Annotated[str, typer.Option("--to", help="onnx or monai-bundle.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A folder that does not exist yet.")],
    verify: Annotated[
        list[str] | None,
        typer.Option(help="An image to compare the export with the model on, or NAME=PATH of a case. Repeatable."),
    ] = None,
    unconfined: Unconfined = False,
    json: JsonOption = False,
) -> None:
    """Write a delivered model as ONNX graphs or as a MONAI bundle, and compare it with the model."""
    from m3b.cli.predict import parse_cases
    from m3b.data.records import paths_of
    from m3b.models import load_model
    from m3b.models.export import export_model
    from m3b.run.folder import find_model_folder

    model_folder = find_model_folder(model)
    cases = parse_cases(verify or (), load_model(model_folder).channels)
    missing = [path for case in cases for path in paths_of(case) if not Path(path.split("#")[0]).exists()]
    if missing:
        raise UsageError(f"There is no {missing[0]}.")
    announce_origin(model_folder, unconfined=unconfined)
    with show_steps() as on_step:
        exported_model = export_model(
            model_folder, export_format, out, verify=cases, unconfined=unconfined, on_step=on_step
        )
    if json:
        print_json(exported_model.to_dict())
        return
    typer.echo(f"{exported_model.export_format} written to {exported_model.folder}")
    typer.echo(
        f"compared with the model on {exported_model.compared}: largest difference {exported_model.largest_difference:.2g}"
    )
