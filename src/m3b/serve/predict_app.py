"""The HTTP server of delivered models: predictions, health, metrics, and the OpenAPI document."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from m3b.errors import M3bError
from m3b.isolation.untrusted import TemporaryFolder
from m3b.models.answers import answer_format_of
from m3b.models.thresholds import DEFAULT_BOX_SCORE
from m3b.serve.audit_log import AuditLog, RequestMetrics, RequestRecorder, note_model
from m3b.serve.http import HeaderGuard, LocalNameGuard, TokenGuard
from m3b.serve.model_pool import ModelPool, ServedModel
from m3b.serve.openapi import make_openapi_document
from m3b.serve.request_cases import check_parameters, parse_threshold, read_cases
from m3b.serve.result_writers import (
    PredictedCases,
    choose_format,
    media_type_of,
    refuse_failed,
    write_files,
)
from m3b.serve.serve_errors import ServeError, error_response, to_serve_error
from m3b.serve.uploads import Upload, UploadLimits, receive_upload

logger = logging.getLogger(__name__)
OPEN_PATHS = ("/health", "/health/live", "/health/ready")
"""Paths that need no token."""


@dataclass
class ServerState:
    """What all routes share.

    Args:
        pool: the served models.
        limits: of one request.
        log: of requests.
        metrics: of requests.
        n_uploads: requests whose body is being received.
    """

    pool: ModelPool
    limits: UploadLimits = field(default_factory=UploadLimits)
    log: AuditLog = field(default_factory=AuditLog)
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    n_uploads: int = 0

    async def receive_upload(self, request: Request, folder: Path) -> Upload:
        """Return the form of a request, with its files in `folder`.

        Raises:
            ServeError, starlette.requests.ClientDisconnect: as `uploads.receive_upload`, or there are too many uploads.
        """
        if self.n_uploads >= self.limits.max_uploads:
            raise ServeError(503, "too_many_uploads", "Other uploads are running. Try again.", {"Retry-After": "10"})
        self.n_uploads += 1
        try:
            return await receive_upload(request, folder, self.limits)
        finally:
            self.n_uploads -= 1


class FolderResponse(Response):
    """Sends another response, and then closes the resources of its request, also if the client is gone.

    Args:
        inner: is sent.
        resources: hold the temporary folder of the request.
    """

    def __init__(self, inner: Response, resources: contextlib.ExitStack) -> None:
        self._inner, self._resources = inner, resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        with self._resources:
            await self._inner(scope, receive, send)


def make_file_response(file: Path) -> FileResponse:
    """Return the response that sends a file."""
    return FileResponse(file, media_type=media_type_of(file), filename=file.name)


async def refuse_gone_client(request: Request) -> None:
    """Raise ClientDisconnect if nobody waits for the answer of a request any more."""
    if await request.is_disconnected():
        raise ClientDisconnect


class FailureGuard:
    """Middleware that answers an unexpected error with 500, and logs its class and place, not its text: that may hold
    names of the client and paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of ASGI."""
        is_started = False

        async def note_start(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, note_start)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            places = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            logger.error("%s at %s", type(error).__name__, places)
            if not is_started:  # otherwise the server closes the connection
                await error_response(to_serve_error(error, {}))(scope, receive, send)


class PredictRoutes:
    """The routes of predictions. Each handler is one request."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def list_models(self, request: Request) -> Response:
        """List the served models: name, version, task, classes, channels, covariates, test figure."""
        return JSONResponse({"models": [describe_model(served) for served in self._state.pool.models]})

    async def predict(self, request: Request) -> Response:
        """Predict the images of a form, as JSON, or as files if `format` or `Accept` asks for them."""
        served = self._state.pool.find(request.path_params["name"], request.query_params.get("version", ""))
        note_model(request.scope, served)
        check_parameters(request.query_params)
        with contextlib.ExitStack() as resources:
            folder = resources.enter_context(TemporaryFolder("serve"))
            served.check_place()
            upload = await self._state.receive_upload(request, folder)
            parameters = {**upload.fields, **request.query_params}
            format_name = choose_format(parameters.get("format", ""), request.headers.get("accept", ""))
            threshold = parse_threshold(parameters.get("threshold", ""))
            if threshold is None and answer_format_of(served.model.task).has_boxes:
                threshold = DEFAULT_BOX_SCORE
            names = upload.names
            try:
                with served.reserve():
                    cases = await to_thread.run_sync(read_cases, served.model, upload, self._state.limits, folder)
                    names = cases.names
                    note_model(request.scope, served, len(cases.inputs))
                    predictions = await served.predict(
                        cases.inputs, folder / "out", threshold, lambda: refuse_gone_client(request)
                    )
                    answer = PredictedCases(served, predictions, folder / "out", names, cases.notes)
                    refuse_failed(answer)
                    if format_name == "json":
                        return JSONResponse(answer.to_json())
                    file = await to_thread.run_sync(write_files, answer, format_name)
            except M3bError as error:
                raise to_serve_error(error, names) from error
            return FolderResponse(make_file_response(file), resources.pop_all())

    async def show_health(self, request: Request) -> Response:
        """Say that the server is alive, and whether each model's process was started."""
        models = {served.name: served.is_ready for served in self._state.pool.models}
        return JSONResponse({"live": True, "ready": self._state.pool.is_ready, "models": models})

    async def show_live(self, request: Request) -> Response:
        """Answer 200 as long as the server answers at all."""
        return JSONResponse({"live": True})

    async def show_ready(self, request: Request) -> Response:
        """Answer 200 if each model's process was started, else 503."""
        is_ready = self._state.pool.is_ready
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def show_metrics(self, request: Request) -> Response:
        """Counts, seconds and queue lengths of the models, as text for Prometheus."""
        text = self._state.metrics.format_text(self._state.pool.models)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name}/predict", self.predict, methods=["POST"]),
            Route("/health", self.show_health),
            Route("/health/live", self.show_live),
            Route("/health/ready", self.show_ready),
            Route("/metrics", self.show_metrics),
        ]


