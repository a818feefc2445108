"""One call of a delivered model on many cases: predictions come, and are written, as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.data.records import Image, paths_of, plain
from m3b.errors import ModelError
from m3b.models.input_cases import InputCases
from m3b.models.input_rules import NOT_PREDICTED, InputRules
from m3b.models.predict_process import parse_predictions, read_model_info
from m3b.models.prediction_store import OutputFolder, PredictionStore, with_relative_files
from m3b.models.predictions import Prediction
from m3b.models.worker import PredictWorker

ProgressCallback = Callable[[int, int], None]
"""Called with the number of predictions so far and of cases."""
EntryMaker = Callable[[int, Prediction], dict[str, Any]]
"""Returns what the output file holds of a prediction, from its position and the prediction."""


class PredictionSession:
    """Predicts the cases of one call in requests of about two seconds.

    Predictions of an earlier call that was interrupted are used again, if it was with the same model, its cases are among
    these, and their files have not changed.

    Args:
        worker: the process of the model, which stays open.
        cases: closed by the caller.
        output_folder: for mask files; exists.
        store: of the output file; None if nothing is written.
        make_entry: for the output file; by default the prediction with paths relative to the folder.
        check_axes: whether images of other axes than the model takes are refused.
        with_saliency: whether the model is asked what its answers depend on; it must be able to (`can_explain`).
    """

    def __init__(
        self,
        worker: PredictWorker,
        cases: InputCases,
        *,
        output_folder: Path | None = None,
        store: PredictionStore | None = None,
        make_entry: EntryMaker | None = None,
        check_axes: bool = True,
        with_saliency: bool = False,
    ) -> None:
        self._worker, self._cases, self._folder, self._store = worker, cases.cases, output_folder, store
        self._make_entry = make_entry or (lambda _, prediction: with_relative_files(prediction, output_folder))
        self._rules = InputRules.from_config(cases.config) if check_axes else None
        self._with_saliency = with_saliency
        self._earlier = self._read_earlier()

    @property
    def n_reused(self) -> int:
        """Number of cases that an interrupted call has predicted already."""
        return len(self._earlier)

    def discard_earlier(self) -> None:
        """Predict every case anew."""
        self._earlier = {}

    def run(self) -> Iterator[Prediction]:
        """Yield one prediction for each case, in order; one that the model cannot predict has an `error`.

        The output file is complete up to the last prediction, also if the caller stops.

        Raises:
            ModelError: predict.py fails or predicts nonsense.
            SandboxError: no sandbox works on this machine.
        """
        if self._store is not None:
            self._store.begin(
                {n: (self._cases[n].fingerprint, self._journal(item)) for n, item in self._earlier.items()}
            )
        try:
            position = next((n for n in range(len(self._cases)) if n not in self._earlier), len(self._cases))
            yield from self._emit_earlier(0, position)
            for batch in self._predict_missing():
                for missing_position, prediction in batch:
                    yield from self._emit_earlier(position, missing_position)
                    yield self._record(missing_position, prediction)
                    position = missing_position + 1
            yield from self._emit_earlier(position, len(self._cases))
        finally:
            if self._store is not None:
                self._store.stop()

    def _read_earlier(self) -> dict[int, Prediction]:
        partial = self._store.read_partial() if self._store is not None else {}
        positions = {case.fingerprint: n for n, case in enumerate(self._cases) if case.fingerprint}
        if not partial or not partial.keys() <= positions.keys():
            return {}
        model_info, earlier = read_model_info(self._worker.model), {}
        for fingerprint, item in partial.items():
            case = self._cases[position := positions[fingerprint]]
            answer = {**item, "image": plain(case.image)}
            try:
                [prediction] = parse_predictions(
                    [answer], [case.image], model_info, folder=self._folder, with_saliency=True
                )
            except ModelError:
                continue  # its mask is gone
            if prediction.saliency is not None or not self._with_saliency:
                earlier[position] = prediction
        return earlier

    def _journal(self, prediction: Prediction) -> dict[str, Any]:
        return with_relative_files(prediction, self._folder)

    def _predict_missing(self) -> Iterator[list[tuple[int, Prediction]]]:
        """Yield batches of (position, prediction) of the cases that no earlier call predicted."""
        positions = [n for n in range(len(self._cases)) if n not in self._earlier]
        invalid = [n for n in positions if self._cases[n].problem]
        sent_positions = [n for n in positions if not self._cases[n].problem]
        cases = [self._cases[n] for n in sent_positions]
        used_files = [
            file
            for item in self._earlier.values()
            for file in (
                item.mask,
                item.anomaly_map,
                item.saliency.map_file if item.saliency else None,
                *item.masks.values(),
            )
        ]
        output = None
        if self._folder is not None:
            output = OutputFolder(self._folder, len(self._cases), [file for file in used_files if file is not None])
        waiting = iter(sent_positions)
        refused = {n: self._refuse(n) for n in invalid}
        for batch in self._worker.predict_batches(
            [case.files for case in cases],
            [case.covariates for case in cases],
            rules=self._rules,
            output=output,
            positions=sent_positions,
            with_saliency=self._with_saliency,
        ):
            answered = [(n, self._name(n, prediction)) for prediction, n in zip(batch, waiting, strict=False)]
            before = [(n, refused.pop(n)) for n in sorted(refused) if n < answered[-1][0]]
            yield sorted([*answered, *before], key=lambda pair: pair[0])
        if refused:
            yield sorted(refused.items())

    def _refuse(self, position: int) -> Prediction:
        case = self._cases[position]
        return Prediction(case.image, error=case.problem, error_code=case.problem_code or NOT_PREDICTED)

    def _name(self, position: int, prediction: Prediction) -> Prediction:
        """Return a prediction of a staged case as one of the user's image."""
        case = self._cases[position]
        error = prediction.error
        if case.files != case.image and error:
            error = _restore_names(error, case.files, case.image)
        unknown: Mapping[str, float | None] = (
            prediction.volumes_ml if case.has_spacing else dict.fromkeys(prediction.volumes_ml)
        )
        return replace(prediction, image=case.image, error=error, volumes_ml=unknown)

    def _emit_earlier(self, start: int, stop: int) -> Iterator[Prediction]:
        for position in range(start, stop):
            yield self._record(position, self._earlier[position])

    def _record(self, position: int, prediction: Prediction) -> Prediction:
        if self._store is not None:
            fingerprint = "" if position in self._earlier else self._cases[position].fingerprint
            self._store.add(position, fingerprint, self._journal(prediction), self._make_entry(position, prediction))
        return prediction


def _restore_names(text: str, files: Image, image: Image) -> str:
    """Return a message with the user's names instead of the absolute files."""
    for file, name in zip(paths_of(files), paths_of(image), strict=True):
        text = text.replace(file, name)
    return text
