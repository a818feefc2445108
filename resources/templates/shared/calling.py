"""How every predict.py is called, and how it answers: paths in, JSON out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ImagePath = str | list[str]


@dataclass(frozen=True)
class Call:
    """What was asked for.

    Args:
        out: the file to answer in; None is standard output.
        beside: the folder to which paths in the answer are relative.
        masks: folder of mask files.
        batch: images or windows at a time.
    """

    paths: list[ImagePath]
    out: Path | None
    beside: Path
    masks: Path
    batch: int


def read_call(argv: Sequence[str] | None, doc: str | None, batch: int) -> Call:
    """The command line of a predict.py whose text is `doc`; ends the program where no image is named.

    Args:
        batch: images, or windows of one, at a time, where the call does not say.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*")
    parser.add_argument("--list", help="a JSON list of paths (or of lists of slices or views)")
    parser.add_argument("-o", "--out", help="a JSON file instead of standard output")
    parser.add_argument(
        "--masks", help="folder for mask files, where there are any; `masks` beside OUT.json if not given"
    )
    parser.add_argument("--batch", type=int, default=batch, help="images or windows at a time")
    options = parser.parse_args(argv)
    listed = json.loads(Path(options.list).read_text(encoding="utf-8")) if options.list else []
    if not [*options.images, *listed]:
        parser.error("name at least one image, or a --list")
    out = Path(options.out) if options.out else None
    beside = out.resolve().parent if out else Path.cwd()
    masks = Path(options.masks).resolve() if options.masks else beside / "masks"
    return Call([*options.images, *listed], out, beside, masks, max(1, options.batch))


def write_answers(results: Iterable[Mapping[str, Any]], call: Call) -> int:
    """Writes the predictions where they were asked for; the exit code: 1 if any image could not be read."""
    found = list(results)
    raw = _json(found)
    if call.out:
        call.beside.mkdir(parents=True, exist_ok=True)
        call.out.write_bytes(raw)
    else:
        sys.stdout.buffer.write(raw)
    failed = [result for result in found if "error" in result]
    for result in failed:
        print(f"error: {result['error']}".encode(errors="replace").decode(), file=sys.stderr)
    return 1 if failed else 0


def _json(found: object) -> bytes:
    """UTF-8 as people read it; names of files that are no valid UTF-8 come escaped."""
    try:
        return f"{json.dumps(found, indent=1, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(found, indent=1)}\n".encode()
