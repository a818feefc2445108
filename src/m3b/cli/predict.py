"""`m3b predict`: predict images or folders with a delivered model, to the screen, a file or a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.delivered import Unconfined, open_model
from m3b.cli.mirror_options import NO_MIRROR_OPTIONS, MirrorOptions
from m3b.cli.option_groups import with_option_groups
from m3b.cli.output import echo, print_error, print_json, refuse_overwriting
from m3b.cli.prediction_output import describe_written_files, format_entry, to_entry, write_table
from m3b.cli.run import ForceOption, JsonOption, ModelArgument
from m3b.errors import DataError, UsageError

if TYPE_CHECKING:
    from m3b.models import Model, Prediction
    from m3b.models.image_jobs import OverlayPainter
    from m3b.models.prediction_session import PredictionSession
    from m3b.models.prediction_store import PredictionStore
    from m3b.models.thresholds import Threshold
    from m3b.serve.dicom_transfer import Destination

FILE_SUFFIXES = (".json", ".csv")
PREDICTIONS_FILE = "predictions.json"
DICOMWEB_PREFIX, SENDER_TITLE = "dicomweb:", "M3B"


@with_option_groups
def predict(
    model: ModelArgument,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, volumes, series folders; folders are searched for images. If a case has several images, "
            "NAME=PATH for each of them; a repeated name begins the next case. Of an archive: "
            "dicomweb:URL/studies/UID[/series/UID]. Of another machine: s3://, gs:// or ssh://."
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
    saliency: Annotated[
        bool,
        typer.Option(
            "--saliency",
            help="Write a map of what each answer of a classifier depends on into the folder; --overlay draws it too.",
        ),
    ] = False,
    dicom: Annotated[
        bool,
        typer.Option(
            "--dicom", help="For DICOM images: write masks as DICOM SEG, classes and numbers as SR, into the folder."
        ),
    ] = False,
    dicom_format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT",
            help="--dicom with these objects instead: seg, sr, rtstruct (contours of masks), pdf (one page); repeatable.",
        ),
    ] = None,
    send_to: Annotated[
        str | None,
        typer.Option(
            metavar="TITLE@HOST:PORT",
            help="Send the DICOM objects there by C-STORE; to dicomweb:URL by STOW-RS.",
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            help="The least score of a box (default 0.3) or probability of a class, as a number or, for one class, as "
            "CLASS=NUMBER (repeatable). It holds for terminal, tables, JSON and pictures."
        ),
    ] = None,
    unconfined: Unconfined = False,
    force: ForceOption = False,
    remote: MirrorOptions = NO_MIRROR_OPTIONS,
    json: JsonOption = False,
) -> None:
    """Predict images with a delivered model, whose code runs confined. Results are written as they are made."""
    from m3b.data.records import paths_of
    from m3b.models import read_model_info
    from m3b.models.dicom.output import DEFAULT_FORMATS, check_formats, check_sources, write_dicom
    from m3b.models.input_cases import InputCases

    images = [remote.localize(path) for path in images]
    _require_paths(path for path in images if "=" not in path and not path.startswith(DICOMWEB_PREFIX))
    opened_model = open_model(model, unconfined=unconfined)
    formats = dicom_format or (DEFAULT_FORMATS if dicom else ())
    if formats:
        check_formats(formats, opened_model)
    folder = _resolve_output_folder(out, opened_model.task, overlay, bool(formats))
    destination = _parse_destination(send_to, has_objects=bool(formats))
    if saliency:
        _require_saliency(opened_model, folder)
    limits = _parse_thresholds(threshold or [], opened_model)
    file = folder / PREDICTIONS_FILE if folder is not None else out
    store = _open_store(file, folder, opened_model, force=force)
    images = [path for image in images for path in _fetch_images(image, folder)]
    parsed_cases = parse_cases(images, opened_model.channels)
    _require_paths(path for case in parsed_cases for path in paths_of(case))
    with opened_model:
        opened_model.worker.start(parsed_cases)
        paths = parsed_cases if opened_model.channels else _find_images(images, opened_model)
        if formats:
            check_sources(paths)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        inputs = add_covariates(paths, covariates or [], opened_model)
        cases = InputCases(opened_model.config, inputs, strict=False, expand_folders=False)
        request = _Request(
            opened_model, cases, folder, store, limits, overlay=overlay, force=force, prints=not json, saliency=saliency
        )
        predictions, entries = request.run()
    if formats and folder is not None:
        written = write_dicom(
            predictions, read_model_info(opened_model.folder), opened_model.title, opened_model.version, folder / "dicom",
            formats, opened_model.display_window,
        )  # fmt: skip
        for index, files in written.items():
            entries[index]["dicom"] = [relative_file(file, folder) for file in files]
            if destination is not None:
                destination.send(files, SENDER_TITLE, lambda _: None)
    if store is not None:
        store.finish()
    if json:
        print_json({"model": str(opened_model.folder), "predictions": entries})
    elif folder is not None:
        echo(f"written to {folder}: {describe_written_files(entries)}", err=True)
    raise typer.Exit(1 if any(entry.get("error") for entry in entries) else 0)


def relative_file(file: Path, folder: Path) -> str:
    """Return a file as it is named in predictions.json."""
    from m3b.models.prediction_store import relative_to

    return relative_to(file, folder)


@dataclass
class _Request:
    """The predictions of one command: printed, drawn and written as they are made."""

    model: Model
    cases: Any
    folder: Path | None
    store: PredictionStore | None
    limits: Threshold
    overlay: bool
    force: bool
    prints: bool
    saliency: bool

    def run(self) -> tuple[list[Prediction], list[dict[str, Any]]]:
        """Return the predictions and their entries. If the user interrupts, say where the results are."""
        from m3b.models.prediction_session import PredictionSession
        from m3b.models.progress import report_progress
        from m3b.models.thresholds import make_decider

        decide = make_decider(self.limits, self.model.classes, self.model.multi_label)
        predictions: list[Prediction] = []
        entries: list[dict[str, Any]] = []
        total = len(self.cases)
        with ExitStack() as stack:
            painter = stack.enter_context(self._open_painter()) if self.overlay and self.folder is not None else None

            def make_entry(position: int, prediction: Prediction) -> dict[str, Any]:
                decided = decide(prediction)
                picture = self._draw(painter, position, prediction, decided) if painter is not None else None
                entries.append(to_entry(decided, self.folder, picture))
                return entries[-1]

            session = PredictionSession(
                self.model.worker,
                self.cases,
                output_folder=self.folder,
                store=self.store,
                make_entry=make_entry,
                with_saliency=self.saliency,
            )
            self._announce_earlier(session)
            advance = stack.enter_context(report_progress(total > 1, total))
            try:
                for prediction in session.run():
                    predictions.append(prediction)
                    if self.store is None:
                        make_entry(len(predictions) - 1, prediction)
                    if self.prints:
                        echo(format_entry(entries[-1], _count_hidden(prediction, entries[-1]), self.limits))
                    advance(len(predictions), total)
            except KeyboardInterrupt:
                stack.close()
                self._announce_interruption(len(predictions), total)
                raise
        return predictions, entries

    def _announce_earlier(self, session: PredictionSession) -> None:
        if self.force:
            session.discard_earlier()
        elif self.store is not None and self.store.partial_file.exists():
            if not session.n_reused:
                raise UsageError(
                    f"{self.store.file} holds the first part of another prediction, with other images or another model, or "
                    "of images that were changed. Name another place with -o, or overwrite it with --force."
                )
            echo(f"going on: {session.n_reused} of {len(self.cases)} images were predicted before", err=True)

    def _announce_interruption(self, n_done: int, total: int) -> None:
        place = f", written to {self.store.file}; the same command goes on" if self.store is not None else ""
        echo(f"interrupted: {n_done} of {total} images predicted{place}", err=True)

    @contextmanager
    def _open_painter(self) -> Iterator[OverlayPainter]:
        from m3b.data.records import paths_of
        from m3b.isolation.reader.inprocess import file_of_reader_path, open_reader, to_reader_path
        from m3b.models import read_model_info
        from m3b.models.image_jobs import OverlayPainter

        assert self.folder is not None
        files = dict.fromkeys(path for case in self.cases.cases for path in paths_of(case.files))
        mounts = [file_of_reader_path(to_reader_path(path)) for path in files]
        with open_reader([*mounts, self.folder.resolve()]) as reader:
            min_score = self.limits if isinstance(self.limits, float) else 0.0
            yield OverlayPainter(reader, read_model_info(self.model.folder), self.model.display_window, min_score)

    def _draw(self, painter: OverlayPainter, position: int, prediction: Prediction, decided: Prediction) -> Path | None:
        """Return the PNG file; for an image that cannot be drawn, print the error and return None."""
        from m3b.data.records import paths_of
        from m3b.writing import to_one_line

        assert self.folder is not None
        if prediction.error:
            return None
        if isinstance(self.limits, float):
            decided = replace(decided, boxes=prediction.boxes)  # the painter counts what it does not draw
        stem = to_one_line(Path(paths_of(prediction.image)[0]).name.split(".")[0]) or "image"
        try:
            return painter.draw(decided, self.folder / "overlays" / f"{position + 1:04d}_{stem}.png")
        except DataError as error:
            print_error(error)
            return None


def _count_hidden(prediction: Prediction, entry: dict[str, Any]) -> int:
    """Return how many boxes are below the threshold."""
    return len(prediction.boxes or ()) - len(entry.get("boxes", ()))


def _open_store(file: Path | None, folder: Path | None, model: Model, *, force: bool) -> PredictionStore | None:
    """Return the store of the output file; None if nothing is written.

    Raises:
        UsageError: the file or folder holds complete predictions, and `--force` is missing.
    """
    from m3b.models.prediction_store import PredictionStore, write_json

    if file is None:
        return None
    store = PredictionStore(file, model.folder, write_json if file.suffix.lower() == ".json" else write_table)
    if not store.partial_file.exists():
        names = (PREDICTIONS_FILE, "masks", "saliency", "overlays", "dicom")
        refuse_overwriting([file] if folder is None else [folder / name for name in names], force=force)
    return store


def _parse_thresholds(assignments: Sequence[str], model: Model) -> Threshold:
    """Return one number, or a number for each class that is named; 0.3 for boxes if the user gives none.

    Raises:
        UsageError: no number from 0 to 1, an unknown class, or a number for all beside those for classes.
    """
    from m3b.models.answers import answer_format_of
    from m3b.models.thresholds import DEFAULT_BOX_SCORE, make_decider

    if not assignments:
        return DEFAULT_BOX_SCORE if answer_format_of(model.task).has_boxes else {}
    by_class: dict[str, float] = {}
    common: float | None = None
    for assignment in assignments:
        name, separator, number = assignment.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UsageError(f"--threshold {assignment}: give a number from 0 to 1, or CLASS=NUMBER.") from None
        if separator:
            by_class[name] = value
        else:
            common = value
    if common is not None and (by_class or len(assignments) > 1):
        raise UsageError("--threshold: give one number for all classes, or CLASS=NUMBER for each that needs one.")
    limits: Threshold = by_class if common is None else common
    make_decider(limits, model.classes, model.multi_label)
    return limits


def _require_paths(paths: Iterable[str]) -> None:
    missing = [path for path in paths if not Path(path.split("#")[0]).exists()]
    if missing:
        from m3b.remote.addresses import suggest_address

        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UsageError(f"There is no {missing[0]}{others}.{suggest_address(missing[0])}")


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


def _parse_destination(send_to: str | None, *, has_objects: bool) -> Destination | None:
    from m3b.serve.dicom_transfer import parse_destination

    if send_to is not None and not has_objects:
        raise UsageError("--send-to sends DICOM objects: add --dicom or --dicom-format.")
    return None if send_to is None else parse_destination(send_to)


def _fetch_images(image: str, folder: Path | None) -> list[str]:
    """Return a path as it is; of `dicomweb:...` the folders of the series, which are fetched into the output folder."""
    from m3b.serve.dicom_transfer import parse_source

    if not image.startswith(DICOMWEB_PREFIX):
        return [image]
    archive, study, series = parse_source(image)
    if folder is None:
        raise UsageError(f"{image}: name a folder for the images and the results with -o DIR.")
    return list(map(str, archive.fetch(study, series, folder / "images")))


def _require_saliency(model: Model, folder: Path | None) -> None:
    from m3b.errors import ModelError
    from m3b.models.predict_process import require_saliency

    try:
        require_saliency(model.config, model.task, folder)
    except ModelError as error:
        raise UsageError(f"--saliency: {error} (-o DIR)." if folder is None else f"--saliency: {error}.") from error


def parse_cases(arguments: Sequence[str], channel_names: Sequence[str]) -> list[Any]:
    """Return the cases: paths, or objects channel -> path if a case has several images.

    Raises:
        UsageError: an argument has no channel name, or a case lacks a channel.
    """
    if not channel_names:
        return list(arguments)
    from m3b.dataset.formats import parse_cases as parse_channel_cases
    from m3b.dataset.formats import select_channels
    from m3b.errors import DataError

    try:
        return [select_channels(case, channel_names) for case in parse_channel_cases(arguments, channel_names)]
    except DataError as error:
        raise UsageError(f"{error}") from error


def add_covariates(paths: Sequence[Any], assignments: Sequence[str], model: Model) -> list[Any]:
    """Return the cases with the covariates of `NAME=VALUE` arguments, the same for all cases.

    Raises:
        UsageError: the model takes no covariates, a name is unknown, or a required one is missing.
    """
    from m3b.errors import ModelError
    from m3b.models.covariate_input import split_covariates

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
    from m3b.models.input_cases import find_model_images

    listing = find_model_images(images, model.config)
    for note in listing.notes:
        echo(note, err=True)
    if not listing.images:
        raise UsageError("No image was found below the paths given.")
    return listing.images
