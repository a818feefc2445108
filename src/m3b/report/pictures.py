"""The pictures of a run: drawn by the confined reader from the locked index, and kept in `pictures.json` of the run."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from m3b.data.links import roots_of
from m3b.errors import DataError, M3bError, ModelError
from m3b.isolation import untrusted
from m3b.isolation.reader import Reader
from m3b.isolation.reader.inprocess import InProcessReader, open_reader
from m3b.isolation.reader.remote_errors import ReaderError
from m3b.isolation.sandbox import Sandbox
from m3b.models.case_pictures import DRAW_CASES_JOB, CasePicture, CasePictures, CasesRequest
from m3b.models.case_saliency import explain_cases
from m3b.models.kept_answers import read_answers
from m3b.models.predict_process import read_model_info
from m3b.models.predictions import Saliency
from m3b.writing import write_text_atomically

PICTURES_FILE = "pictures.json"
MAX_FILE_BYTES = 32 * 2**20
MAX_PICTURE_BYTES = 3 * 2**20
"""Maximum size of all pictures of a page, so that the page stays below 5 MB."""
N_EXAMPLES = 12
FORMAT_VERSION = 5

ReaderOpener = Callable[[], AbstractContextManager[Reader | InProcessReader]]
_ADAPTER: TypeAdapter[CasePictures] = TypeAdapter(CasePictures)


def load_pictures(folder: Path) -> CasePictures:
    """Return the pictures that a run folder keeps; none if there are none or the file was damaged."""
    with contextlib.suppress(OSError, ValueError, RecursionError, ValidationError):
        content = json.loads(untrusted.read_text(folder, PICTURES_FILE, MAX_FILE_BYTES))
        return keep_within_size(_ADAPTER.validate_python(content["pictures"]))
    return CasePictures()


def draw_pictures(
    folder: Path,
    task: str,
    test_keys: Sequence[str],
    open_picture_reader: ReaderOpener | None,
    explained_keys: Sequence[str] = (),
    sandbox: Sandbox | None = None,
) -> None:
    """Draw the pictures of a run into `pictures.json`, unless those there are of the same cases and answers.

    Args:
        test_keys: the test cases to draw.
        open_picture_reader: opens a confined reader of the locked index and its raw data; an own one by default.
        explained_keys: the test cases whose pictures show what the answer depends on, if the model can say it.
        sandbox: confines the model; the strongest one of this machine by default.

    Raises:
        DataError, ModelError, OSError: the images or the answers cannot be read.
    """
    locked = folder / "locked"
    if not (locked / "Datapath/test.json").is_file():
        return
    source = _fingerprint(locked, [*test_keys, "explained", *explained_keys])
    if _read_source(folder) == source:
        return
    answers = {}
    if test_keys:
        kept_answers = read_answers(locked, read_model_info(locked / "model"))
        answers = (
            {key: kept_answers.predictions[key] for key in test_keys if key in kept_answers.predictions}
            if kept_answers
            else {}
        )
    saliency: dict[str, Saliency] = {}
    with contextlib.suppress(M3bError, OSError, ValueError):  # pictures without saliency are worth having
        saliency = explain_cases(locked, task, explained_keys, sandbox)
    request = CasesRequest(locked, task, answers, list(test_keys), N_EXAMPLES, saliency)
    try:
        with open_picture_reader() if open_picture_reader else _open_own_reader(locked) as reader:
            pictures = reader.run_job(DRAW_CASES_JOB, request)
    except ReaderError as error:
        raise DataError(str(error)) from error
    content = {"version": FORMAT_VERSION, "source": source, "pictures": _ADAPTER.dump_python(pictures, mode="json")}
    write_text_atomically(folder / PICTURES_FILE, json.dumps(content), is_private=True)


@contextlib.contextmanager
def _open_own_reader(locked: Path) -> Iterator[Reader | InProcessReader]:
    with open_reader([path for path in roots_of(locked) if path.is_dir()]) as reader:
        yield reader


def _fingerprint(locked: Path, test_keys: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT_VERSION, *test_keys]).encode())
    for name in ("Datapath/test.json", "answers/answers.json"):
        with contextlib.suppress(OSError):
            digest.update(untrusted.hash_file(locked, name).encode())
    return digest.hexdigest()


def _read_source(folder: Path) -> str:
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        return str(json.loads(untrusted.read_text(folder, PICTURES_FILE, MAX_FILE_BYTES))["source"])
    return ""


def keep_within_size(pictures: CasePictures, max_bytes: int = MAX_PICTURE_BYTES) -> CasePictures:
    """Return the pictures without those that are no JPEG or exceed the size of a page; test cases come first."""
    n_bytes = 0

    def select(cases: list[CasePicture]) -> list[CasePicture]:
        nonlocal n_bytes
        selected = []
        for case in cases:
            is_jpeg = bytes(case.jpeg).startswith(b"\xff\xd8\xff")
            if case.jpeg and (not is_jpeg or n_bytes + len(case.jpeg) > max_bytes):
                reason = "too large for this page" if is_jpeg else "no JPEG"
                case = CasePicture(case.key, case.split, case.labels, text=case.text, error=reason)
            n_bytes += len(case.jpeg)
            selected.append(case)
        return selected

    return CasePictures(select(pictures.tests), select(pictures.examples), pictures.legend)


__all__ = ["DataError", "ModelError", "draw_pictures", "keep_within_size", "load_pictures"]
