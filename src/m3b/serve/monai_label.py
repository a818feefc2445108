"""The REST interface of MONAI Label, as its plug-ins of viewers use it, on served models and a folder of studies.

The routes and their fields are those that the clients of MONAI Label 0.8 send and read. Without a folder of studies, images come
as files or sessions, and the datastore is empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from m3b import __version__
from m3b.cleanup import undo_on_error
from m3b.data.records import frozen
from m3b.errors import M3bError
from m3b.isolation.untrusted import TemporaryFolder
from m3b.models import Prediction, read_model_info
from m3b.models.input_cases import find_model_images
from m3b.models.label_maps import make_label_map
from m3b.serve.audit_log import note_model
from m3b.serve.label_tasks import DEFAULT_MINUTES, LabelTask, TaskRunner, make_training, read_minutes
from m3b.serve.model_pool import ServedModel
from m3b.serve.predict_app import FolderResponse, ServerState, make_file_response, refuse_gone_client
from m3b.serve.request_cases import read_cases
from m3b.serve.result_writers import PredictedCases, refuse_failed, write_files
from m3b.serve.serve_errors import ServeError, to_serve_error
from m3b.serve.study_folder import FINAL_TAG, Study, StudyFolder
from m3b.serve.uploads import MAX_FIELD_BYTES, Upload, UploadedFile, check_content_length
from m3b.serve.zip_contents import get_suffix, pack_files

OPEN_PATHS = ("/auth/", "/auth/token")
TOKEN_PATH = "/auth/token"  # nosec B105: a path
MAX_SESSIONS = 32
SESSION_S = 3600.0
MAX_SCORED = 50
"""Studies that one request for the next case predicts; the others are scored by later requests."""
MODEL_TYPES = {"segmentation": "segmentation", "diagnosis": "classification", "detection": "detection"}
STRATEGIES = {
    "first": "the first study without a final label",
    "random": "any study without a final label",
    "uncertainty": "the study without a final label of which the model is least certain",
}
ORIGINAL_TAG = "original"
"""Tag of labels that a model made: the next batch replaces them, and no others."""


@dataclass
class Session:
    """An uploaded image that several requests use."""

    folder: TemporaryFolder
    upload: Upload
    expiry_s: float
    created: float = field(default_factory=time.time)
    last_access: float = field(default_factory=time.time)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values that clients read; no path."""
        return {"create_ts": int(self.created), "last_access_ts": int(self.last_access), "expiry": int(self.expiry_s)}


