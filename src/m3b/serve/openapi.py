"""The OpenAPI document of the server, from the types of its answers and from what each served model takes and gives."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute, Route

from m3b import __version__
from m3b.serve.model_pool import ServedModel
from m3b.serve.request_cases import FILE_FIELD
from m3b.serve.result_writers import WRITERS

PREDICT_PATH = "/v1/models/{name}/predict"
Json = dict[str, Any]


class BoxAnswer(BaseModel):
    """A detected box, in the coordinates of the image file."""

    label: str
    box: list[float]
    score: float


class PredictionAnswer(BaseModel):
    """The prediction for one case; which fields there are depends on the task. Families of tasks may add further ones."""

    model_config = ConfigDict(extra="allow")

    image: list[str] = Field(description="Names of the files, as the client gave them.")
    error: str | None = Field(None, description="Why there is no prediction.")
    error_code: str | None = Field(None, description="The reason for programs.")
    probabilities: dict[str, float] | None = Field(None, description="Class -> calibrated probability.")
    prediction: list[str] | None = Field(None, description="The classes that the model decides for.")
    prediction_set: list[str] | None = Field(None, description="Classes that cannot be ruled out.")
    set_level: float | None = Field(None, description="Share of sets that hold the true class.")
    abstains: bool | None = Field(None, description="Whether the model should not decide.")
    out_of_distribution: bool | None = Field(None, description="Whether the image is unlike the training images.")
    why: str | None = Field(None, description="The reason for that.")
    notes: list[str] | None = None
    boxes: list[BoxAnswer] | None = None
    anomaly_score: float | None = None
    volumes_ml: dict[str, float | None] | None = None
    findings: str | None = None
    impression: str | None = None
    value: float | None = Field(None, description="Regression: the estimate.")
    interval: list[float] | None = None
    risk: float | None = Field(None, description="Survival: the risk.")
    mask: str | None = Field(None, description="File of the answer in the format `zip`.")
    masks: dict[str, str] | None = None


class PredictAnswer(BaseModel):
    """The predictions of one request."""

    model: str
    version: str
    task: str
    predictions: list[PredictionAnswer]
    notes: list[str] = Field(description="What was skipped or chosen in the files.")


class ModelDescription(BaseModel):
    """A served model."""

    name: str
    version: str
    title: str
    task: str
    classes: list[str]
    multi_label: bool
    channels: list[str]
    covariates: list[dict[str, Any]]
    primary: dict[str, Any] | None = Field(description="The test figure with its interval.")
    ready: bool


class ModelList(BaseModel):
    """All served models."""

    models: list[ModelDescription]


class HealthAnswer(BaseModel):
    """The state of the server."""

    live: bool
    ready: bool
    models: dict[str, bool]


class ErrorDetail(BaseModel):
    """The reason of an error, for programs and for people."""

    code: str
    message: str


class ErrorAnswer(BaseModel):
    """An error."""

    error: ErrorDetail


_ANSWERS = {"/v1/models": ModelList, PREDICT_PATH: PredictAnswer, "/health": HealthAnswer}
_ERRORS = {401: "no token, or another", 404: "no such model", 406: "no such format", 408: "the upload was too slow",
           413: "the body is too large", 415: "no form", 422: "the images do not fit the model",
           500: "the model failed", 503: "the queue is full; see Retry-After"}  # fmt: skip


def make_openapi_document(routes: Iterable[BaseRoute], models: Sequence[ServedModel], *, has_token: bool) -> Json:
    """Return the document, version 3.1."""
    types: tuple[type[BaseModel], ...] = (PredictAnswer, ModelList, HealthAnswer, ErrorAnswer)
    _, schemas = models_json_schema(
        [(kind, "serialization") for kind in types], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, Json] = {}
    for route in routes:
        if isinstance(route, Route):
            _add_route(paths, route, models)
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "m3b serve", "version": __version__, "description": "Predictions of delivered models."},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _add_route(paths: dict[str, Json], route: Route, models: Sequence[ServedModel]) -> None:
    served_paths = [(route.path, None)]
    if route.path == PREDICT_PATH:
        served_paths = [(f"/v1/models/{served.name}/predict", served) for served in models]  # type: ignore[misc]
    for path, served in served_paths:
        plain_path = re.sub(r":\w+}", "}", path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(plain_path, {})[method.lower()] = _describe_operation(route, plain_path, method, served)


def _describe_operation(route: Route, path: str, method: str, served: ServedModel | None) -> Json:
    words = [method.lower(), *re.findall(r"[\w.-]+", path)]
    operation: Json = {
        "operationId": "_".join(words),
        "summary": (inspect.getdoc(route.endpoint) or "").splitlines()[0],
        "responses": {"200": _describe_content(route.path)},
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    if served is not None:
        parameters += [_query_parameter("version", {"type": "string"}), _query_parameter("format", _format_schema()),
                       _query_parameter("threshold", {"type": "number", "minimum": 0, "maximum": 1})]  # fmt: skip
        operation["requestBody"] = {
            "required": True, "content": {"multipart/form-data": {"schema": _describe_form(served)}}
        }  # fmt: skip
        operation["responses"] |= {
            str(status): {
                "description": text,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}},
            }
            for status, text in _ERRORS.items()
        }
    if parameters:
        operation["parameters"] = parameters
    return operation


def _query_parameter(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "schema": schema}


def _format_schema() -> Json:
    text = "; ".join(f"{name}: {writer.description}" for name, writer in WRITERS.items())
    return {"type": "string", "enum": ["json", *WRITERS], "description": text}


def _describe_content(path: str) -> Json:
    answer = _ANSWERS.get(path)
    if answer is None:
        return {"description": "the answer"}
    content: Json = {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer.__name__}"}}}
    if path == PREDICT_PATH:
        binary = {"schema": {"type": "string", "format": "binary"}}
        content |= {kind: binary for writer in WRITERS.values() for kind in writer.media_types}
    return {"description": "the answer", "content": content}


def _describe_form(served: ServedModel) -> Json:
    """Return the schema of the form that a model takes: its channels, or files, and its covariates."""
    model = served.model
    file_list = {"type": "array", "items": {"type": "string", "format": "binary"}}
    properties: Json = {name: file_list for name in model.channels or (FILE_FIELD,)}
    for rule in model.covariates:
        is_number = rule["kind"] == "number"
        properties[str(rule["name"])] = {"type": "number"} if is_number else {"type": "string", "enum": rule["values"]}
    return {"type": "object", "properties": properties, "required": list(model.channels or (FILE_FIELD,))}
