"""The tool preview_files: the content of data files of any kind. Runs in the reader process."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from m3b.data.natural import natural
from m3b.data.patterns import extension
from m3b.data.phi import Phi
from m3b.errors import DataError, ToolError
from m3b.facts import FileSummary, Previews
from m3b.isolation import untrusted
from m3b.tools.context import PreviewContext, ToolResult
from m3b.tools.files import missing_path_error
from m3b.tools.paths import open_for_reading, walk
from m3b.tools.previews.lines import Lines
from m3b.tools.text import format_bytes, shorten
from m3b.writing import to_one_line

_KIND_EXTENSIONS = {
    "tables": (".csv", ".tsv", ".tab", ".psv"),
    "workbooks": (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
    "containers": (".parquet", ".pq", ".mat"),
    "records": (".json", ".jsonl", ".ndjson", ".geojson"),
    "arrays": (".npy", ".npz", ".h5", ".hdf5", ".hdf", ".pt", ".pth", ".pkl", ".pickle"),
    "dicom": (".dcm", ".dicom", ".ima"),
}
_MAX_COPIED_BYTES = 2**31
"""Maximum size of a volume in the working folder that is previewed, with its companion files."""
_MIN_SPARSE_BYTES = 2**30
COPY_PREFIX = f"m3b-look-{os.getpid()}-"
_MAX_SERIES_FILES = 5000
_KIND_BY_EXTENSION = {end: kind for kind, ends in _KIND_EXTENSIONS.items() for end in ends}


def preview_files(ctx: PreviewContext, paths: list[str]) -> ToolResult:
    """Return one part of text for each path; a path that cannot be read affects only its own part."""
    parts: list[str] = []
    files: list[FileSummary] = []
    failed = 0
    for path in paths[:40]:
        try:
            parts.append(preview_path(ctx, path, files))
        except (ToolError, DataError) as error:
            parts.append(to_one_line(display_paths(ctx, str(error))))
            failed += 1
        except OSError as error:
            parts.append(to_one_line(f"{path}: {error.strerror or error}"))
            failed += 1
        except MemoryError:
            parts.append(
                f"{to_one_line(path)}: cannot be read: it needs more memory than there is. Look at it with a script."
            )
            failed += 1
    if len(paths) > 40:
        parts.append(f"Only the first 40 of {len(paths)} paths were previewed.")
    data = Previews(files=tuple(files)).to_json()
    return ToolResult("\n\n".join(parts), is_error=failed == len(paths[:40]), data=data)


def display_paths(ctx: PreviewContext, text: str) -> str:
    """Replace real paths in a message by the agent's names for them."""
    for name, base in sorted([("", ctx.roots.work), *ctx.roots.read.items()], key=lambda root: -len(str(root[1]))):
        text = text.replace(f"{base}/", f"{name}/" if name else "")
    return text


def preview_path(ctx: PreviewContext, path: str, files: list[FileSummary]) -> str:
    """Return the preview of one file or series folder as text; add its summary to `files` if its kind has one.

    Raises:
        ToolError: the path does not exist or cannot be read as the kind that it seems to be.
    """
    real = ctx.roots.resolve(path)
    if not real.exists():
        raise missing_path_error(ctx.roots, path, real)
    display_path = ctx.roots.display_path(real)
    if real.is_dir():
        return _preview_folder(ctx, real, display_path, files)
    with open_for_reading(real, display_path) as file:
        head = file.read(4096)
        status = os.fstat(file.fileno())
    length = status.st_size
    if not length:
        return f"{display_path}: empty file"
    if length > _MIN_SPARSE_BYTES and status.st_blocks * 512 * 100 < length:
        raise ToolError(
            f"{display_path}: {format_bytes(length)}, nearly all of it holes without content; look at it with a script."
        )
    kind = detect_kind(real, head)
    if kind == "other":
        return (
            f"{display_path}: a binary file of {format_bytes(length)} of unknown kind; begins with {head[:16].hex(' ')}"
        )
    preview = _load_preview(kind)
    try:
        with _stable_copy(ctx, real, kind) as stable_path:
            lines = preview(stable_path, ctx.phi)
    except MemoryError:
        raise
    except ToolError as error:
        raise ToolError(str(error) if str(error).startswith(display_path) else f"{display_path}: {error}") from None
    except untrusted.UnsafePathError as error:
        raise ToolError(f"{display_path}: {error.strerror}; look at it with a script.") from None
    except Exception as error:  # noqa: BLE001 - the readers of a dozen formats raise what they like on broken files
        reason = shorten(str(error).replace(str(real), display_path), 300) or type(error).__name__
        raise ToolError(
            f"{display_path}: {format_bytes(length)}, cannot be read as {extension(real.name) or kind}: {reason}"
        ) from None
    if isinstance(lines, Lines):
        files.append(lines.summary.model_copy(update={"path": display_path}))
    shown_lines = [to_one_line(line) for line in lines]
    return f"{display_path}: {format_bytes(length)}, {shown_lines[0]}" + "".join(
        f"\n  {line}" for line in shown_lines[1:]
    )


