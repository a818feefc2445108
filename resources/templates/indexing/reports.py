"""Cases with reports: tables, Open-i XML files, and text files beside the images."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from folder_layouts import Case, half_of, image_files, natural, stem
from labelling import there
from rows import LIST, decode
from Utils.formats import DataError, probe_image

from tables import YES, Finder

NOT_TEXT = ("readme", "license", "licence", "changelog", "notes", "requirements")
HEADINGS = re.compile(
    r"^\s*(?P<name>findings?|befunde?|résultats?|impressions?|conclusions?|beurteilung|opinion)\s*[:：]\s*",
    re.IGNORECASE | re.MULTILINE,
)
OTHER_HEADING = re.compile(r"^\s*[A-Z][A-Za-z /]{2,30}:\s", re.MULTILINE)


def clean(text: str, empty: set[str]) -> str:
    """A report's text with its white space in order; nothing where it says that there is none."""
    text = re.sub(r"\s+", " ", text.replace(LIST, " ")).strip()
    return "" if text.lower() in empty else text


def table_reports(rows: list[dict[str, str]], finder: Finder, args: argparse.Namespace) -> tuple[list[Case], list[str]]:
    """A case a row, and the names of images that are not there; a cell may list several views."""
    empty = {text.strip().lower() for text in args.empty.split("|")}
    labels = [name.strip() for name in args.label.split(",") if name.strip()]
    cases, absent = [], []
    for row in rows:
        names = [name for name in row.get(args.image, "").split(LIST) if name.strip()]
        places = [finder.find(name) for name in names]
        absent += [name for name, place in zip(names, places, strict=True) if place is None]
        there_are = [place.as_posix() for place in places if place is not None]
        if not there_are:
            absent += [] if names else [""]
            continue
        case = Case(there_are if len(there_are) > 1 else there_are[0], _labels(row, labels, args.separator))
        case.patient, case.row, case.split = row.get(args.patient, ""), row, row.get(args.split_column, "")
        case.split = case.split or row.get("(part)", "")
        case.findings, case.impression = (clean(row.get(name, ""), empty) for name in (args.findings, args.impression))
        cases.append(case)
    return cases, absent


def _labels(row: dict[str, str], labels: list[str], separator: str) -> list[str]:
    if len(labels) > 1:
        return [name for name in labels if row.get(name, "").lower() in YES]
    text = row.get(labels[0], "") if labels else ""
    parts = re.split(re.escape(separator), text) if separator else text.split(LIST)
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def xml_reports(args: argparse.Namespace) -> list[Case]:
    """Open-i: `AbstractText Label="FINDINGS"`, `parentImage id=...`; the file's name is the study."""
    folder = there(args.xml)
    finder = Finder(there(args.images or folder.parent))
    empty = {text.strip().lower() for text in args.empty.split("|")}
    cases, counts = [], Counter[str]()
    for file in sorted(folder.rglob("*.xml"), key=lambda path: natural(path.as_posix())):
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError as error:
            counts[f"no valid XML ({file.name}: {error})"[:120]] += 1
            continue
        texts = {str(one.get("Label", "")).lower(): "".join(one.itertext()) for one in root.iter("AbstractText")}
        found = [finder.find(str(one.get("id", ""))) for one in root.iter("parentImage")]
        images = [place.as_posix() for place in found if place is not None]
        counts["images absent"] += found.count(None)
        if not images:
            counts["reports without an image"] += 1
            continue
        case = Case(images if len(images) > 1 else images[0], [], patient=file.stem)
        case.findings, case.impression = (clean(texts.get(name, ""), empty) for name in ("findings", "impression"))
        cases.append(case)
    told = ", ".join(f"{why} {n}" for why, n in counts.items() if n)
    print(f"XML files with images: {len(cases)}" + (f"; {told}" if told else ""))
    if not cases:
        raise SystemExit(f"No report in {folder} names an image that is there; --images says where they lie.")
    return one_study(cases, args.study_regex)


