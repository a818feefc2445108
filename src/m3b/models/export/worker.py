"""Child processes that load a deliverable's code or an export of it, each confined to a folder of its own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.records import Reference, frozen, paths_of, plain, relocated
from m3b.errors import ModelError
from m3b.isolation.untrusted import read_json
from m3b.models.confinement import run_confined
from m3b.models.predict_process import run_unconfined
from m3b.models.shown_inputs import ShownInputs, folders_to_mount
from m3b.writing import write_text_atomically

MAX_EXPORT_DIFFERENCE = 1e-4
"""The largest allowed absolute difference between an export's numbers and the model's."""

WORKER_FOLDER = Path(__file__).with_name("inside")


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Args:
        export_format: the format.
        folder: the folder of the export.
        compared: what was compared, in words.
        largest_difference: between its numbers and the model's, over everything compared.
    """

    export_format: str
    folder: Path
    compared: str
    largest_difference: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "to": self.export_format,
            "folder": str(self.folder),
            "files": sorted(f.relative_to(self.folder).as_posix() for f in self.folder.rglob("*") if f.is_file()),
            "compared": self.compared,
            "largest_difference": self.largest_difference,
            "tolerance": MAX_EXPORT_DIFFERENCE,
        }


def require_packages(packages: Sequence[str], extra: str) -> None:
    """Raise ModelError if a package is missing, with the command that installs it."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"{', '.join(missing)} not installed; install with: pip install 'm3b[{extra}]'")


STEP_TITLES = {
    "onnx": "writing the graphs of the network",
    "compare": "comparing the graphs with the model",
    "state": "reading the weights of the network",
    "bundle": "comparing the bundle with the model",
    "predict": "predicting the images with the model",
}
"""Action of `inside/m3b_child.py`, or `predict` -> what the user is told while it runs."""


class ChildProcesses:
    """Runs the code of a deliverable for an export, one process after another.

    Each may write to one new folder below `scratch`; its output there is untrusted.

    Args:
        scratch: a folder of m3b's own.
        images: cases to compare on, with absolute paths.
        unconfined: run with all rights of the user instead of in a sandbox.
        on_step: gets the title of each step when it begins.

    `images` has the paths under which the processes see the cases.
    """

    def __init__(
        self,
        scratch: Path,
        images: Sequence[Reference],
        unconfined: bool = False,
        on_step: Callable[[str], None] = lambda title: None,
    ) -> None:
        self.scratch, self.unconfined, self.on_step = scratch, unconfined, on_step
        self.images: list[Any] = [plain(image) for image in images]
        self._read: tuple[Path, ...] = ()
        if not unconfined:
            inputs = scratch / "inputs"
            inputs.mkdir()
            mounted = folders_to_mount([path for image in images for path in paths_of(image)], inputs)
            visible_inputs = ShownInputs(inputs, mounted)
            self.images = [plain(relocated(frozen(image), visible_inputs.show)) for image in images]
            self._read = (inputs, *mounted)

    def folder(self, name: str) -> Path:
        """Return a new folder that one process may write to."""
        place = self.scratch / f"of-{name}"
        place.mkdir()
        return place

    def run(self, argv: list[str], place: Path, read: Sequence[Path]) -> tuple[int, str]:
        """Run a command that writes to `place`; return its exit status and output."""
        if self.unconfined:
            return run_unconfined(argv, place, place)
        return run_confined(argv, read=(*read, *self._read), place=place)

    def act(
        self, action: str, folder: Path, request: Mapping[str, Any], place: Path, read: Sequence[Path] = ()
    ) -> dict[str, Any]:
        """Run one action of `inside/m3b_child.py` on `folder`; return its answer.

        Args:
            place: the folder that it writes to.
            read: further files and folders that it reads.

        Raises:
            ModelError: it failed; the message ends with its output.
        """
        self.on_step(STEP_TITLES[action])
        request_file, result = self.scratch / f"{action}.request.json", place / f"{action}.result.json"
        request_file.write_text(json.dumps(request), encoding="utf-8")
        argv = [
            sys.executable,
            "-B",
            str(WORKER_FOLDER / "m3b_child.py"),
            action,
            str(folder),
            str(request_file),
            str(result),
        ]
        status, log = self.run(argv, place, (WORKER_FOLDER, folder, request_file, *read))
        if status != 0 or not result.is_file():
            lines = [line for line in log.strip().splitlines() if line.strip()]
            raise ModelError(f"{action}: the export ended with status {status}: {' / '.join(lines[-6:])[-1200:]}")
        try:
            answer = read_json(place, result.name)
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"{action}: the export's answer cannot be read: {error}") from None
        if not isinstance(answer, dict):
            raise ModelError(f"{action}: the export wrote a {type(answer).__name__}")
        return answer


def check_difference(difference: float, subject: str) -> None:
    """Raise ModelError if an export is not equal to its model; NaN never is."""
    if not difference <= MAX_EXPORT_DIFFERENCE:
        raise ModelError(
            f"{subject} differs from the model by {difference:.3g}, more than {MAX_EXPORT_DIFFERENCE:g}; nothing was kept"
        )


def package_versions(*names: str) -> dict[str, str]:
    """Return the installed versions, without local build suffixes."""
    return {name: importlib.metadata.version(name).split("+")[0] for name in names}


def write_json(file: Path, content: Any) -> None:
    """Write indented JSON that keeps the order of keys."""
    write_text_atomically(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
