"""A folder of studies with the labels that people make: originals are never changed, labels lie in a folder of m3b's own."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from m3b.cleanup import undo_on_error
from m3b.serve.serve_errors import ServeError
from m3b.serve.zip_contents import get_suffix

OWN_FOLDER = "m3b-labels"
FINAL_TAG = "final"
DICOM_SUFFIX = ".dcm"
IMAGE_SUFFIXES = (".nii", ".nii.gz", ".nrrd", ".mha", ".png", ".jpg", ".jpeg", ".tif", ".tiff", DICOM_SUFFIX)
LABEL_SUFFIXES = (".nii", ".nii.gz", ".nrrd", ".mha", ".png", ".json")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ID = re.compile(r"[^\0-\x1f\x7f\\]{1,400}")


@dataclass
class Study:
    """An image: its file, or the folder of its DICOM series; and tag -> file of its labels."""

    image: Path
    labels: dict[str, Path] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """The suffix of the image; `.dcm` of a series."""
        return DICOM_SUFFIX if self.image.is_dir() else get_suffix(self.image.name)


class StudyFolder:
    """Images of a folder by id, which is the path without its suffix; and their labels.

    Args:
        root: the folder. Labels and uploaded images are written to `m3b-labels/` in it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._images, self._labels = self.root / OWN_FOLDER / "images", self.root / OWN_FOLDER / "labels"

    def list_studies(self) -> dict[str, Study]:
        """Return id -> study. Nothing is opened, and links are left out."""
        studies = {identity: Study(image) for identity, image in self._list_images(self.root)}
        studies |= {identity: Study(image) for identity, image in self._list_images(self._images)}
        for tag_folder in sorted(self._labels.iterdir()) if self._labels.is_dir() else ():
            for file in sorted(tag_folder.rglob("*")):
                identity = _without_suffix(file.relative_to(tag_folder))
                if file.is_file() and identity in studies:
                    studies[identity].labels[tag_folder.name] = file
        return studies

    def _list_images(self, root: Path) -> Iterator[tuple[str, Path]]:
        for folder_name, folder_names, file_names in os.walk(root):
            folder = Path(folder_name)
            folder_names[:] = sorted(name for name in folder_names if name != OWN_FOLDER and not name.startswith("."))
            names = sorted(
                name for name in file_names if not name.startswith(".") and get_suffix(name) in IMAGE_SUFFIXES
            )
            slices = [name for name in names if get_suffix(name) == DICOM_SUFFIX]
            if len(slices) > 1 and folder != root:
                yield folder.relative_to(root).as_posix(), folder
                names = [name for name in names if name not in slices]
            for name in [name for name in names if not (folder / name).is_symlink()]:
                yield _without_suffix((folder / name).relative_to(root)), folder / name

    def find(self, identity: str) -> Study:
        """Return the study of an id. Raises ServeError."""
        studies = self.list_studies()
        if identity not in studies:
            raise ServeError(404, "unknown_image", "There is no image of this id.")
        return studies[identity]

    def find_label(self, identity: str, tag: str) -> Path:
        """Return the file of a label. Raises ServeError."""
        labels = self.find(identity).labels
        if (tag or FINAL_TAG) not in labels:
            raise ServeError(404, "unknown_label", "This image has no label of this tag.")
        return labels[tag or FINAL_TAG]

    def save_label(self, identity: str, tag: str, file: Path, *, should_replace: bool = True) -> None:
        """Copy a label; an earlier one of the image and tag is replaced, or else stays.

        Raises:
            ServeError: no such image, no valid tag, or a file of another kind.
        """
        labels = self.find(identity).labels
        if not _TAG.fullmatch(tag):
            raise ServeError(422, "invalid_tag", "A tag has letters, digits, `-` and `_` only.")
        if tag in labels and not should_replace:
            return
        suffix = get_suffix(file.name)
        if suffix not in LABEL_SUFFIXES:
            raise ServeError(415, "label_format", f"Labels are {', '.join(LABEL_SUFFIXES)}.")
        target = self._labels / tag / f"{identity}{suffix}"
        _copy_atomically(file, target)
        if tag in labels and labels[tag] != target:
            labels[tag].unlink(missing_ok=True)

    def remove_label(self, identity: str, tag: str) -> None:
        """Delete a label. Raises ServeError."""
        self.find_label(identity, tag).unlink()

    def add_image(self, identity: str, file: Path) -> str:
        """Copy an image into m3b's own folder and return its id.

        Raises:
            ServeError: an id that is taken or leads elsewhere, or a file of another kind.
        """
        path = PurePosixPath(identity)
        is_plain = _ID.fullmatch(identity) and path.parts and not path.is_absolute() and not any(
            part.startswith(".") or part == OWN_FOLDER for part in path.parts
        )  # fmt: skip
        if not is_plain:
            raise _make_id_error()
        suffix = get_suffix(file.name)
        if suffix not in IMAGE_SUFFIXES:
            raise ServeError(415, "image_format", f"Images are {', '.join(IMAGE_SUFFIXES)}.")
        own_id = identity.removesuffix(suffix)
        if own_id in self.list_studies():
            raise ServeError(409, "image_exists", "There is an image of this id.")
        _copy_atomically(file, self._images / f"{own_id}{suffix}")
        return own_id

    def remove_image(self, identity: str) -> None:
        """Delete an uploaded image and its labels.

        Raises:
            ServeError: there is none, or it is one of the originals.
        """
        study = self.find(identity)
        if not study.image.is_relative_to(self._images):
            raise ServeError(403, "original_image", "Originals of the folder are never deleted; this one is no upload.")
        for file in (study.image, *study.labels.values()):
            file.unlink()


def _without_suffix(path: Path) -> str:
    return path.as_posix().removesuffix(path.name[len(path.name) - len(get_suffix(path.name)) :])


def _copy_atomically(file: Path, target: Path) -> None:
    """Copy a file for this user alone. Raises ServeError if its path is too long, or leads through a file."""
    try:
        _make_private_folders(target.parent)
        partial = target.with_name(f".{secrets.token_hex(8)}")
        with undo_on_error(partial.unlink, missing_ok=True):
            partial.touch(0o600)
            shutil.copyfile(file, partial)
            partial.replace(target)
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
            raise
        raise _make_id_error() from error


def _make_private_folders(folder: Path) -> None:
    """Make a folder and its parents for this user alone."""
    if not folder.is_dir():
        _make_private_folders(folder.parent)
        folder.mkdir(0o700, exist_ok=True)


def _make_id_error() -> ServeError:
    return ServeError(422, "invalid_id", "This cannot be the id of an image.")
