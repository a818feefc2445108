"""Pictures of training cases for agents whose language model sees, if the user has allowed it (`send_images`).

Test cases are never drawn: before the index is locked, nobody knows which they are, and afterwards only cases of the
training part are. The pictures are kept in the run folder, so that a resumed run shows them again.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import DataIndex, Selection
from m3b.agents.checks.model import (
    VALID_PREDICTIONS_FILE,
    case_key_of,
    find_refit_problem,
    freeze_deliverable,
    predict_held_out,
    read_folds,
)
from m3b.agents.roles import MODEL_TRAINER, MODULE_ARCHITECT, SINGLE_AGENT
from m3b.data.index import Index, Record, read_index
from m3b.dataset.pixel_text import is_ocr_installed
from m3b.errors import DataError, ModelError, ToolError, UsageError
from m3b.isolation import untrusted
from m3b.isolation.reader.remote_errors import ReaderError
from m3b.llm.base import LLM, require_vision
from m3b.messages import ImageContent
from m3b.models.deliverable_check import check_deliverable
from m3b.models.kept_answers import read_answers
from m3b.models.montage import DRAW_MONTAGE_JOB, Montage, MontageRequest
from m3b.models.predict_process import read_model_info
from m3b.models.predictions import Prediction
from m3b.tasks import Row
from m3b.tasks.base import sample_evenly
from m3b.tools import ToolResult
from m3b.tools.user_tools import BoundTool, bind_user_tools

if TYPE_CHECKING:
    from m3b.run.folder import RunFolder
    from m3b.run.options import Options
    from m3b.run.sandbox_executor import SandboxExecutor
    from m3b.run.state import RunState

VIEW_TOOL, VIEWED_FOLDER, VIEW_PROMPT = "view_image", "viewed", "view_image.md"
VIEWING_ROLES = (MODULE_ARCHITECT.name, MODEL_TRAINER.name)
"""Roles that work after the index is locked."""
MAX_CASES, MAX_CASES_WITH_ANSWER, MAX_PICTURES = 9, 6, 12
"""Cases in a picture, without and with the model's answers, and pictures in a run."""
MAX_PICTURE_BYTES = 8 * 2**20
_FIGURES = ("dice", "probabilities", "labels", "grade", "value", "predicted", "boxes", "boxes_found", "abnormal",
            "anomaly_score", "time", "event", "risk")  # fmt: skip
"""Keys of valid_predictions.json that are shown."""


def check_viewing(options: Options, llms: Mapping[str, LLM]) -> None:
    """Check that a model of the roles that look at pictures sees, and that text in the pixels can be found.

    Raises:
        UsageError: no such model sees, or the extra `ocr` is missing.
    """
    if options.phi == "mask" and not is_ocr_installed():
        raise UsageError(
            "--send-images leaves out images with text in their pixels, which takes the extra `ocr`: pip install 'm3b[ocr]'."
        )
    models = [llms.get(role) or llms["default"] for role in VIEWING_ROLES]
    if not any(can_view(model) for model in models):
        require_vision(models[0], "--send-images")


def can_view(llm: LLM) -> bool:
    """Return whether a model takes images; one that m3b does not know is assumed to, since the user says so."""
    return llm.facts.vision or not llm.facts.known


