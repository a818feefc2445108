"""How every predict.py is called, and how it answers: paths in, JSON out."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.dataset.formats import DataError, Image, describe_channels, parse_cases, select_channels

QUIET_NOTES = ("pyramid", "no_orientation")
"""What many files have, and what changes nothing of their pixels."""
ImagePath = str | list[str] | dict[str, str]


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


def read_call(argv: Sequence[str] | None, doc: str | None, batch: int, home: Path) -> Call:
    """The command line of a predict.py whose text is `doc`; ends the program where no image is named.

    Args:
        batch: images, or windows of one, at a time, where the call does not say.
        home: the folder of config.json, which says whether a case is several images by name.
    """
    names = channel_names(home)
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*", **_shown(names))
    values = covariate_names(home)
    if values:
        about = f"what the model is given beside the images: {', '.join(values)}; NAME= where one is not known"
        parser.add_argument("--with", nargs="+", dest="given", default=[], metavar="NAME=VALUE", help=about)
    parser.add_argument("--list", help="a JSON list of paths (of lists of slices or views; of objects channel -> path)")
    parser.add_argument("-o", "--out", help="a JSON file instead of standard output")
    parser.add_argument(
        "--masks", help="folder for mask files, where there are any; `masks` beside OUT.json if not given"
    )
    parser.add_argument("--batch", type=int, default=batch, help="images or windows at a time")
    options = parser.parse_args(argv)
    try:
        named = parse_cases(options.images, names)
        if values and named:
            named = [{"image": case, **_given(options.given, values)} for case in named]
    except DataError as error:
        parser.error(str(error))
    listed = json.loads(Path(options.list).read_text(encoding="utf-8")) if options.list else []
    if not [*named, *listed]:
        parser.error("name at least one image, or a --list")
    out = Path(options.out) if options.out else None
    beside = out.resolve().parent if out else Path.cwd()
    masks = Path(options.masks).resolve() if options.masks else beside / "masks"
    return Call([*named, *listed], out, beside, masks, max(1, options.batch))


def channel_names(home: Path) -> list[str] | None:
    """The channels of a case by name, in the model's order; None where a case is one image."""
    plan = json.loads((home / "config.json").read_text(encoding="utf-8")).get("plan") or {}
    names: list[str] | None = plan.get("channel_names")
    return names


def covariate_names(home: Path) -> dict[str, str]:
    """What the model is given beside the image: name -> `number` or `category`."""
    plan = json.loads((home / "config.json").read_text(encoding="utf-8")).get("plan") or {}
    return {rule["name"]: rule["kind"] for rule in plan.get("covariates") or []}


def _given(words: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The values of `age=61 sex=F crp=`.

    Raises:
        DataError: a word without a known name, or a number that is none.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or name not in kinds:
            raise DataError(f"--with {word}: name one of {', '.join(kinds)}, as NAME=VALUE")
        try:
            found[name] = None if not text else float(text) if kinds[name] == "number" else text
        except ValueError:
            raise DataError(f"--with {word}: {name} is a number") from None
    return found


def noted(image: Image) -> dict[str, Any]:
    """`{"notes": [...]}` of what the reader notes on an image, such as slices that are missing; empty for most images."""
    notes = [str(note) for note in image.notes if note.code not in QUIET_NOTES]
    return {"notes": notes} if notes else {}


def first_of(path: ImagePath) -> str:
    """The path after which files of a case are called."""
    several = list(path.values()) if isinstance(path, dict) else path
    return several if isinstance(several, str) else (several[0] if several else "empty")


def _shown(names: Sequence[str] | None) -> dict[str, str]:
    """How the images of a case stand in the help."""
    if not names:
        return {"metavar": "IMAGE"}
    return {
        "metavar": "NAME=PATH",
        "help": f"a case: {describe_channels(names)}; a name that comes again begins the next case",
    }


def stem_of(path: str) -> str:
    """What files about an image may be called: its name without folders, endings and odd characters."""
    name = re.sub(r"(\.nii)?\.[A-Za-z0-9]{1,7}(?=#|$)", "", Path(path).name)
    return plain(name).strip("_")[:80] or "image"


def plain(name: str) -> str:
    """A name, such as that of a class, as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)


def answer_each(
    paths: Sequence[ImagePath],
    plan: Mapping[str, Any],
    masks: str | Path,
    answer: Callable[[ImagePath, Path], Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """One dict a path, in order; an image that cannot be read has its error.

    Args:
        masks: folder for the files that answers write.
        answer: the fields of an image's answer, of its path with the channels in the plan's order and of the path, without an
            ending, that its files may begin with.
    """
    for number, path in enumerate(paths, start=1):
        try:
            asked = select_channels(path, plan.get("channel_names"))
            yield {"image": path, **answer(asked, Path(masks) / f"{number:04d}_{stem_of(first_of(asked))}")}
        except DataError as error:
            yield {"image": path, "error": str(error)}


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