class LabelRoutes:
    """The routes. Each handler is one request.

    Args:
        state: of the server.
        token: of the server; empty if requests need none.
        studies: the folder of studies; None if there is none.
    """

    def __init__(self, state: ServerState, token: str, studies: StudyFolder | None) -> None:
        self._state, self._token, self._studies = state, token, studies
        self._sessions: dict[str, Session] = {}
        self._uncertainties: dict[tuple[str, str, float], tuple[bool, float]] = {}
        self._training, self._batch = TaskRunner(), TaskRunner()
        self._tasks: set[Any] = set()

    # --- the server ---------------------------------------------------------------------------------------------

    async def show_auth(self, request: Request) -> Response:
        """Say whether requests need a token."""
        return JSONResponse({"enabled": bool(self._token), "client_id": "", "realm": ""})

    async def make_token(self, request: Request) -> Response:
        """Return the token of the server for a form whose `password` is the token: plug-ins ask for both."""
        password = parse_qs((await _read_body(request)).decode("utf-8", "replace")).get("password", [""])[0]
        if not self._token or not hmac.compare_digest(password.encode(), self._token.encode()):
            raise ServeError(401, "wrong_password", "The password is the token of this server.")
        return JSONResponse({"access_token": self._token, "token_type": "bearer"})  # nosec B105: a kind

    async def check_token(self, request: Request) -> Response:
        """Answer 200: a request without the token does not come here."""
        return JSONResponse({"valid": True})

    async def show_info(self, request: Request) -> Response:
        """Describe the served models, the strategies for the next case, and the datastore."""
        models = {served.name: served for served in self._state.pool.models}
        labels = list(dict.fromkeys(name for served in models.values() for name in served.model.classes))
        return JSONResponse({
            "name": "m3b", "description": "Models delivered by m3b", "version": __version__, "labels": labels,
            "models": {name: _describe_model(served) for name, served in models.items()},
            "trainers": {name: {"description": "m3b train", "config": {"minutes": DEFAULT_MINUTES}} for name in models},
            "strategies": {name: {"description": text} for name, text in STRATEGIES.items()},
            "scoring": {}, "train_stats": {}, "datastore": await self._summarize_studies(),
        })  # fmt: skip

    async def show_logs(self, request: Request) -> Response:
        """Return the latest lines of the audit log."""
        return PlainTextResponse("".join(f"{line}\n" for line in self._state.log.recent))

    # --- predictions --------------------------------------------------------------------------------------------

    async def infer(self, request: Request) -> Response:
        """Predict an image of the datastore, of a session, or of the form; return a label map and JSON values."""
        served = self._state.pool.find(request.path_params["model"])
        note_model(request.scope, served, 1)
        query = request.query_params
        with contextlib.ExitStack() as resources:
            folder = resources.enter_context(TemporaryFolder("serve"))
            served.check_place()
            form = await self._state.receive_upload(request, folder) if _has_form(request) else Upload()
            params = _parse_params(form.fields.get("params", ""))
            upload = self._find_upload(form, query.get("session_id", ""), query.get("image", ""))
            upload.fields = {
                name: str(params[name])
                for rule in served.model.covariates
                if params.get(name := str(rule["name"])) is not None
            }
            names = upload.names
            try:
                with served.reserve():
                    cases = await to_thread.run_sync(read_cases, served.model, upload, self._state.limits, folder)
                    names = cases.names
                    predictions = await served.predict(
                        cases.inputs[:1], folder / "out", None, lambda: refuse_gone_client(request)
                    )
                    answer = PredictedCases(served, predictions, folder / "out", names, cases.notes)
                    refuse_failed(answer)
                    response = await self._make_answer(answer, query.get("output", ""), params)
            except M3bError as error:
                raise to_serve_error(error, names) from error
            return FolderResponse(response, resources.pop_all())

    async def _make_answer(self, answer: PredictedCases, output: str, params: dict[str, Any]) -> Response:
        if output == "dicom_seg":
            return make_file_response(await to_thread.run_sync(write_files, answer, "dicom-seg"))
        [entry] = answer.to_json()["predictions"]
        labels = read_model_info(answer.served.model.folder).labels
        values = {"label_names": dict(labels), "model": answer.served.name, "version": answer.served.version, **entry}
        suffix = str(params.get("result_extension") or "")
        file = await to_thread.run_sync(_make_mask_file, answer.predictions[0], labels, answer.folder, suffix)
        if output == "json" or file is None:
            return JSONResponse(values)
        if output == "image":
            return make_file_response(file)
        return _make_form_response(values, file)

    def _find_upload(self, form: Upload, session_id: str, image: str) -> Upload:
        """Return the files to predict as if they were in the form. Raises ServeError."""
        files = [item for item in form.files if item.field == "file"]
        if session_id:
            session = self._find_session(session_id)
            return Upload({}, list(session.upload.files), dict(session.upload.names))
        if files:
            return Upload({}, files, dict(form.names))
        if not image:
            raise ServeError(422, "no_image", "Name an image, a session, or send a file.")
        return _as_upload(image, self._get_studies().find(image))

    async def start_batch(self, request: Request) -> Response:
        """Predict all studies, or those with or without labels; masks are saved as labels of the tag `original`."""
        served = self._state.pool.find(request.path_params["model"])
        note_model(request.scope, served)
        params = _parse_params((await _read_body(request)).decode("utf-8", "replace"))
        studies = self._get_studies()
        chosen = await to_thread.run_sync(_choose_studies, studies, request.query_params.get("images", "all"))
        tag = str(params.get("label_tag") or ORIGINAL_TAG)

        async def predict_all(task: LabelTask) -> bool:
            n_failed = 0
            for number, (identity, study) in enumerate(chosen.items(), start=1):
                n_failed += not await self._predict_study(served, identity, study, tag)
                task.details.append(f"{number} of {len(chosen)} predicted, {n_failed} not possible")
            return n_failed < len(chosen) or not chosen

        details = {"model": served.name, "images": len(chosen), "label_tag": tag}
        return JSONResponse(self._batch.start(details, predict_all, self._start_soon).to_json())

    async def _predict_study(self, served: ServedModel, identity: str, study: Study, tag: str) -> bool:
        """Save the mask of a study, and remember how certain the model is; return whether it was predicted."""
        with contextlib.ExitStack() as resources:
            folder = resources.enter_context(TemporaryFolder("serve"))
            prediction = await self._predict_for(served, study, folder)
            if prediction is None:
                return False
            self._remember(served, identity, study, prediction)
            labels = read_model_info(served.model.folder).labels
            file = await to_thread.run_sync(_make_mask_file, prediction, labels, folder / "out", "")
            if file is not None:
                save_label = partial(self._get_studies().save_label, should_replace=tag == ORIGINAL_TAG)
                await to_thread.run_sync(save_label, identity, tag, file)
            return True

    async def _predict_for(self, served: ServedModel, study: Study, folder: Path) -> Prediction | None:
        """Return the prediction of a study; None if it is not possible."""
        try:
            listing = await to_thread.run_sync(find_model_images, [study.image], served.model.config)
            [prediction] = await served.predict([frozen(image) for image in listing.images[:1]], folder / "out")
        except (M3bError, ValueError):
            return None
        return None if prediction.error else prediction

    async def show_batch(self, request: Request) -> Response:
        """Return the state of the batch."""
        return _show_task(self._batch, request)

    async def stop_batch(self, request: Request) -> Response:
        """Stop the batch."""
        return _stop_task(self._batch)

    # --- sessions -----------------------------------------------------------------------------------------------

    async def create_session(self, request: Request) -> Response:
        """Keep the files of a form for later requests, an hour from the last one on."""
        self._drop_expired()
        if len(self._sessions) >= MAX_SESSIONS:
            raise ServeError(503, "too_many_sessions", "There are too many sessions.", {"Retry-After": "60"})
        expiry = request.query_params.get("expiry", "0")
        expiry_s = min(SESSION_S, float(expiry) if expiry.isdecimal() and int(expiry) else SESSION_S)
        folder = TemporaryFolder("session")
        with undo_on_error(folder.close):
            upload = await self._state.receive_upload(request, folder.path)
            if not upload.files:
                raise ServeError(422, "no_image", "The form has no file.")
        identity = secrets.token_urlsafe(24)
        session = self._sessions[identity] = Session(folder, upload, expiry_s)
        return JSONResponse({"session_id": identity, "session_info": session.to_json()})

    async def show_session(self, request: Request) -> Response:
        """Return when a session was used, or with `image=true` its file."""
        session = self._find_session(request.path_params["session_id"])
        if request.query_params.get("image") == "true":
            return make_file_response(session.upload.files[0].path)
        return JSONResponse(session.to_json())

    async def remove_session(self, request: Request) -> Response:
        """Delete the files of a session."""
        session = self._find_session(request.path_params["session_id"])
        del self._sessions[request.path_params["session_id"]]
        session.folder.close()
        return JSONResponse(session.to_json())

    def _find_session(self, identity: str) -> Session:
        self._drop_expired()
        if identity not in self._sessions:
            raise ServeError(404, "unknown_session", "There is no session of this id; it may have expired.")
        session = self._sessions[identity]
        session.last_access = time.time()
        return session

    def _drop_expired(self) -> None:
        now = time.time()
        for identity in [key for key, item in self._sessions.items() if item.last_access + item.expiry_s < now]:
            self._sessions.pop(identity).folder.close()

    # --- the datastore ------------------------------------------------------------------------------------------

    def _get_studies(self) -> StudyFolder:
        if self._studies is None:
            raise ServeError(404, "no_studies", "This server has no folder of studies: m3b serve --studies FOLDER.")
        return self._studies

    async def _list_studies(self) -> dict[str, Study]:
        return {} if self._studies is None else await to_thread.run_sync(self._studies.list_studies)

    async def _summarize_studies(self) -> dict[str, Any]:
        studies = await self._list_studies()
        tags = sorted(tag for study in studies.values() for tag in study.labels)
        return {
            "total": len(studies), "completed": sum(FINAL_TAG in study.labels for study in studies.values()),
            "label_tags": {tag: tags.count(tag) for tag in tags},
        }  # fmt: skip

    async def show_datastore(self, request: Request) -> Response:
        """Return counts of images and labels; with `output=all` each image with its labels."""
        output = request.query_params.get("output", "stats")
        studies = await self._list_studies()
        if output == "all":
            objects = {identity: _describe_study(study) for identity, study in studies.items()}
            return JSONResponse({"name": "studies", "description": "", "objects": objects})
        if output == "train":
            labelled = [identity for identity, study in studies.items() if FINAL_TAG in study.labels]
            return JSONResponse([{"image": identity, "label": identity} for identity in labelled])
        return JSONResponse(await self._summarize_studies())

    async def add_image(self, request: Request) -> Response:
        """Add an image under an id; the originals of the folder stay as they are."""
        studies = self._get_studies()
        with TemporaryFolder("serve") as folder:
            upload = await self._state.receive_upload(request, folder)
            item = _only_file(upload, "file")
            identity = request.query_params.get("image") or item.client_name.removesuffix(get_suffix(item.client_name))
            return JSONResponse({"image": await to_thread.run_sync(studies.add_image, identity, item.path)})

    async def download_image(self, request: Request) -> Response:
        """Return the file of an image; a DICOM series as an archive."""
        study = await to_thread.run_sync(self._get_studies().find, request.query_params.get("image", ""))
        if not study.image.is_dir():
            return make_file_response(study.image)
        with contextlib.ExitStack() as resources:
            archive = resources.enter_context(TemporaryFolder("serve")) / "series.zip"
            files = {file.name: file for file in sorted(study.image.iterdir()) if file.is_file()}
            await to_thread.run_sync(pack_files, archive, files)
            return FolderResponse(make_file_response(archive), resources.pop_all())

    async def remove_image(self, request: Request) -> Response:
        """Delete an image that was uploaded, and its labels; originals are never deleted."""
        await to_thread.run_sync(self._get_studies().remove_image, request.query_params.get("id", ""))
        return JSONResponse({})

    async def show_image_info(self, request: Request) -> Response:
        """Return what is known of an image."""
        study = await to_thread.run_sync(self._get_studies().find, request.query_params.get("image", ""))
        return JSONResponse(_describe_study(study)["image"]["info"])

    async def save_label(self, request: Request) -> Response:
        """Save a label of an image, by default of the tag `final`."""
        studies, identity = self._get_studies(), request.query_params.get("image", "")
        tag = request.query_params.get("tag") or FINAL_TAG
        if tag == ORIGINAL_TAG:
            raise ServeError(422, "reserved_tag", f"Labels of the tag {ORIGINAL_TAG} are made by models alone.")
        with TemporaryFolder("serve") as folder:
            upload = await self._state.receive_upload(request, folder)
            await to_thread.run_sync(studies.save_label, identity, tag, _only_file(upload, "label").path)
        return JSONResponse({"image": identity, "label": identity})

    async def download_label(self, request: Request) -> Response:
        """Return the file of a label."""
        query = request.query_params
        label = query.get("label") or query.get("image", "")
        return make_file_response(await to_thread.run_sync(self._get_studies().find_label, label, query.get("tag", "")))

    async def remove_label(self, request: Request) -> Response:
        """Delete a label."""
        query = request.query_params
        await to_thread.run_sync(self._get_studies().remove_label, query.get("id", ""), query.get("tag", ""))
        return JSONResponse({})

    # --- the next case ------------------------------------------------------------------------------------------

    async def choose_next(self, request: Request) -> Response:
        """Return the study to label next, by a strategy; nothing if each has a final label."""
        strategy = request.path_params["strategy"]
        if strategy not in STRATEGIES:
            raise ServeError(404, "unknown_strategy", f"Strategies are {', '.join(STRATEGIES)}.")
        params = _parse_params((await _read_body(request)).decode("utf-8", "replace"))
        studies = await self._list_studies()
        open_ids = [identity for identity, study in studies.items() if FINAL_TAG not in study.labels]
        if not open_ids:
            return JSONResponse({})
        if strategy == "uncertainty":
            chosen = await self._find_least_certain(
                request, {identity: studies[identity] for identity in open_ids}, params
            )
        else:
            chosen = open_ids[0] if strategy == "first" else random.choice(open_ids)  # nosec B311: no secret
        info = _describe_study(studies[chosen])["image"]
        return JSONResponse({"id": chosen, "name": f"{chosen}{info['ext']}", "ext": info["ext"], **info["info"]})

    async def _find_least_certain(self, request: Request, studies: dict[str, Study], params: dict[str, Any]) -> str:
        """Return the study of which the model is least certain: out of distribution first, then near a decision."""
        name = params.get("model")
        served = self._state.pool.find(name) if isinstance(name, str) and name else self._state.pool.models[0]
        note_model(request.scope, served)
        unscored = [
            identity
            for identity, study in studies.items()
            if self._key(served, identity, study) not in self._uncertainties
        ]
        random.shuffle(unscored)
        for identity in unscored[:MAX_SCORED]:
            with TemporaryFolder("serve") as folder:
                prediction = await self._predict_for(served, studies[identity], folder)
                self._remember(served, identity, studies[identity], prediction)
        known = {
            identity: self._uncertainties.get(self._key(served, identity, study)) for identity, study in studies.items()
        }
        scored = {identity: value for identity, value in known.items() if value is not None}
        if all(value == (False, 0.0) for value in scored.values()):
            message = "This model does not say how certain it is of these studies: choose another strategy."
            raise ServeError(409, "no_uncertainty", message)
        return max(scored, key=lambda identity: scored[identity])

    def _key(self, served: ServedModel, identity: str, study: Study) -> tuple[str, str, float]:
        return f"{served.name} {served.version}", identity, study.image.stat().st_mtime

    def _remember(self, served: ServedModel, identity: str, study: Study, prediction: Prediction | None) -> None:
        value = (False, 0.0) if prediction is None else measure_uncertainty(prediction)
        self._uncertainties[self._key(served, identity, study)] = value

    # --- training -----------------------------------------------------------------------------------------------

    async def start_training(self, request: Request) -> Response:
        """Train the model of a served run for longer (`m3b train`), and serve the better one then."""
        name = request.path_params.get("model") or self._state.pool.models[-1].name
        served = self._state.pool.find(name)
        note_model(request.scope, served)
        params = _parse_params((await _read_body(request)).decode("utf-8", "replace"))
        minutes = read_minutes(params[name] if isinstance(params.get(name), dict) else params)
        work = make_training(served, minutes)
        return JSONResponse(self._training.start({"model": name, "minutes": minutes}, work, self._start_soon).to_json())

    async def show_training(self, request: Request) -> Response:
        """Return the state of the training; with `check_if_running=true` 404 if none is at work."""
        return _show_task(self._training, request)

    async def stop_training(self, request: Request) -> Response:
        """Stop the training; `m3b train` can go on with it."""
        return _stop_task(self._training)

    def _start_soon(self, function: Any, *arguments: Any) -> None:
        task = asyncio.get_running_loop().create_task(function(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop the tasks and delete the sessions."""
        for runner in (self._training, self._batch):
            runner.stop()
            while runner.is_running:
                await anyio.sleep(0.05)
        for session in self._sessions.values():
            session.folder.close()
        self._sessions.clear()

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [
            Route("/info/", self.show_info),
            Route("/auth/", self.show_auth),
            Route(TOKEN_PATH, self.make_token, methods=["POST"]),
            Route("/auth/token/valid", self.check_token),
            Route("/logs/", self.show_logs),
            Route("/infer/{model}", self.infer, methods=["POST"]),
            Route("/batch/infer/{model}", self.start_batch, methods=["POST"]),
            Route("/batch/infer", self.show_batch),
            Route("/batch/infer", self.stop_batch, methods=["DELETE"]),
            Route("/session/", self.create_session, methods=["PUT"]),
            Route("/session/{session_id}", self.show_session),
            Route("/session/{session_id}", self.remove_session, methods=["DELETE"]),
            Route("/datastore/", self.show_datastore),
            *(Route(path, self.add_image, methods=["PUT"]) for path in ("/datastore/", "/datastore/image")),
            *(Route(path, self.remove_image, methods=["DELETE"]) for path in ("/datastore/", "/datastore/image")),
            Route("/datastore/image", self.download_image),
            Route("/datastore/image/info", self.show_image_info),
            Route("/datastore/label", self.save_label, methods=["PUT"]),
            Route("/datastore/label", self.download_label),
            Route("/datastore/label", self.remove_label, methods=["DELETE"]),
            Route("/activelearning/{strategy}", self.choose_next, methods=["POST"]),
            *(Route(path, self.start_training, methods=["POST"]) for path in ("/train/", "/train/{model}")),
            Route("/train/", self.show_training),
            Route("/train/", self.stop_training, methods=["DELETE"]),
        ]


def measure_uncertainty(prediction: Prediction) -> tuple[bool, float]:
    """Return whether an image is unlike the training images, and how close the answer is to another one.

    The second is 1 for a probability or score at one half, and the width of the interval of a number.
    """
    shares = [*prediction.probabilities.values(), *(box.score for box in prediction.boxes or ())]
    shares += [] if prediction.anomaly_score is None else [prediction.anomaly_score]
    if prediction.probabilities and len(prediction.probabilities) > 2:
        return bool(prediction.out_of_distribution), 1 - max(shares)
    interval = prediction.extra.get("interval")
    if isinstance(interval, Sequence) and len(interval) == 2:
        return bool(prediction.out_of_distribution), float(interval[1]) - float(interval[0])
    return bool(prediction.out_of_distribution), max((1 - abs(2 * share - 1) for share in shares), default=0.0)


def _describe_model(served: ServedModel) -> dict[str, Any]:
    model, plan = served.model, served.model.config.get("plan")
    labels = dict(read_model_info(model.folder).labels) or list(model.classes)
    dims = plan.get("dims") if isinstance(plan, dict) else None
    return {
        "type": MODEL_TYPES.get(model.task, "others"), "labels": labels, "dimension": dims or 2,
        "description": f"{model.title} ({served.version})", "config": {},
    }  # fmt: skip


def _describe_study(study: Study) -> dict[str, Any]:
    info = {"ts": int(study.image.stat().st_mtime)}
    labels = {tag: {"ext": get_suffix(file.name), "info": {}} for tag, file in study.labels.items()}
    return {"image": {"ext": study.suffix, "info": info}, "labels": labels}


def _as_upload(identity: str, study: Study) -> Upload:
    """Return a study as the upload of its files."""
    if study.image.is_dir():
        files = sorted(file for file in study.image.iterdir() if file.is_file())
    else:
        files = [study.image]
    items = [UploadedFile("file", identity, file) for file in files]
    return Upload({}, items, {str(file): identity for file in files})


def _choose_studies(studies: StudyFolder, which: str) -> dict[str, Study]:
    chosen = studies.list_studies()
    if which in ("labeled", "unlabeled"):
        return {
            identity: study for identity, study in chosen.items() if (FINAL_TAG in study.labels) == (which == "labeled")
        }
    return chosen


def _make_mask_file(prediction: Prediction, labels: Mapping[str, int], folder: Path, suffix: str) -> Path | None:
    """Return the masks of a prediction as one file, of a suffix if that is asked for; None if it has none.

    Raises:
        ServeError: no such file format.
        DataError: the format cannot hold the masks.
    """
    if suffix not in ("", ".nrrd", ".nii", ".nii.gz", ".mha", ".png"):
        raise ServeError(406, "unknown_format", "Label maps are .nrrd, .nii, .nii.gz, .mha or .png.")
    masks = {file: labels.get(name, number) for number, (name, file) in enumerate(prediction.masks.items(), start=1)}
    if prediction.mask is not None:
        if suffix in ("", get_suffix(prediction.mask.name)):
            return prediction.mask
        masks = {prediction.mask: 0}
    if not masks:
        return None
    maps = folder / "label-map"
    maps.mkdir()
    return make_label_map(masks, maps / f"label{suffix or get_suffix(next(iter(masks)).name)}")


def _make_form_response(values: dict[str, Any], file: Path) -> Response:
    """Return values and a file as a form, with the length that clients need to read it."""
    boundary = secrets.token_hex(16)
    name = f"label{get_suffix(file.name)}"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="params"\r\nContent-Type: application/json\r\n\r\n'
        f'{json.dumps(values)}\r\n--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    tail = f"\r\n--{boundary}--\r\n".encode()

    def read_parts() -> Iterator[bytes]:
        yield head
        with file.open("rb") as stream:
            yield from iter(lambda: stream.read(2**16), b"")
        yield tail

    length = str(len(head) + file.stat().st_size + len(tail))
    return StreamingResponse(
        read_parts(), media_type=f"multipart/form-data; boundary={boundary}", headers={"Content-Length": length}
    )


def _has_form(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("multipart/form-data")


def _only_file(upload: Upload, field_name: str) -> UploadedFile:
    files = [item for item in upload.files if item.field == field_name]
    if len(files) != 1:
        raise ServeError(422, "no_file", f"The form needs one file in the field {field_name}.")
    return files[0]


async def _read_body(request: Request) -> bytes:
    """Return a small body. Raises ServeError if it is large."""
    check_content_length(request, MAX_FIELD_BYTES)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FIELD_BYTES:
            raise ServeError(413, "body_too_large", "The body is too large for this request.")
    return body


def _parse_params(text: str) -> dict[str, Any]:
    """Return the JSON object of a request; empty if there is none. Raises ServeError."""
    try:
        values = json.loads(text or "{}")
    except (ValueError, RecursionError):
        values = None
    if values is not None and not isinstance(values, dict):
        values = None
    if values is None:
        raise ServeError(422, "invalid_params", "`params` must be a JSON object.")
    return dict(values)


def _show_task(runner: TaskRunner, request: Request) -> Response:
    only_running = request.query_params.get("check_if_running", "").lower() == "true"
    task = runner.get_latest(only_running=only_running).to_json()
    return JSONResponse([task] if request.query_params.get("all", "").lower() == "true" else task)


def _stop_task(runner: TaskRunner) -> Response:
    task = runner.stop()
    return JSONResponse(None if task is None else {**task.to_json(), "status": "STOPPED"})