class ImageViewing:
    """The tool `view_image` of one run.

    Args:
        state: what the run knows; the index is locked once it holds one.
        get_executor: returns what runs a deliverable, confined.
    """

    def __init__(
        self, run: RunFolder, options: Options, state: RunState, get_executor: Callable[[], SandboxExecutor]
    ) -> None:
        self.folder = run.path / VIEWED_FOLDER
        self._run, self._hides_text, self._state, self._get_executor = run, options.phi == "mask", state, get_executor

    @property
    def tools(self) -> dict[str, BoundTool]:
        """The additional tool."""

        def view_image(cases: list[int] | None = None, errors: bool = False) -> ToolResult:
            """Look at training cases: one picture with the number of each case, its masks and boxes as outlines. Without
            `cases`, cases spread over the training index. Names are not shown; images with text in their pixels are left out.

            Args:
                cases: numbers of cases, counted from 1 in Datapath/train.json; at most 9, or 6 with `errors`.
                errors: validation cases of the last training, the largest errors first, with what the model answers
                    beside the labels if Deliver/ is there.
            """
            return self.view(cases or [], errors=errors)

        return bind_user_tools([view_image])

    def view(self, numbers: Sequence[int], *, errors: bool) -> ToolResult:
        """Draw a picture of cases, keep it, and return it with a line on each case.

        Raises:
            ToolError: the index is not locked yet, a number is no training case, there is nothing to show, or too many
                pictures were shown.
        """
        index = self._read_locked_index()
        shown_pictures = len(list(self.folder.glob("*.png"))) if self.folder.is_dir() else 0
        if shown_pictures >= MAX_PICTURES:
            raise ToolError(f"{VIEW_TOOL}: all {MAX_PICTURES} pictures of this run were shown.")
        if self._hides_text and not is_ocr_installed():
            raise ToolError(f"{VIEW_TOOL}: text in the pixels cannot be found: the extra `ocr` is not installed.")
        rows = self._read_validation_rows() if errors else {}
        records = self._choose_cases(index, numbers, rows, errors=errors)
        with tempfile.TemporaryDirectory(dir=self._run.path, prefix=".staged-") as name:
            answers, note = self._predict(index, records, Path(name)) if errors else ({}, "")
            montage = self._draw(index, records, answers, Path(name))
        if not montage.png:
            raise ToolError(f"{VIEW_TOOL}: no case can be shown: {'; '.join({case.error for case in montage.cases})}.")
        file = self._keep(shown_pictures + 1, montage.png)
        lines = [
            *(
                f"case {case.number}: {_describe_case(case.labels, rows.get(record.key, {}))}"
                + (f"; not shown: {case.error}" if case.error else "")
                for case, record in zip(montage.cases, records, strict=True)
            ),
            *(
                [f"Outlines: {', '.join(f'{name} {colour}' for name, colour in montage.legend)}."]
                if montage.legend
                else []
            ),
            *([note] if note else []),
        ]
        return ToolResult("\n".join(lines), data={"images": [file]}, images=(ImageContent(montage.png, "image/png"),))

    def _read_locked_index(self) -> Index:
        selection = self._state.find_artifact(Selection)
        if selection is None or self._state.find_artifact(DataIndex) is None:
            raise ToolError(
                f"{VIEW_TOOL} shows training cases once the index is accepted; before, nobody knows which cases test."
            )
        return read_index(self._run.locked, selection.task)

    def _read_validation_rows(self) -> dict[str, dict[str, Any]]:
        """Return case key -> row of valid_predictions.json, which scripts wrote."""
        try:
            return {
                case_key_of(row["image"]): row for row in untrusted.read_json(self._run.work, VALID_PREDICTIONS_FILE)
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ToolError(
                f"{VIEW_TOOL}: there are no validation cases yet ({VALID_PREDICTIONS_FILE}); train first."
            ) from None

    def _choose_cases(
        self, index: Index, numbers: Sequence[int], rows: Mapping[str, dict[str, Any]], *, errors: bool
    ) -> Sequence[Record]:
        limit = MAX_CASES_WITH_ANSWER if errors else MAX_CASES
        if wrong := [number for number in numbers if not 1 <= number <= len(index.train)]:
            raise ToolError(
                f"{VIEW_TOOL}: there is no case {wrong[0]}; training cases have the numbers 1 to {len(index.train)}."
            )
        if len(numbers) > limit:
            raise ToolError(f"{VIEW_TOOL}: {len(numbers)} cases; at most {limit} fit a picture.")
        records = [index.train[number - 1] for number in dict.fromkeys(numbers)]
        if not errors:
            return records or sample_evenly(index.train, MAX_CASES)
        held_out = [record for record in (records or index.train) if record.key in rows]
        if not held_out:
            raise ToolError(
                f"{VIEW_TOOL}: none of these cases was held out in the last training ({VALID_PREDICTIONS_FILE})."
            )
        return sorted(held_out, key=lambda record: -estimate_error(rows[record.key]))[:limit]

    def _predict(self, index: Index, records: Sequence[Record], scratch: Path) -> tuple[dict[str, Prediction], str]:
        """Return case key -> answer of the network that was trained without the case, and why there is none, if so."""
        frozen = freeze_deliverable(self._run.work, scratch / "model")
        if frozen is None or frozen.refusals or check_deliverable(frozen.folder):
            return {}, "Deliver/ holds no model yet, so no answers are drawn; the figures are those of the training."
        kept_folders: list[Path] = []

        def predict(folder: Path, fold_records: Sequence[Record], fold_index: Index) -> list[Row]:
            kept_folders.append(scratch / f"fold{len(kept_folders)}")
            kept_folders[-1].mkdir()
            keys = {record.key for record in fold_records}
            return self._get_executor().predict(
                folder, fold_records, fold_index, kept_folders[-1], keys, on_this_machine=True
            )

        folds, work = read_folds(self._run.work), self._run.work
        if problem := find_refit_problem(frozen.folder, folds, records, work):
            return {}, f"No answers are drawn: {problem}"
        try:
            if predict_held_out(frozen.folder, folds, records, index, predict, work) is None:
                predict(frozen.folder, records, index)
            kept = [read_answers(folder, read_model_info(frozen.folder)) for folder in kept_folders]
        except (ModelError, DataError, OSError) as error:
            return {}, f"No answers are drawn, since predict.py fails: {str(error)[:500]}"
        return {key: answer for answers in kept if answers for key, answer in answers.predictions.items()}, ""

    def _draw(self, index: Index, records: Sequence[Record], answers: dict[str, Prediction], scratch: Path) -> Montage:
        keys = [record.key for record in records]
        request = MontageRequest(self._run.locked, index.task, keys, answers, self._hides_text)
        try:
            with self._get_executor().open_reader(self._run.locked, write=(scratch,)) as reader:
                return reader.run_job(DRAW_MONTAGE_JOB, request)
        except (DataError, ReaderError) as error:
            raise ToolError(f"{VIEW_TOOL}: the picture cannot be drawn: {type(error).__name__}.") from error

    def _keep(self, number: int, png: bytes) -> dict[str, str]:
        """Write a picture to the run folder, for its user alone; return its name and SHA-256."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{number:03d}.png"
        untrusted.write_atomic(self.folder, name, png)
        return {"file": name, "sha256": hashlib.sha256(png).hexdigest()}

    def restore_images(self, facts: Mapping[str, Any]) -> tuple[ImageContent, ...]:
        """Return the kept pictures of a journaled result; those that are missing or were changed are left out."""
        images = []
        for kept in facts.get("images", ()):
            try:
                png = untrusted.read_bytes(self.folder, kept["file"], MAX_PICTURE_BYTES)
            except OSError:
                continue
            if hashlib.sha256(png).hexdigest() == kept["sha256"]:
                images.append(ImageContent(png, "image/png"))
        return tuple(images)


def estimate_error(row: Mapping[str, Any]) -> float:
    """Return how wrong a row of valid_predictions.json is, to compare it with others of its project; 0 if it does not say."""
    try:
        if isinstance(row.get("dice"), Mapping):
            values = [float(value) for value in row["dice"].values() if value is not None]
            return 1 - sum(values) / len(values) if values else 0.0
        if isinstance(row.get("probabilities"), Mapping):
            truth = row["labels"] if "labels" in row else [row["grade"]]
            return max(abs(float(p) - (name in truth)) for name, p in row["probabilities"].items())
        if "predicted" in row:
            error = abs(float(row["predicted"]) - float(row["value"]))
        else:
            error = abs(float(row.get("anomaly_score", 0)) - bool(row.get("abnormal")))
            error += abs(float(row.get("boxes", 0)) - float(row.get("boxes_found", 0)))
        return error if math.isfinite(error) else 0.0
    except (KeyError, TypeError, ValueError):
        return 0.0


def _describe_case(labels: str, row: Mapping[str, Any]) -> str:
    figures = ", ".join(f"{key} {row[key]}" for key in _FIGURES if key in row)
    return "; ".join(
        part for part in (f"labelled {labels}" if labels else "", f"validation: {figures}" if figures else "") if part
    )


def viewing_tools_of(viewing: ImageViewing | None, role: str, llm: LLM) -> tuple[str, ...]:
    """Return the names of the additional tools of a role; none if its model does not see.

    A model that m3b does not know counts as one that sees from here on.
    """
    if viewing is None or role not in (*VIEWING_ROLES, SINGLE_AGENT.name) or not can_view(llm):
        return ()
    require_vision(llm, VIEW_TOOL)
    return (VIEW_TOOL,)
