"""The data of a run or of a folder as it was read, and its manifest in a form with immediate counts, as pages of `m3b view`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from m3b.dataset.manifest.overrides import list_manifest_errors
from m3b.dataset.manifest.reference import json_schema
from m3b.dataset.survey.facts import Survey
from m3b.dataset.survey.render import summarize
from m3b.errors import M3bError, UsageError
from m3b.isolation import untrusted
from m3b.isolation.reader import Reader
from m3b.isolation.sandbox import Mounts, choose_sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.markup.formatting import shorten
from m3b.markup.json_values import as_dict, as_list
from m3b.models.image_jobs import ExampleCases
from m3b.report import collect_report_values, read_run_files
from m3b.report.manifest_page import collect_manifest_values
from m3b.report.page_template import embed_json
from m3b.run.dataset_preview import DatasetPreview, preview_dataset
from m3b.run.folder import RunFolder
from m3b.run.overrides import run_reader_job
from m3b.run.record import restore_workspace
from m3b.serve.tools import MAX_REQUEST_CHARS, ServerSettings, Tools
from m3b.serve.view.context import ViewContext
from m3b.serve.view.run_index import make_key

ENTRIES = "#entries"
"""Key of an object that a form sends as a list of its names and values."""
MAX_BODY_BYTES = 4 * 2**20
MAX_JSON_BYTES = 64 * 2**20
MAX_SURVEY_LINES = 24
DEFAULT_MINUTES = 5

Previews = dict[tuple[str, str], DatasetPreview]
"""Folder and request -> how the folder was read when it was looked at last."""


@dataclass(frozen=True)
class ManifestSource:
    """A data folder, and the manifest to edit.

    Args:
        proposal: the manifest with which counts are compared; the first one that was proposed.
        manifest: the manifest with which the form begins.
        address: of the page.
        runs: folder of new runs; None for the user's.
    """

    root: Path
    request: str
    proposal: dict[str, Any]
    manifest: dict[str, Any]
    address: str
    runs: Path | None = None


def make_routes(context: ViewContext) -> list[Route]:
    """Return the routes of data pages, and of manifest forms."""
    server_settings = ServerSettings([])
    started: dict[str, tuple[Tools, RunFolder]] = {}
    previews: Previews = {}

    def show_run_data(request: Request) -> Response:
        run = context.find_run(request)
        values = collect_report_values(read_run_files(run.path))
        joins = list_joins(as_dict(_read_json(run.path, "manifest.json")))
        survey_lines = read_survey_lines(run)
        return context.render(request, "run_data.html", **values, run=run, joins=joins, survey_lines=survey_lines)

    def show_folder(request: Request) -> Response:
        folder, text = (request.query_params.get(name, "").strip() for name in ("folder", "request"))
        if not folder:
            return context.render(request, "folder.html", folder="", text="", problem="", styles=("manifest.css",))
        try:
            preview = previews[folder, text] = preview_folder(folder, text)
        except (M3bError, OSError, ValueError) as error:
            values: dict[str, Any] = {"folder": folder, "text": text, "problem": str(error)}
            return context.render(request, "folder.html", **values, styles=("manifest.css",))
        values = collect_manifest_values(text, preview.to_json(), _get_examples(preview))
        query = request.url.query
        edit_address = f"/folder/manifest?{query}" if preview.proposals else ""
        return context.render(request, "folder_data.html", **values, edit_address=edit_address, folder=folder)

    def show_run_form(request: Request) -> Response:
        return show_form(request, context.find_run(request))

    def show_folder_form(request: Request) -> Response:
        return show_form(request, None)

    def show_form(request: Request, run: RunFolder | None) -> Response:
        source = find_source(request, run, previews)
        settings = {
            "schema": json_schema(),
            "manifest": encode_maps(source.manifest),
            "address": source.address,
            "query": request.url.query if run is None else "",
        }
        return context.render(
            request,
            "manifest_form.html",
            run=run,
            text=source.request,
            folder=str(source.root),
            minutes=DEFAULT_MINUTES,
            settings_json=embed_json(settings),
            styles=("manifest.css",),
            scripts=("manifest.js",),
            is_wide=True,
        )

    async def count(request: Request) -> Response:
        body = await _read_body(request)
        run = context.find_run(request) if "key" in request.path_params else None
        return JSONResponse(await run_in_threadpool(lambda: count_manifest(find_source(request, run, previews), body)))

    async def train(request: Request) -> Response:
        body = await _read_body(request)
        run = context.find_run(request) if "key" in request.path_params else None
        source = await run_in_threadpool(lambda: find_source(request, run, previews))
        tools = Tools(replace(server_settings, data=[source.root], runs=source.runs))
        try:
            answer = await run_in_threadpool(lambda: start_training(tools, source, body))
        except M3bError as error:
            return JSONResponse({"problem": str(error)}, 400)
        started[answer["run"]] = (tools, RunFolder(Path(answer["folder"])))
        return JSONResponse({"run": answer["run"]})

    def check_start(request: Request) -> Response:
        name = str(request.path_params["run"])
        if name not in started:
            raise HTTPException(404, "This server started no such run.")
        tools, run = started[name]
        if not (run.path / "run.json").is_file():
            try:
                tools.check_progress(name)
            except M3bError as error:
                return JSONResponse({"problem": str(error)})
            return JSONResponse({"address": ""})
        page = "/live" if "run_live" in context.route_names else ""
        return JSONResponse({"address": f"/runs/{make_key(run)}{page}"})

    return [
        Route("/runs/{key}/data", show_run_data, name="run_data"),
        Route("/runs/{key}/manifest", show_run_form, name="run_manifest"),
        Route("/runs/{key}/manifest/count", count, methods=["POST"]),
        Route("/runs/{key}/manifest/train", train, methods=["POST"]),
        Route("/folder", show_folder, name="folder"),
        Route("/folder/manifest", show_folder_form, name="folder_manifest"),
        Route("/folder/manifest/count", count, methods=["POST"]),
        Route("/folder/manifest/train", train, methods=["POST"]),
        Route("/started/{run}", check_start),
    ]


# --- the data as it was read ---------------------------------------------------------------------------------------


def list_joins(manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return images, tables, masks and boxes with their files, and by which text of both sides they belong together."""
    parts = {"images": as_dict(manifest.get("images"))}
    parts |= {f"table {name}": as_dict(part) for name, part in as_dict(manifest.get("tables")).items()}
    parts |= {name: as_dict(manifest.get(name)) for name in ("masks", "boxes")}
    rows = []
    for name, part in parts.items():
        files = part.get("files")
        texts = [files] if isinstance(files, str) else list(map(str, as_list(files)))
        if part:
            key = f"{part['key']} = {part.get('image', '')} of the image" if part.get("key") else ""
            rows.append((name, shorten(", ".join(filter(None, texts)), 200), shorten(key, 200)))
    return rows


