"""The cases of one prediction: paths, folders, arrays and PIL images of a user as files with covariates."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.cleanup import undo_on_error
from m3b.data.records import Covariate, Image, frozen, paths_of
from m3b.errors import ModelError
from m3b.isolation.reader.inprocess import file_of_reader_path, to_reader_path
from m3b.isolation.untrusted import TemporaryFolder
from m3b.models.array_files import is_array_like, write_array
from m3b.models.covariate_input import split_covariates
from m3b.models.image_jobs import ImageListing, find_images_confined
from m3b.models.input_rules import InputRules, channel_names_of, covariate_rules_of, plan_of


@dataclass(frozen=True)
class InputCase:
    """One case to predict.

    Args:
        image: as its prediction names it: the user's path, or `input[3]` for the fourth input if that is an array.
        files: absolute paths.
        covariates: of the case.
        fingerprint: changes with files and covariates; empty for arrays, which a later call cannot recognise.
        has_spacing: False if the case is an array whose spacing nobody knows.
        problem: why the case is refused, if it is, with `problem_code`.
    """

    image: Image
    files: Image
    covariates: Mapping[str, Covariate] = field(default_factory=dict)
    fingerprint: str = ""
    has_spacing: bool = True
    problem: str = ""
    problem_code: str = ""


class InputCases:
    """The cases of one call, and the temporary files of its arrays, which `close` deletes.

    Args:
        config: config.json of the model.
        images: see `Model.predict`.
        spacing: of arrays, in mm.
        strict: whether an invalid case raises; otherwise its `problem` says what is wrong.
        expand_folders: whether folders are searched for images.

    Raises:
        ModelError: an input is no image, has other axes than the model takes, or there is no image at all.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        images: Any,
        *,
        spacing: Sequence[float] | None = None,
        strict: bool = True,
        expand_folders: bool = True,
    ) -> None:
        self.notes: list[str] = []
        self.config, self._spacing, self._strict = config, spacing, strict
        self._rules = InputRules.from_config(config)
        self._folder: TemporaryFolder | None = None
        self._n_arrays = 0
        with undo_on_error(self.close):
            inputs = [(f"input[{number}]", item) for number, item in enumerate(_list_inputs(images))]
            if expand_folders and not channel_names_of(config):
                inputs = list(self._expand_folders(inputs))
                if not inputs and self.notes:
                    raise ModelError(f"no image was found: {'; '.join(self.notes)}", code="no_image")
            self.cases = [self._make_case(number, name, item) for number, (name, item) in enumerate(inputs, start=1)]

    def __len__(self) -> int:
        return len(self.cases)

    def close(self) -> None:
        """Delete the files of arrays."""
        if self._folder is not None:
            self._folder.close()

    def _expand_folders(self, inputs: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
        for name, item in inputs:
            if isinstance(item, str | Path) and Path(item).is_dir():
                listing = find_model_images([item], self.config)
                self.notes += listing.notes
                yield from ((name, image) for image in listing.images)
            else:
                yield name, item

    def _make_case(self, number: int, name: str, item: Any) -> InputCase:
        image, covariates = split_covariates(item, covariate_rules_of(self.config), number, strict=self._strict)
        n_arrays_before = self._n_arrays
        try:
            display_name, files = self._to_files(image, name)
        except ModelError as error:
            if self._strict:
                raise
            return InputCase(name, name, covariates, problem=str(error), problem_code=error.code)
        has_array = self._n_arrays > n_arrays_before
        return InputCase(
            display_name,
            files,
            covariates,
            "" if has_array else _fingerprint(files, covariates),
            has_spacing=not has_array or self._spacing is not None,
        )

    def _to_files(self, image: Any, name: str) -> tuple[Image, Image]:
        """Return the image as its prediction names it, and its absolute files."""
        if is_array_like(image):
            return name, self._write_array(image, name)
        if isinstance(image, str | Path):
            return str(image), _absolute(str(image))
        if isinstance(image, Mapping):
            pairs = {str(channel): self._to_files(part, f"{name}[{channel!r}]") for channel, part in image.items()}
            if any(not isinstance(label, str) for label, _ in pairs.values()):
                raise ModelError(f"{name}: a channel is one file or array", code="no_image")
            return (
                frozen({channel: str(label) for channel, (label, _) in pairs.items()}),
                frozen({channel: str(file) for channel, (_, file) in pairs.items()}),
            )
        if not isinstance(image, Iterable):
            raise ModelError(
                f"{name} is of the type {type(image).__name__}; give a path, a NumPy array, a PIL image, a list of slices, "
                "or an object of channels",
                code="no_image",
            )
        parts = [self._to_files(part, f"{name}[{n}]") for n, part in enumerate(image)]
        if any(not isinstance(label, str) for label, _ in parts):
            raise ModelError(f"{name}: a list of slices or views holds files or arrays only", code="no_image")
        return tuple(str(label) for label, _ in parts), tuple(str(file) for _, file in parts)

    def _write_array(self, value: Any, name: str) -> str:
        if self._folder is None:
            self._folder = TemporaryFolder("arrays")
        stem = self._folder.path / f"input_{self._n_arrays:05d}"
        self._n_arrays += 1
        return str(write_array(value, name, stem, self._rules, plan_of(self.config), self._spacing))


def _list_inputs(images: Any) -> list[Any]:
    if isinstance(images, str | Path | Mapping) or is_array_like(images) or not isinstance(images, Iterable):
        return [images]
    return list(images)


def find_model_images(paths: Iterable[str | Path], config: Mapping[str, Any]) -> ImageListing:
    """Find the images in folders as the model takes them: pictures one by one, views of a study, slices of a volume.

    Raises:
        DataError: a folder made the reader crash.
        OSError: a folder cannot be read.
    """
    plan = plan_of(config)
    views = plan.get("views") or 1
    return find_images_confined(paths, is_2d=plan.get("dims") == 2, group_views=isinstance(views, int) and views > 1)


def _absolute(path: str) -> str:
    return str(Path.cwd() / path)


def _fingerprint(files: Image, covariates: Mapping[str, Covariate]) -> str:
    """Return a hash of the paths with the size and time of each file, and of the covariates."""
    states: list[Any] = []
    for path in paths_of(files):
        try:
            status = os.stat(file_of_reader_path(to_reader_path(path)))
            states.append([path, status.st_size, status.st_mtime_ns])
        except OSError:
            states.append([path])
    content = json.dumps([states, list(files) if isinstance(files, Mapping) else [], dict(covariates)], default=str)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
