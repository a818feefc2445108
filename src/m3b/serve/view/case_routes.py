"""Cases of a run as pages of `m3b view`: a list, and each case with reference and prediction as overlays."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from m3b.data.links import roots_of
from m3b.errors import DataError, M3bError
from m3b.isolation.reader.inprocess import open_reader
from m3b.markup.formatting import format_count, format_figure, shorten
from m3b.models.case_layers import READ_CASE_JOB, CaseLayers, LayersRequest
from m3b.models.kept_answers import read_answers
from m3b.models.predict_process import read_model_info
from m3b.models.predictions import Prediction
from m3b.run.folder import RunFolder
from m3b.serve.view.case_list import TEST, CaseList, ListedCase, list_cases
from m3b.serve.view.context import VIEW_PACKAGE, ViewContext

MAX_ROWS = 5000
"""Cases that the list shows."""
MAX_HELD_CASES = 4
"""Cases whose layers are held in memory."""
NIIVUE_FILE = "niivue.umd.js"
"""NiiVue 0.69.0 (BSD-2-Clause, niivue.LICENSE) is the release of the npm package, unchanged, compressed."""


def make_routes(context: ViewContext) -> list[Route]:
    """Return the routes of the list of cases, of a case, and of its layers."""
    store = LayerStore()

    def list_run_cases(request: Request) -> Response:
        run = context.find_run(request)
        try:
            cases, problem = list_cases(run), ""
        except DataError as error:
            cases, problem = None, str(error)
        values: dict[str, Any] = {
            "cases": cases,
            "problem": problem,
            "max_rows": MAX_ROWS,
            "format_value": format_value,
        }
        return context.render(request, "cases.html", run=run, styles=("cases.css",), is_wide=True, **values)

    def show_case(request: Request) -> Response:
        run, cases, place = find_case(context, request)
        case, neighbours = cases.cases[place], (place - 1, place + 1)
        ids = [cases.cases[number].id if 0 <= number < len(cases.cases) else "" for number in neighbours]
        return context.render(
            request,
            "case.html",
            run=run,
            case=case,
            place=place + 1,
            n_cases=len(cases.cases),
            previous_id=ids[0],
            next_id=ids[1],
            list_path=request.url.path.rpartition("/")[0],
            fact_rows=list_case_facts(case, cases.value_title),
            channel=_read_channel(request),
            has_masks=cases.index.masked or cases.index.boxed,
            styles=("cases.css",),
            scripts=("cases.js",),
            is_wide=True,
        )

    def send_layers(request: Request) -> Response:
        run, cases, place = find_case(context, request)
        layers = store.load(run, cases, cases.cases[place], _read_channel(request))
        return JSONResponse(describe_layers(layers, request.url.path.rpartition("/")[0], _read_channel(request)))

    def send_layer(request: Request) -> Response:
        run, cases, place = find_case(context, request)
        layers = store.load(run, cases, cases.cases[place], _read_channel(request))
        try:
            image = layers.images[int(request.path_params["image"])]
            number = int(request.path_params["layer"])
            content = image.layers[number - 1].content if number else image.content
        except IndexError:
            raise HTTPException(404, "There is no such layer.") from None
        return Response(content, media_type="application/gzip" if image.is_volume else "image/png")

    return [
        Route("/static/" + NIIVUE_FILE, send_niivue, name="niivue"),
        Route("/runs/{key}/cases", list_run_cases, name="run_cases"),
        Route("/runs/{key}/cases/{case}", show_case, name="run_case"),
        Route("/runs/{key}/cases/{case}/layers", send_layers, name="case_layers"),
        Route("/runs/{key}/cases/{case}/{image:int}-{layer:int}.{suffix}", send_layer, name="case_layer"),
    ]


def send_niivue(request: Request) -> Response:
    """Return NiiVue as it is stored, compressed."""
    content = resources.files(VIEW_PACKAGE).joinpath("static", f"{NIIVUE_FILE}.gz").read_bytes()
    headers = {"content-encoding": "gzip", "cache-control": "private, max-age=3600"}
    return Response(content, media_type="text/javascript", headers=headers)


def find_case(context: ViewContext, request: Request) -> tuple[RunFolder, CaseList, int]:
    """Return the run, its cases, and the place of the case of the path parameter `case`.

    Raises:
        HTTPException: 404, there is no such case, or it is a locked test case that the report does not show.
    """
    run = context.find_run(request)
    try:
        cases = list_cases(run)
    except DataError as error:
        raise HTTPException(404, str(error)) from error
    place = cases.find(str(request.path_params["case"]))
    if place is None:
        raise HTTPException(404, "There is no such case, or it is a locked test case that the report does not show.")
    return run, cases, place


def _read_channel(request: Request) -> int:
    text = request.query_params.get("channel", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0


@dataclass
class LayerStore:
    """The layers of the cases that were looked at last; the confined reader reads them."""

    _held: OrderedDict[tuple[str, str, int], CaseLayers] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, run: RunFolder, cases: CaseList, case: ListedCase, channel: int) -> CaseLayers:
        """Return the layers of a case.

        Raises:
            HTTPException: 503, the reader cannot be started, or ended.
        """
        key = (str(run.path), case.id, channel)
        with self._lock:
            if key not in self._held:
                self._held[key] = read_layers(run, cases.task, case, channel)
            self._held.move_to_end(key)
            while len(self._held) > MAX_HELD_CASES:
                self._held.popitem(last=False)
            return self._held[key]


def read_layers(run: RunFolder, task: str, case: ListedCase, channel: int) -> CaseLayers:
    """Return the layers of a case with the prediction that the run stored, read by the confined reader.

    Raises:
        HTTPException: 503, the reader cannot be started, or ended.
    """
    try:
        answer = load_answer(run, case) if case.part == TEST else None
        with open_reader([path for path in roots_of(run.locked) if path.is_dir()]) as reader:
            return reader.run_job(READ_CASE_JOB, LayersRequest(run.locked, task, case.record.key, answer, channel))
    except (M3bError, OSError, ValueError) as error:
        raise HTTPException(503, f"The case cannot be read: {shorten(str(error), 300)}") from error


def load_answer(run: RunFolder, case: ListedCase) -> Prediction | None:
    """Return the stored prediction of a locked test case; None if there is none. Raises ModelError."""
    answers = read_answers(run.locked, read_model_info(run.measured_model))
    return answers.predictions.get(case.record.key) if answers else None


def describe_layers(layers: CaseLayers, address: str, channel: int) -> dict[str, Any]:
    """Return JSON for the viewer, with the addresses of image and masks.

    Args:
        address: of the case.
    """
    return {
        "images": [
            {
                "title": image.title,
                "isVolume": image.is_volume,
                "isOriented": image.is_oriented,
                "size": list(image.size),
                "centre": list(image.centre),
                "address": _layer_address(address, place, 0, image.is_volume, channel),
                "layers": [
                    {
                        "source": layer.source,
                        "label": layer.label,
                        "address": _layer_address(address, place, number, image.is_volume, channel),
                    }
                    for number, layer in enumerate(image.layers, 1)
                ],
                "boxes": [
                    {"source": box.source, "label": box.label, "corners": list(box.corners), "score": box.score}
                    for box in image.boxes
                ],
            }
            for place, image in enumerate(layers.images)
        ],
        "legend": layers.legend,
        "channels": layers.channels,
        "notes": layers.notes,
        "text": layers.text,
    }


def _layer_address(address: str, image: int, layer: int, is_volume: bool, channel: int) -> str:
    return f"{address}/{image}-{layer}.{'nii.gz' if is_volume else 'png'}?channel={channel}"


def format_value(value: float | None) -> str:
    """Return the value of a case with three decimals, larger ones with four digits."""
    return "" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


HIDDEN_KEYS = {"image", "patient", "altered", "truth", "predicted", "labels", "instances", "reference", "prediction"}
"""Keys of stored predictions that the page shows elsewhere, or that are no facts of a case."""


def list_case_facts(case: ListedCase, value_title: str) -> list[tuple[str, str]]:
    """Return what is known of a case and of its stored prediction: names and values."""
    rows = [("Part", case.part), ("Patient", case.record.patient if case.record.patient_known else "unknown")]
    if case.value is not None:
        rows.append((value_title, format_value(case.value)))
    if case.is_wrong is not None:
        rows.append(("Decision", "wrong" if case.is_wrong else "right"))
    return [*rows, *_list_values(case.row)]


def _list_values(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        if name in HIDDEN_KEYS:
            continue
        title = name.replace("_", " ")
        if isinstance(value, dict):
            for inner, number in value.items():
                if isinstance(number, list) and all(isinstance(item, str) for item in number):
                    yield f"{title}: {inner}", shorten(", ".join(number) or "none", 200)
                first = number[0] if isinstance(number, list) and number else number
                if isinstance(first, int | float) and not isinstance(first, bool):
                    kind = "Dice" if name in ("figures", "dice") else title
                    yield f"{kind}: {shorten(inner, 60)}", format_figure(first)
        elif isinstance(value, bool):
            yield title, "yes" if value else "no"
        elif isinstance(value, int | float):
            yield title, format_count(value) if isinstance(value, int) else format_figure(value)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield title, shorten(", ".join(value) or "none", 200)