def describe_model(served: ServedModel) -> dict[str, Any]:
    """Return the JSON values that clients get of a model; no path."""
    model = served.model
    return {
        "name": served.name,
        "version": served.version,
        "title": model.title,
        "task": model.task,
        "classes": list(model.classes),
        "multi_label": model.multi_label,
        "channels": list(model.channels),
        "covariates": [dict(rule) for rule in model.covariates],
        "primary": model.metrics.get("primary"),
        "ready": served.is_ready,
    }


def make_predict_app(
    state: ServerState,
    *,
    token: str = "",
    host_names: Sequence[str] = (),
    more_routes: Sequence[BaseRoute] = (),
    open_paths: Sequence[str] = (),
    on_stop: Sequence[Callable[[], Awaitable[None]]] = (),
) -> Starlette:
    """Return the application.

    Args:
        token: without it requests get 401, except for the health; empty for a server of this machine alone.
        host_names: that requests may use if there is no token (`list_own_names`).
        more_routes: beside those of predictions, such as the ones of MONAI Label.
        open_paths: of these that need no token.
        on_stop: called when the server stops.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(state.pool.start)
            yield
            group.cancel_scope.cancel()
        for stop in on_stop:
            await stop()
        state.pool.close()
        state.log.close()

    routes: list[BaseRoute] = [*PredictRoutes(state).routes(), *more_routes]

    async def show_openapi(request: Request) -> Response:
        """Return this document."""
        return JSONResponse(make_openapi_document(routes, state.pool.models, has_token=bool(token)))

    routes.append(Route("/openapi.json", show_openapi))
    guard = (
        Middleware(TokenGuard, token=token, open_paths=(*OPEN_PATHS, *open_paths))
        if token
        else Middleware(LocalNameGuard, names=host_names)
    )
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestRecorder, log=state.log, metrics=state.metrics),
            Middleware(HeaderGuard),
            guard,
            Middleware(FailureGuard),
        ],
        exception_handlers={
            M3bError: _answer_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_gone_client,
        },
        lifespan=lifespan,
    )


async def _answer_error(request: Request, error: Exception) -> Response:
    serve_error = to_serve_error(error, {})
    if serve_error.status >= 500 and serve_error.status != 503:
        logger.warning("%s: %s", request.scope.get("route") and request.scope["route"].path, serve_error.code)
    return error_response(serve_error)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes: Mapping[int, str] = {404: "unknown_path", 405: "unknown_method"}
    return error_response(
        ServeError(error.status_code, codes.get(error.status_code, "http_error"), error.detail, error.headers)
    )


async def _answer_gone_client(request: Request, error: Exception) -> Response:
    return error_response(ServeError(499, "client_gone", "The client closed the connection."))