def text_reports(args: argparse.Namespace) -> list[Case]:
    """A .txt a report, called as its image, as the image's folder, or lying alone beside images in a folder."""
    folder = there(args.texts)
    images = list(image_files(there(args.images or folder)))
    empty = {text.strip().lower() for text in args.empty.split("|")}
    by_name: dict[str, list[Path]] = {}
    for path in images:
        for key in {stem(path.name).lower(), path.parent.name.lower()}:
            by_name.setdefault(key, []).append(path)
    texts = [path for path in folder.rglob("*.txt") if path.stem.lower() not in NOT_TEXT]
    alone = {place for place, n in Counter(path.parent for path in texts).items() if n == 1}
    cases, bare = [], []
    for file in sorted(texts, key=lambda path: natural(path.as_posix())):
        found = by_name.get(file.stem.lower(), [])
        if not found and file.parent in alone:
            found = [path for path in images if path.parent == file.parent]
        if not found:
            bare.append(file.name)
            continue
        places = [path.as_posix() for path in found]
        case = Case(places if len(places) > 1 else places[0], [], split=half_of("/".join(places[0].split("/")[2:])))
        case.findings, case.impression = (clean(text, empty) for text in sections(decode(file.read_bytes())))
        cases.append(case)
    print(f"reports: {len(texts)}; with an image: {len(cases)}"
          + (f"; without: {len(bare)} (e.g. {', '.join(bare[:3])})" if bare else ""))  # fmt: skip
    if not cases:
        raise SystemExit(f"No text file in {folder} is called as an image or lies beside one; --images says where.")
    return one_study(cases, args.study_regex)


def sections(text: str) -> tuple[str, str]:
    """Findings and impression by their headings; without headings all of it is findings."""
    marks = list(HEADINGS.finditer(text))
    parts = {"findings": "", "impression": ""}
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(text)
        other = OTHER_HEADING.search(text, mark.end(), end)
        kind = "findings" if mark["name"].lower()[:3] in ("fin", "bef", "rés") else "impression"
        parts[kind] += " " + text[mark.end() : other.start() if other else end]
    return (parts["findings"], parts["impression"]) if marks else (text, "")


def one_study(cases: list[Case], regex: str, column: str = "") -> list[Case]:
    """Cases of one study put together: pictures as its views; of several volumes the first stays.

    Args:
        regex: finds the study in the image's path; `auto`: the same text, and names that differ in their last number.
        column: the row's column that names it.
    """
    if not regex and not column:
        return cases
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(_study(case, regex, column), []).append(case)
    joined, dropped = [], 0
    for group in groups.values():
        first = group[0]
        views = list(dict.fromkeys(path for case in group for path in _listed(case.image)))
        if len(views) > 1 and not all(flat(path) for path in views):
            dropped += len(group) - 1
        elif len(views) > 1:
            first.image = views
        first.values = list(dict.fromkeys(value for case in group for value in case.values))
        first.findings = first.findings or next((case.findings for case in group if case.findings), "")
        first.impression = first.impression or next((case.impression for case in group if case.impression), "")
        joined.append(first)
    print(
        f"studies: {len(joined)} of {len(cases)} images or rows"
        + (f"; further volumes left out: {dropped}" if dropped else "")
    )
    return joined


def _study(case: Case, regex: str, column: str) -> str:
    path = next(iter(_listed(case.image)))
    if column:
        return case.row.get(column, "") or path
    if regex == "auto":
        return "\0".join((re.sub(r"\d+(?=\D*$)", "#", stem(path)), case.findings, case.impression))
    found = re.search(regex, path)
    return (found.group(1 if found.groups() else 0) or path) if found else path


def _listed(image: str | list[str]) -> Iterable[str]:
    return [image] if isinstance(image, str) else image


def flat(path: str) -> bool:
    try:
        return len(probe_image(path).shape) == 2
    except DataError:
        return True  # opening it later says what is wrong


def with_text(cases: list[Case]) -> list[Case]:
    """Cases that have any text; the others are counted."""
    kept = [case for case in cases if case.findings or case.impression]
    print(f"reports: {len(kept)}; with findings: {sum(bool(case.findings) for case in kept)}; with an impression: "
          f"{sum(bool(case.impression) for case in kept)}; different findings: {len({case.findings for case in kept})}")  # fmt: skip
    if len(kept) < len(cases):
        print(f"dropped, no text: {len(cases) - len(kept)}")
    if not kept:
        raise SystemExit("No report has a text. Check --findings and --impression.")
    return kept