def read_survey_lines(run: RunFolder) -> list[str]:
    """Return what the survey of a run's folder found, a group of files a line; empty if there is none any more."""
    for file in sorted((run.path / "survey").glob("dataset-survey-*.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError):
            content = untrusted.read_text(run.path / "survey", file.name, MAX_JSON_BYTES)
            return summarize(Survey.model_validate_json(content), MAX_SURVEY_LINES)
    return []


def preview_folder(folder: str, request: str) -> DatasetPreview:
    """Return how a folder is read for a request, with example pictures.

    Raises:
        UsageError: there is no such folder, or the request is empty or too long.
        DataError: the folder cannot be surveyed.
    """
    root = Path(folder).expanduser()
    if "\0" in folder or not root.is_absolute() or not root.is_dir():
        raise UsageError(f"There is no folder {shorten(folder, 200)}; name it by its whole path.")
    if len(request) > MAX_REQUEST_CHARS:
        raise UsageError(f"The request has {len(request):,} characters; m3b takes at most {MAX_REQUEST_CHARS:,}.")
    with TemporaryFolder("view") as scratch:
        return preview_dataset(root.resolve(), request, scratch, with_examples=True)


def _get_examples(preview: DatasetPreview) -> ExampleCases:
    return ExampleCases(preview.examples, preview.legend)


def _read_json(folder: Path, name: str) -> Any:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return json.loads(untrusted.read_text(folder, name, MAX_JSON_BYTES))
    return None


# --- the manifest form ---------------------------------------------------------------------------------------------


def find_source(request: Request, run: RunFolder | None, previews: Previews) -> ManifestSource:
    """Return the folder and the manifest of a form.

    Args:
        run: the run whose data it is; None for the folder that the query names.
        previews: of folders that were looked at.

    Raises:
        HTTPException: 400 or 404, there is no manifest to edit, or the data is not there any more.
    """
    try:
        return _find_run_source(run) if run is not None else _find_folder_source(request, previews)
    except (M3bError, OSError, ValueError) as error:
        raise HTTPException(404, str(error)) from error


def _find_run_source(run: RunFolder) -> ManifestSource:
    record = run.load_record()
    roots = [card.path for card in restore_workspace(record).cards.values() if card.own and card.path is not None]
    proposals = [as_dict(item).get("manifest") for item in as_list(_read_json(run.path, "survey/evidence.json"))]
    proposal = as_dict(proposals[0]) if proposals else {}
    manifest = as_dict(_read_json(run.path, "manifest.json")) or proposal
    if len(roots) != 1 or not roots[0].is_dir():
        raise UsageError("The data folder of this run is not there any more, or there are several.")
    if not manifest:
        raise UsageError("This run has no manifest: a script made its index, or the data was not read yet.")
    address = f"/runs/{make_key(run)}/manifest"
    text = str(record.get("request", ""))
    return ManifestSource(roots[0], text, proposal or manifest, manifest, address, run.path.parent)


def _find_folder_source(request: Request, previews: Previews) -> ManifestSource:
    folder, text = (request.query_params.get(name, "").strip() for name in ("folder", "request"))
    if (folder, text) not in previews:
        previews[folder, text] = preview_folder(folder, text)
    preview = previews[folder, text]
    if not preview.proposals:
        raise UsageError(preview.insufficient or "m3b found no way to read this folder for the request.")
    manifest = preview.proposals[0].manifest
    return ManifestSource(Path(folder).expanduser().resolve(), text, manifest, manifest, "/folder/manifest")


async def _read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request.

    Raises:
        HTTPException: 413 or 400, it is too large, or none.
    """
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            raise HTTPException(413, f"A manifest has at most {MAX_BODY_BYTES:,} bytes.")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The body is no JSON.") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "The body is no JSON object.")
    return body


def count_manifest(source: ManifestSource, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest gives, as the confined reader counts it, or its errors, each with the part that is wrong."""
    manifest = decode_maps(body.get("manifest"))
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    errors = list_manifest_errors(manifest)
    if errors:
        return {"errors": [{"part": part, "message": message} for part, message in errors], "text": text}
    job = {"do": "count", "manifest": manifest, "proposal": source.proposal}
    try:
        with (
            TemporaryFolder("view") as scratch,
            Reader(choose_sandbox(), Mounts(read=(source.root,), write=(scratch,))) as reader,
        ):
            facts = run_reader_job(job, source.root, scratch, reader)
    except (M3bError, OSError) as error:
        return {"errors": [{"part": "", "message": str(error)}], "text": text}
    problems = [
        {"part": problem["part"], "message": " ".join(filter(None, [problem["finding"], problem["remedy"]]))}
        | {"severity": problem["severity"]}
        for problem in facts["problems"]
    ]
    training, testing = facts["training"], facts["testing"]
    return {
        "errors": [problem for problem in problems if problem["severity"] == "error"],
        "warnings": [problem for problem in problems if problem["severity"] != "error"],
        "text": text,
        "difference": facts["difference"],
        "parts": [{"title": title, **part} for title, part in (("training", training), ("testing", testing))],
        "excluded": [
            {"title": "Cases left out", "reasons": facts["excluded_cases"]},
            {"title": "Files that are not used", "reasons": facts["excluded_files"]},
        ],
    }


def start_training(tools: Tools, source: ManifestSource, body: Mapping[str, Any]) -> dict[str, Any]:
    """Start a run with the manifest of a form, and return its id and folder.

    Raises:
        UsageError: the manifest, the request or the minutes cannot be used.
    """
    minutes = body.get("minutes")
    if not isinstance(minutes, int | float) or isinstance(minutes, bool):
        raise UsageError("Name the minutes of training as a number.")
    manifest = decode_maps(body.get("manifest"))
    if not isinstance(manifest, dict):
        raise UsageError("The manifest is no JSON object.")
    return tools.start_run(str(body.get("request", "")), str(source.root), float(minutes), manifest)


def encode_maps(value: Any) -> Any:
    """Return JSON values whose objects keep their order in JavaScript: names that are numbers are sorted there."""
    if isinstance(value, dict):
        encoded = {name: encode_maps(item) for name, item in value.items()}
        return {ENTRIES: list(map(list, encoded.items()))} if any(map(str.isdigit, encoded)) else encoded
    return [encode_maps(item) for item in value] if isinstance(value, list) else value


def decode_maps(value: Any) -> Any:
    """Return the JSON values of a form, whose maps are lists of pairs; of two entries of one name the later one."""
    if isinstance(value, dict) and set(value) == {ENTRIES}:
        pairs = [pair for pair in as_list(value[ENTRIES]) if isinstance(pair, list) and len(pair) == 2]
        return {str(name): decode_maps(item) for name, item in pairs}
    if isinstance(value, dict):
        return {name: decode_maps(item) for name, item in value.items()}
    return [decode_maps(item) for item in value] if isinstance(value, list) else value