def _load_preview(kind: str) -> Callable[[Path, Phi], list[str]]:
    """Return the preview of a kind of files, whose libraries are imported only when it is needed."""
    match kind:
        case "archives":
            from m3b.tools.previews import archives

            return archives.preview
        case "arrays":
            from m3b.tools.previews import arrays

            return arrays.preview
        case "containers":
            from m3b.tools.previews import tables

            return tables.preview_container
        case "dicom":
            from m3b.tools.previews import dicom

            return dicom.preview
        case "images":
            from m3b.tools.previews import images

            return images.preview
        case "plain":
            from m3b.tools.previews import plain

            return plain.preview
        case "records":
            from m3b.tools.previews import records

            return records.preview
        case "tables":
            from m3b.tools.previews import tables

            return tables.preview
        case "workbooks":
            from m3b.tools.previews import tables

            return tables.preview_workbook
    raise ValueError(f"there is no preview of {kind}")


@contextmanager
def _stable_copy(ctx: PreviewContext, real: Path, kind: str) -> Iterator[Path]:
    """Yield a path that is safe to open.

    A file in the working folder is copied first: a running script could change it between the check of its header and the
    opening by its library. Archives, DICOM files and JSON are opened by a descriptor, so their path is returned unchanged.
    """
    if kind in ("archives", "dicom", "records") or not ctx.roots.is_writable(real):
        yield real
        return
    from m3b.dataset.formats import get_format

    with tempfile.TemporaryDirectory(prefix=COPY_PREFIX) as scratch:
        bytes_left = _MAX_COPIED_BYTES - untrusted.copy_file(
            real.parent, real.name, Path(scratch), real.name, max_bytes=_MAX_COPIED_BYTES
        )
        copied = Path(os.path.realpath(scratch)) / real.name
        try:
            names = [sidecar.name for sidecar in get_format(copied).sidecars(copied)]
        except DataError as error:
            raise ToolError(str(error).replace(f"{copied.parent}/", "")) from None
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                bytes_left -= untrusted.copy_file(real.parent, name, Path(scratch), name, max_bytes=bytes_left)
        yield copied


def detect_kind(path: Path, head: bytes) -> str:
    """Return the preview module for a file, by its extension or else by its first bytes."""
    return _KIND_BY_EXTENSION.get(extension(path.name)) or _detect_by_content(path, head)


def _is_image(path: Path, head: bytes) -> bool:
    """Return whether `m3b.dataset.formats` describes a file: pictures, volumes, clips, and Parquet tables."""
    from m3b.dataset.formats import find_format

    found = find_format(head, path.name)
    return found is not None and (not found.is_container or found.name == "parquet") and found.name != "dicom"


def _detect_by_content(path: Path, head: bytes) -> str:
    if head[128:132] == b"DICM":
        return "dicom"
    if _is_image(path, head):
        return "images"
    if head.startswith((b"\x93NUMPY", b"\x89HDF\r\n")):
        return "arrays"
    if head.startswith(b"PK") and _is_zip(path):
        return "archives"
    if head[:2] == b"\x1f\x8b" or head[257:262] == b"ustar":
        return "archives"
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "other"
    return "plain"


def _is_zip(path: Path) -> bool:
    with open_for_reading(path, path.name) as file:
        return zipfile.is_zipfile(file)


def _preview_folder(ctx: PreviewContext, folder: Path, display_path: str, summaries: list[FileSummary]) -> str:
    """Return the preview of a DICOM series, or of one file of another folder with the advice to use preview_dirs."""
    files = _list_series_files(ctx, folder, display_path)
    if not files:
        return f"{display_path}: a folder without files"
    from m3b.tools.previews import dicom

    probes = (files[0], files[len(files) // 2])
    if any(dicom.is_dicom(file) for file in probes):
        return f"{display_path}: " + "\n  ".join(dicom.preview_series(files, ctx.phi))
    middle = files[len(files) // 2]
    or_more = " or more" if len(files) > _MAX_SERIES_FILES else ""
    return (
        f"{display_path}: a folder of {len(files):,}{or_more} files; preview_dirs counts them. "
        f"One of them:\n{preview_path(ctx, str(middle), summaries)}"
    )


def _list_series_files(ctx: PreviewContext, folder: Path, display_path: str) -> list[Path]:
    """Return the real paths of the regular files below a folder in natural order, up to just above `_MAX_SERIES_FILES`.

    Links to files are included if they stay within the roots.
    """
    readable, files = ctx.roots.readable_paths(), dict[str, Path]()
    try:
        for entry in walk(folder):
            entry_path = f"{folder}/{entry.name}"
            is_hidden = any(part.startswith(".") for part in entry.name.split("/"))
            if not is_hidden and (entry.kind == "file" or (entry.kind == "link" and entry_path in readable)):
                files[entry.name] = Path(readable.real(entry_path))
            if len(files) > _MAX_SERIES_FILES:
                break
    except untrusted.UnsafePathError as error:
        raise ToolError(f"{display_path}: {error.strerror}. Name a folder of one series.") from None
    return [files[name] for name in sorted(files, key=natural)]
