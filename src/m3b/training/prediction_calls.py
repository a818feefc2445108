"""Command line and answers of every predict.py: paths in, JSON out."""

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

QUIET_NOTES = ("pyramid", "slide", "no_orientation")
"""Codes of notes that many files have and that do not affect their pixels."""
ImagePath = str | list[str] | dict[str, str]


@dataclass(frozen=True)
class PredictionCall:
    """Arguments of a call.

    Args:
        out: the file for the answers; None is standard output.
        base_folder: the folder to which paths in the answers are relative.
        masks: folder for mask files.
        batch: images or windows at a time.
        saliency: folder for saliency maps; None if none are wanted.
    """

    paths: list[ImagePath]
    out: Path | None
    base_folder: Path
    masks: Path
    batch: int
    saliency: Path | None = None


def parse_call(
    argv: Sequence[str] | None, doc: str | None, batch: int, home: Path, *, has_saliency: bool = False
) -> PredictionCall:
    """Parse the command line of a predict.py with the docstring `doc`; end the program if no image is named.

    Args:
        batch: default number of images, or windows of one, at a time.
        home: the folder of config.json, which says whether a case has named images.
        has_saliency: whether the model can explain its answers.
    """
    names = read_channel_names(home)
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*", **_describe_images(names))
    values = read_covariate_kinds(home)
    if values:
        help_text = f"covariates of the model: {', '.join(values)}; NAME= if one is unknown"
        parser.add_argument("--with", nargs="+", dest="given", default=[], metavar="NAME=VALUE", help=help_text)
    parser.add_argument("--list", help="a JSON list of paths (of lists of slices or views; of objects channel -> path)")
    parser.add_argument("-o", "--out", help="a JSON file instead of standard output")
    parser.add_argument("--masks", help="folder for mask files, if there are any; default: `masks` beside OUT.json")
    parser.add_argument("--batch", type=int, default=batch, help="images or windows at a time")
    if has_saliency:
        parser.add_argument("--saliency", metavar="DIR", help="write a map of what each answer depends on into DIR")
    options = parser.parse_args(argv)
    try:
        cases = parse_cases(options.images, names)
        if values and cases:
            cases = [{"image": case, **_parse_covariates(options.given, values)} for case in cases]
    except DataError as error:
        parser.error(str(error))
    listed_cases = json.loads(Path(options.list).read_text(encoding="utf-8")) if options.list else []
    if not [*cases, *listed_cases]:
        parser.error("name at least one image, or a --list")
    out = Path(options.out) if options.out else None
    base_folder = out.resolve().parent if out else Path.cwd()
    masks = Path(options.masks).resolve() if options.masks else base_folder / "masks"
    saliency = Path(options.saliency).resolve() if has_saliency and options.saliency else None
    return PredictionCall([*cases, *listed_cases], out, base_folder, masks, max(1, options.batch), saliency)


def read_channel_names(home: Path) -> list[str] | None:
    """Return the channel names of a case in the model's order; None if a case is one image."""
    plan = json.loads((home / "config.json").read_text(encoding="utf-8")).get("plan") or {}
    names: list[str] | None = plan.get("channel_names")
    return names


def read_covariate_kinds(home: Path) -> dict[str, str]:
    """Return the covariates of the model: name -> `number` or `category`."""
    plan = json.loads((home / "config.json").read_text(encoding="utf-8")).get("plan") or {}
    return {rule["name"]: rule["kind"] for rule in plan.get("covariates") or []}


def _parse_covariates(words: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of `age=61 sex=F crp=`.

    Raises:
        DataError: a word without a known name, or an invalid number.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or name not in kinds:
            raise DataError(f"--with {word}: name one of {', '.join(kinds)}, as NAME=VALUE")
        try:
            values[name] = None if not text else float(text) if kinds[name] == "number" else text
        except ValueError:
            raise DataError(f"--with {word}: {name} must be a number") from None
    return values


def format_notes(image: Image) -> dict[str, Any]:
    """Return `{"notes": [...]}` of the reader's notes on an image, such as missing slices; {} for most images."""
    notes = [str(note) for note in image.notes if note.code not in QUIET_NOTES]
    return {"notes": notes} if notes else {}


def first_path(path: ImagePath) -> str:
    """Return the path that names the files of a case."""
    paths_of_case = list(path.values()) if isinstance(path, dict) else path
    return paths_of_case if isinstance(paths_of_case, str) else (paths_of_case[0] if paths_of_case else "empty")


def _describe_images(names: Sequence[str] | None) -> dict[str, Any]:
    """Return the help on the images of a case."""
    if not names:
        return {"metavar": "IMAGE"}
    return {
        "metavar": "NAME=PATH",
        "help": f"a case: {describe_channels(names)}; a name that comes again begins the next case",
    }


def file_stem(path: str) -> str:
    """Return the stem for files about an image: its name without folders, endings and special characters."""
    name = re.sub(r"(\.nii)?\.[A-Za-z0-9]{1,7}(?=#|$)", "", Path(path).name)
    return safe_name(name).strip("_")[:80] or "image"


def safe_name(name: str) -> str:
    """Return a name, such as that of a class, as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)


def predict_each(
    paths: Sequence[ImagePath],
    plan: Mapping[str, Any],
    masks: str | Path,
    answer: Callable[[ImagePath, Path], Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Yield one dict a path, in order; an image that cannot be read has its error.

    Args:
        masks: folder for the files of answers.
        answer: (path with the channels in the plan's order, path stem of its files) to the fields of the answer.
    """
    for number, path in enumerate(paths, start=1):
        try:
            case = select_channels(path, plan.get("channel_names"))
            yield {"image": path, **answer(case, Path(masks) / f"{number:04d}_{file_stem(first_path(case))}")}
        except DataError as error:
            yield {"image": path, "error": str(error)}


def write_answers(results: Iterable[Mapping[str, Any]], call: PredictionCall) -> int:
    """Write the predictions to the requested place; return the exit code: 1 if any image could not be read."""
    answers = list(results)
    content = _encode_json(answers)
    if call.out:
        call.base_folder.mkdir(parents=True, exist_ok=True)
        call.out.write_bytes(content)
    else:
        sys.stdout.buffer.write(content)
    failed = [result for result in answers if "error" in result]
    for result in failed:
        print(f"error: {result['error']}".encode(errors="replace").decode(), file=sys.stderr)
    return 1 if failed else 0


def _encode_json(values: object) -> bytes:
    """Return readable UTF-8; file names that are no valid UTF-8 are escaped."""
    try:
        return f"{json.dumps(values, indent=1, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(values, indent=1)}\n".encode()
