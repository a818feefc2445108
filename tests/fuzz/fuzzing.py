"""Mutated files through the reader, by previews and by the audit; fuzzed calls through the toolbox.

What has to hold: every answer is typed, nothing outside of the roots is shown or changed, and memory stays bounded.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.mutator import mutate
from fuzz.valid_files import make_valid
from m3b.agents.checks.worker_jobs import AUDIT_JOB, AuditRequest
from m3b.data.index import LABELS, TEST, TRAIN
from m3b.dataset.audit import Audit
from m3b.errors import DataError
from m3b.isolation.reader import Reader
from m3b.isolation.sandbox import Mounts, Sandbox
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox, ToolResult
from m3b.tools.preview_tools import PREVIEW_JOB, PreviewCall

SECRET = "m3b-fuzz-secret-7f3a"
A_CALL = 40
"""Files of one preview."""
PICTURES = (
    ".png",
    ".jpg",
    ".tif",
    ".bmp",
    ".nii",
    ".gz",
    ".nrrd",
    ".mha",
    ".mhd",
    ".nhdr",
    ".hdr",
    ".mgz",
    ".npy",
    ".dcm",
    ".webp",
)
PATIENCE_S = 30.0


@dataclass
class Tally:
    """What came of so many inputs."""

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    ended: list[str] = field(default_factory=list)
    max_reader_bytes: int = 0
    seconds: float = 0.0

    def format_summary(self) -> str:
        kinds = ", ".join(f"{name} {count:,}" for name, count in self.outcomes.most_common())
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return (
            f"{self.inputs:,} in {self.seconds:.0f} s: {kinds}; reader started {self.restarts}x, holds at most "
            f"{self.max_reader_bytes / 2**20:.0f} MiB; this process at most {grown:.0f} MiB; accidents: {len(self.ended)}"
        )


class Place:
    """Roots to read and write, and beside them a secret that no answer may hold."""

    def __init__(self, top: Path) -> None:
        self.top, self.data, self.work = top, top / "data", top / "work"
        self.outside = top / "outside"
        for folder in (self.data, self.work, self.outside):
            folder.mkdir(parents=True)
        self.secret = self.outside / "secret.raw"
        self.secret.write_text(SECRET * 100)
        self.valid = make_valid(top / "valid")
        for name in ("pair.img", "d.raw"):
            shutil.copy(top / "valid" / name, self.data)
        (self.data / "link.mhd").symlink_to(self.secret)
        os.mkfifo(self.data / "pipe.png")
        self.before = self.state()

    def state(self) -> dict[str, tuple[int, int]]:
        """Everything that nothing may change."""
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in (*self.outside.rglob("*"), *self.top.glob("*"))
                if p not in (self.work, self.data)}  # fmt: skip


def fuzz_files(place: Place, sandbox: Sandbox, count: int, seed: int) -> Tally:
    """So many mutated files, half through previews and half through the audit of an index of images."""
    rng, tally, began = random.Random(seed), Tally(), time.monotonic()
    contents = [path.read_bytes() for path in place.valid]
    batch = place.data / "batch"
    with Reader(sandbox, Mounts(read=(place.data,))) as reader:
        while tally.inputs < count:
            shutil.rmtree(batch, ignore_errors=True)
            (batch / "Datapath").mkdir(parents=True)
            for name in ("pair.img", "d.raw"):
                shutil.copy(place.data / name, batch)
            is_preview = rng.random() < 0.5
            names = _batch(batch, place, contents, min(A_CALL, count - tally.inputs), rng, images=not is_preview)
            output = _previewed(reader, place, names, tally) if is_preview else _audited(reader, batch, names, tally)
            assert SECRET not in output, f"the secret was shown: {output[:2000]}"
            tally.inputs += len(names)
            tally.ended += [line for line in output.splitlines() if "ended m3b's reader" in line]
            tally.restarts, tally.max_reader_bytes = reader.starts, max(tally.max_reader_bytes, reader.held_bytes)
            tally.seconds = time.monotonic() - began
            if tally.inputs % 10_000 < A_CALL:
                print(f"so far {tally.format_summary()}", flush=True)
    assert place.state() == place.before
    tally.seconds = time.monotonic() - began
    return tally


def _batch(
    folder: Path, place: Place, contents: list[bytes], count: int, rng: random.Random, *, images: bool
) -> list[str]:
    candidates = [n for n, path in enumerate(place.valid) if path.suffix in PICTURES or not images]
    names = []
    for number in range(count):
        index = rng.choice(candidates)
        name = f"{number}_{place.valid[index].name}"
        (folder / name).write_bytes(mutate(contents[index], contents, place.secret, rng))
        names.append(name)
    return names


def _previewed(reader: Reader, place: Place, names: list[str], tally: Tally) -> str:
    paths = [f"data/x/batch/{name}" for name in names]
    preview_call = PreviewCall("preview_files", {"paths": paths}, place.work, {"data/x": place.data}, "mask", 8000)
    result = reader.run_job(PREVIEW_JOB, preview_call, stall_timeout_s=PATIENCE_S)
    assert isinstance(result, ToolResult)
    parts = result.text.split("\n\ndata/x/")
    tally.outcomes["preview: cannot be read"] += (bad := sum("cannot be read" in part for part in parts))
    tally.outcomes["preview: described"] += len(names) - bad
    return result.text


def _audited(reader: Reader, folder: Path, names: list[str], tally: Tally) -> str:
    records = [{"image_path": name, "labels": ["ab"[n % 2]], "patient": f"p{n}"} for n, name in enumerate(names)]
    half = len(records) // 2
    (folder / TRAIN).write_text(json.dumps(records[:half]))
    (folder / TEST).write_text(json.dumps(records[half:]))
    (folder / LABELS).write_text(json.dumps({"a": 0, "b": 1}))
    try:
        audit = reader.run_job(AUDIT_JOB, AuditRequest(folder, "diagnosis", 600.0), stall_timeout_s=PATIENCE_S)
    except DataError as error:  # of the index as a whole, or of too many accidents
        tally.outcomes[f"audit: {type(error).__name__}"] += len(names)
        tally.ended.append(f"the whole audit of {len(names)}: {error}")
        return str(error)
    assert isinstance(audit, Audit)
    tally.outcomes["audit: opened"] += audit.opened
    tally.outcomes["audit: found fault with"] += len(names) - audit.opened
    return json.dumps(audit.to_json())


# --- calls --------------------------------------------------------------------------------------------------------


def fuzz_calls(place: Place, sandbox: Sandbox, count: int, seed: int) -> Tally:
    """So many calls of the tools (scripts apart, which the sandbox's own tests run) with arguments of any kind."""
    rng, tally, began = random.Random(seed), Tally(), time.monotonic()
    for path in place.valid:
        shutil.copy(path, place.data)
    names = [name for name in TOOLS if name != "run_script"]
    box: Toolbox | None = None
    try:
        for number in range(count):
            if number % 2000 == 0:
                box = _fresh(place, sandbox, box, tally)
            name = rng.choice(names) if rng.random() < 0.98 else _text(rng)
            call = ToolCall("1", name, _arguments(name, place, rng), "broken" if rng.random() < 0.01 else "")
            assert box is not None
            result = box.call(call, names)
            assert isinstance(result, ToolResult)
            assert SECRET not in result.text, (name, call.arguments)
            assert len(result.text) < 40_000, (name, len(result.text))
            tally.outcomes[f"{name if name in names else 'no tool'}: {'refused' if result.is_error else 'done'}"] += 1
            tally.inputs += 1
            tally.max_reader_bytes = max(tally.max_reader_bytes, box.context.reader.held_bytes)
            tally.seconds = time.monotonic() - began
            if tally.inputs % 10_000 == 0:
                print(f"so far {tally.format_summary()}", flush=True)
    finally:
        if box is not None:
            tally.restarts += box.context.reader.starts
            box.close()
    assert place.state() == place.before
    tally.seconds = time.monotonic() - began
    return tally


def _fresh(place: Place, sandbox: Sandbox, old: Toolbox | None, tally: Tally) -> Toolbox:
    """A new working folder, so that copies of copies do not fill the disk."""
    if old is not None:
        tally.restarts += old.context.reader.starts
        old.close()
    shutil.rmtree(place.work)
    place.work.mkdir()
    (place.work / "out").symlink_to(place.outside)
    (place.work / "loop").symlink_to(place.work)
    os.mkfifo(place.work / "pipe.csv")
    return Toolbox(Roots(place.work, {"data/x": place.data}), sandbox=sandbox)


def _arguments(name: str, place: Place, rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.05:
        return {_text(rng): _anything(place, rng, 0) for _ in range(rng.randrange(4))}
    usual: dict[str, Any] = {
        "list_files": {"path": _path(place, rng), "depth": _number(rng)},
        "read_files": {"paths": _paths(place, rng), "offset": _number(rng), "limit": _number(rng)},
        "copy_files": {"source": _path(place, rng), "destination": _path(place, rng)},
        "write_files": {"files": [{"path": _path(place, rng), "content": _text(rng)}]},
        "edit_files": {"edits": [{"path": _path(place, rng), "old": _text(rng), "new": _text(rng)}]},
        "preview_dirs": {"path": _path(place, rng), "samples": _number(rng)},
        "preview_files": {"paths": _paths(place, rng)},
    }
    arguments: dict[str, Any] = usual.get(name, {})
    if arguments and rng.random() < 0.2:
        arguments[rng.choice([*arguments, _text(rng)])] = _anything(place, rng, 0)
    return arguments


def _path(place: Place, rng: random.Random) -> str:
    names = [path.name for path in place.valid]
    return rng.choice(
        [
            *[f"data/x/{rng.choice(names)}" for _ in range(12)], "data/x", ".", "new.txt", "sub/dir/new.txt", _text(rng),
            "../outside/secret.raw", "out/secret.raw", "loop/loop/loop/pipe.csv", "pipe.csv", "data/x/pipe.png", "data/x/link.mhd",
            str(place.secret), "/etc/passwd", "/proc/self/environ", "data/x/../../outside/secret.raw", "a" * 300, "a/" * 2500,
            "\0", "data", "data/y", "~/x", f"{place.data}/a.csv", "",
        ]
    )  # fmt: skip


def _paths(place: Place, rng: random.Random) -> list[str]:
    return [_path(place, rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 60 if rng.random() < 0.02 else 1)))]


def _number(rng: random.Random) -> int:
    return rng.choice((-1, 0, 1, 2, 5, 400, 10**6, 2**63, -(2**70)))


def _text(rng: random.Random) -> str:
    kinds = (
        "",
        "x",
        "label,patient\n1,2\n" * 5,
        "\u202e\u0000\ud800",
        "𝒳é\n",
        "[" * 200,
        "%s{}$(id)`id`",
        "\x1b[31m",
        "a" * 3000,
    )
    return rng.choice(kinds)


def _anything(place: Place, rng: random.Random, depth: int) -> Any:
    match rng.randrange(8 if depth < 4 else 6):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2:
            return _number(rng)
        case 3:
            return rng.choice((1.5, float("nan"), float("inf")))
        case 4:
            return _text(rng)
        case 5:
            return _path(place, rng)
        case 6:
            return [_anything(place, rng, depth + 1) for _ in range(rng.randrange(4))]
        case _:
            return {_text(rng): _anything(place, rng, depth + 1) for _ in range(rng.randrange(4))}
