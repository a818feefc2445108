"""Legends: what codes and short names mean, by the notes, documents and tables of a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

import polars as pl

from m3b.dataset.tables.documents import load_yaml
from m3b.dataset.tables.model import ROW_COLUMN

LegendKind = Literal["codes", "list", "abbreviations"]
_MAX_TEXT = 1 << 20
_MAX_CODES = 2000
_MAX_GROUPS = 20
"""Groups of labels of a document, each with a list of its own."""
_NAME = r"[^\W\d_](?:[^\n,;:=|()\[\]{}.]|\.(?=\d)){0,60}?"
_VERBS = r"\bis\b|\bare\b|\bmeans\b|\bfor\b|\bist\b|\bbedeutet\b|\best\b|\bsignifie\b|\bes\b|\bsignifica\b|表示|代表"
_IS = rf"\s*(?:[:=|]|=>|->|→|{_VERBS}|[–—-](?=\s))\s*"
_END = r"(?=\s*(?:[,;.|)\]}\n、，；。]|$|\band\b|\bor\b|\bund\b|\boder\b|\bet\b|\bou\b|\by\b|\bo\b|\s\d{1,3}\s*[:=]))"
_CODE_NAME = re.compile(
    rf"(?<![\w./-])(?<!\d,)[\"']?(-?\d{{1,3}})[\"']?(?![\w.]\d){_IS}[\"']?({_NAME})[\"']?{_END}", re.IGNORECASE
)
_BULLET = re.compile(
    rf"^\s*(?:[-*•|]\s*)?[\"'`]?(-?\d{{1,3}})[\"'`]?\s*(?:[:=|,\t]|[.)](?=\s)|\s[–—-]\s|\s)\s*[\"'`]?({_NAME})[\"'`]?\s*[|,]?\s*$"
)
_NAME_CODE = re.compile(rf"(?<![\w])[\"']?({_NAME})[\"']?\s*(?:[:=]|=>|->|→)\s*[\"']?(-?\d{{1,3}})[\"']?(?![\w.]\d|\w)")
_NAME_IN_BRACKETS = re.compile(
    rf"({_NAME})\s*\(\s*(?:(?:value|label|class|code|grade|wert|klasse|valeur|valor)\s+)?(\d{{1,3}})\s*\)",
    re.IGNORECASE,
)
_SPACED_LIST = re.compile(rf"[:(]((?:\s*-?\d{{1,3}}\s+{_NAME}\s*(?:[,;)]|$|\.(?=\s|$)|\n)){{3,}})")
"""A list of codes and names without a sign between both, in brackets or after a colon: `Labels: 0 none, 1 mild, 2 severe.`"""
_SPACED = re.compile(rf"(?<=[:(,;])\s*(-?\d{{1,3}})\s+({_NAME})(?=\s*(?:[,;.)\n]|$))")
_TO = r"\s*(?:-|–|\bto\b|\bbis\b|\bà\b|\ba\b)\s*"
_RANGE = re.compile(
    rf"(?<![\w.-])(\d{{1,3}}){_TO}(\d{{1,3}})\s*(?:[:=]|=>|->|\bis\b|\bare\b)?\s*"
    rf"([A-Za-z][A-Za-z_ ]*?)(\d{{1,3}}){_TO}(?:\3)?(\d{{1,3}})(?!\w)"
)
_SHORT = r"[A-Za-z][A-Za-z0-9_-]{0,9}"
_SHORT_IS = re.compile(
    rf"^\s*(?:[-*•|]\s*)?[\"'`*]*({_SHORT})[\"'`*]*\s*(?:[:=|\t]|\s[–—-]\s|=>|->|→)\s*[\"'`]?({_NAME}){_END}",
    re.MULTILINE,
)
_SHORT_IN_LINE = re.compile(
    rf"(?<![\w/.-])({_SHORT})\s*(?:=|:|\bmeans\b|\bstands for\b|\bsteht für\b|\bsignifie\b|\bsignifica\b|表示)\s*[\"']?({_NAME}){_END}"
)
_LETTERS_ARE = re.compile(rf"(?<![\w/.-])[\"'`]?([A-Z][A-Z0-9]{{0,3}})[\"'`]?\s*(?:{_VERBS})\s*[\"'`]?({_NAME}){_END}")
"""A code of capital letters in a sentence; it counts if another one is beside it: `P for pneumonia and N for normal`."""
_LONG_SHORT = re.compile(rf"((?:[^\W\d_][\w'’/-]*[ ]){{1,6}})\(\s*[\"'`]?({_SHORT})[\"'`]?\s*\)")
_SHORT_LONG = re.compile(rf"(?<![\w/.-])({_SHORT})\s*\(\s*({_NAME})\s*\)")
_CODE_AND_NAME = re.compile(r"(?<![^\s,;.:(])([A-Z]{1,4})\s+([a-zà-ÿ][^\n,;.:=()]{2,40})(?=[,;.)]|$)")
"""One of several codes with their names in a line: `HE haemorrhages, EX hard exudates`."""
_SKIPPED_KEY_LIST = """
http https ftp doi url email version date license author authors year note notes source size shape figure table format link
example warning file files name step todo hinweis quelle
"""
_SKIPPED_KEYS = frozenset(_SKIPPED_KEY_LIST.split())
_PLACE_WORDS = re.compile(
    r"name|class|label|categor|legend|mapping|code|id2|2id|klasse|bedeutung|etiquet|étiquet|clase|标签|类别",
    re.IGNORECASE,
)
_TRIPLE = r"(?:rgb)?\s*[(\[]?\s*(\d{1,3})\s*[,; ]\s*(\d{1,3})\s*[,; ]\s*(\d{1,3})\s*[)\]]?"
_COLOUR = re.compile(rf"(?<![\w.])(?:#([0-9a-f]{{6}})|{_TRIPLE})(?![\w.]\d|\w)", re.IGNORECASE)
_CHANNEL = re.compile(r"(?:colou?r[ _]?)?(r|g|b|a|red|green|blue|alpha)", re.IGNORECASE)
_TERM_CODE = re.compile(r".*cod(?:e|ing)[ _]?(?:scheme(?:designator)?|value|meaning)", re.IGNORECASE)
"""Columns of coded terms, which colour tables of 3D Slicer have besides number, name and colour (DICOM PS3.3, section 8)."""
_LIST_FILES = re.compile(
    r"(^|/)(class|classes|label|labels|names|categories|obj|klassen|clases|etiquetas)[\w.-]*\.(txt|names|lst|list)$",
    re.IGNORECASE,
)
_BYTE = r"\d{1,3}(?:\.\d+)?"
_LABEL_LINES = (
    (re.compile(rf"(\d{{1,5}})\s+(?:{_BYTE}\s+){{4}}[01]\s+[01]\s+\"([^\"]+)\""), 1, 2),
    (re.compile(rf"(\d{{1,5}})[\s,;]+\"?([^\W\d][^\",;\t]*?)\"?(?:[\s,;]+{_BYTE}){{3,4}}"), 1, 2),
    (re.compile(rf"(\d{{1,5}})(?:[\s,;]+{_BYTE}){{3,4}}[\s,;]+\"?([^\W\d][^\",;\t]*?)\"?"), 1, 2),
    (re.compile(r"(\d{1,3})\s*[:=,;\t ]\s*\"?([^\W\d][^\",;:=\t\d]{0,60}?)\"?"), 1, 2),
    (re.compile(r"\"?([^\W\d][^\",;:=\t\d]{0,60}?)\"?\s*[:=,;\t]\s*(\d{1,3})"), 2, 1),
)
"""Lines of label files, with the places of number and name: ITK-SNAP, colour tables of 3D Slicer and FreeSurfer with the colour
behind or before the name, and plain lists."""
_LABEL_ELEMENT = re.compile(
    r"<(?:label|segment|class|structure|region)\b([^>]*?)(?:/>|>(.*?)</(?:label|segment|class|structure|region)>)",
    re.I | re.S,
)
_NUMBER_IN_ELEMENT = re.compile(
    r"\b(?:value|id|index|number)\s*=\s*\"(\d{1,5})\"|key=\"value\"[^>]*>\s*<\w+\s+value=\"(\d{1,5})\"", re.I
)
_NAME_IN_ELEMENT = re.compile(
    r"\b(?:name|label|title)\s*=\s*\"([^\"]+)\"|key=\"name\"[^>]*>\s*<\w+\s+value=\"([^\"]+)\"", re.I
)
_NUMBERED_NAMES = (
    (r"(-?\d{1,3})\s*[:=,;\t |]\s*(.+)", 1, 2),
    (r"(.*[^\W\d_].*?)\s*[:=,;\t |]\s*(-?\d{1,3})", 2, 1),
)
"""Patterns of lines with a number and a name, and the groups of both."""
_MARKUP = re.compile(r"<[^<>\n]{1,300}>|(?:https?://|www\.)[^\s)]+")
_CONJUNCTIONS = frozenset({"and", "or", "to", "und", "oder", "bis", "et", "ou", "y", "o", "x"})
_FULL_WIDTH = str.maketrans("：；，（）＝、", ":;,()=,")
_FILLERS = re.compile(
    r"^.*\b(?:and|or|the|an?|from|between|are|is|with|holds?|shows?|contains?|marks?|labels?|classes|values?|hat|zeigt|enthält|enthalten|und|oder|die|der|das|les?|la|el|los|las)\s+(?=\S)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Legend:
    """What codes mean.

    Args:
        codes: code or short name -> name. Of a `list` the codes are the places of the names, from 0.
        source: the file, and in documents the place in it (`dataset.json: labels`).
        column: word before the legend, which may name the column or thing that it explains; may be empty.
        kind: `codes` of numbers, a `list` of names without numbers, or `abbreviations`.
    """

    codes: dict[str, str]
    source: str
    column: str = ""
    kind: LegendKind = "codes"


def find_legends(texts: Mapping[str, str]) -> list[Legend]:
    """Return the legends in texts, documents and lists of names: path -> text."""
    legends: list[Legend] = []
    for path, text in texts.items():
        text = text[:_MAX_TEXT].replace("\r\n", "\n").translate(_FULL_WIDTH)
        document = _parse_document(path, text)
        if document is not None:
            legends += _find_in_document(document, path)
            continue
        if labels := _read_label_file(text):
            legends.append(Legend(labels, path))
            continue
        if colours := _find_colours(text):
            legends.append(Legend(colours, path))
        elif _LIST_FILES.search(path) and (names := _read_list(text)):
            legends.append(Legend(names[0], path, "", names[1]))
            continue
        legends += _find_in_text(_MARKUP.sub(" ", text), path)
    return _drop_repeated(legends)


def _read_label_file(text: str) -> dict[str, str]:
    """Return the numbers and names of a file that holds nothing but labels and comments; empty if it holds anything else."""
    if text.lstrip().startswith("<"):
        codes = {}
        for attributes, content in _LABEL_ELEMENT.findall(text):
            number, name = (pattern.search(attributes) or pattern.search(content)
                            for pattern in (_NUMBER_IN_ELEMENT, _NAME_IN_ELEMENT))  # fmt: skip
            if number and name:
                codes[str(int(number[1] or number[2]))] = (name[1] or name[2]).strip()
        return codes if len(set(codes.values())) == len(codes) > 1 else {}
    lines = [line.strip() for line in text.split("\n") if not re.match(r"\s*(?:#|//|;|$)", line)]
    if not 2 <= len(lines) <= _MAX_CODES:
        return {}
    for pattern, code_place, name_place in _LABEL_LINES:
        matches = [pattern.fullmatch(line) for line in lines]
        codes = {str(int(match[code_place])): match[name_place].strip() for match in matches if match}
        if len(codes) == len(lines) == len({name.casefold() for name in codes.values()}):
            return codes
    return {}


def _colour_code(match: re.Match[str] | None) -> str:
    """Return a colour as `#rrggbb`; empty if a text is none."""
    if match is None:
        return ""
    if match[1]:
        return f"#{match[1].lower()}"
    levels = [int(level) for level in match.groups()[1:]]
    return f"#{levels[0]:02x}{levels[1]:02x}{levels[2]:02x}" if max(levels) < 256 else ""


def _find_colours(text: str) -> dict[str, str]:
    """Return the colours that lines name, each with the rest of its line: `220,40,40 = lesion`, `lesion: #dc2828`."""
    codes: dict[str, str] = {}
    for line in text.split("\n"):
        colours = list(_COLOUR.finditer(line))
        if len(colours) != 1 or not (code := _colour_code(colours[0])):
            continue
        name = (line[: colours[0].start()] + " " + line[colours[0].end() :]).strip(" \t:=|,;*->→\"'`")
        if re.fullmatch(_NAME, name):
            codes.setdefault(code, name)
    return codes if len(set(codes.values())) == len(codes) else {}


def find_legend_in_frame(frame: pl.DataFrame, source: str) -> Legend | None:
    """Return the legend that a small table of codes and names is; of numbers and colours in one table, the numbers are the codes."""
    frame = _join_channels(frame)
    names = [name for name in frame.columns if name != ROW_COLUMN]
    if not 2 <= len(names) <= 4 or not 2 <= frame.height <= _MAX_CODES:
        return None
    for code_name in names:
        codes = frame[code_name].to_list()
        colours = [_colour_code(_COLOUR.fullmatch(code.strip())) if code else "" for code in codes]
        if all(colours):
            codes = colours
        if any(code is None or len(code) > 10 or " " in code.strip() for code in codes) or len(set(codes)) < len(codes):
            continue
        if not all(re.fullmatch(r"-?\d{1,3}(\.0)?", code) for code in codes) and not all(
            re.fullmatch(_SHORT, code) or code in colours for code in codes
        ):
            continue
        for name in names:
            texts = frame[name].to_list()
            if name == code_name or any(
                text is None or not re.search(r"[^\W\d_]{2}", text) or re.search(r"\.\w{2,4}$|/", text)
                for text in texts
            ):
                continue
            if len(set(texts)) == len(texts):
                is_numbered = all(colours) or codes[0].lstrip("-").replace(".", "").isdigit()
                cleaned = {code.removesuffix(".0"): text for code, text in zip(codes, texts, strict=True)}
                longer = sum(len(text) for text in texts) > sum(len(code) for code in codes)
                if is_numbered or longer:
                    return Legend(cleaned, source, code_name, "codes" if is_numbered else "abbreviations")
    return None


def _join_channels(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with one column `colour` behind the others in place of red, green and blue."""
    channels = {match[1].lower()[:1]: name for name in frame.columns if (match := _CHANNEL.fullmatch(name.strip()))}
    if not set("rgb") <= set(channels):
        return frame
    colour = pl.concat_str([pl.col(channels[letter]) for letter in "rgb"], separator=",").alias("colour")
    kept_columns = [name for name in frame.columns if name not in channels.values() and not _TERM_CODE.fullmatch(name)]
    return frame.select(*kept_columns, colour)


def _parse_document(path: str, text: str) -> Any:
    suffix = path.rpartition(".")[2].lower()
    try:
        if suffix == "json" or text.lstrip()[:1] in ("{", "["):
            return json.loads(text)
        return load_yaml(text) if suffix in ("yaml", "yml") else None
    except (ValueError, RecursionError):
        return None


def _find_in_document(document: Any, path: str) -> Iterator[Legend]:
    """Yield objects of numbers and names, of short and long names, and lists of names, under any key."""
    stack: list[tuple[str, Any, int]] = [("", document, 0)]
    visited = 0
    while stack and visited < 20_000:
        place, value, depth = stack.pop()
        visited += 1
        if "licen" in place.casefold():
            continue
        source = f"{path}: {place}" if place else path
        column = place.rpartition(".")[2]
        if isinstance(value, Mapping):
            items = {str(key).strip(): item for key, item in value.items()}
            if 1 < len(items) <= _MAX_CODES or (
                len(items) == 1 and _PLACE_WORDS.search(place or PurePosixPath(path).stem)
            ):
                yield from _read_object(items, source, column)
            if depth < 6:
                stack += [
                    (f"{place}.{key}" if place else key, item, depth + 1)
                    for key, item in items.items()
                    if isinstance(item, (Mapping, list))
                ]
        elif isinstance(value, list) and value:
            if (
                all(isinstance(item, str) for item in value)
                and 1 < len(value) <= _MAX_CODES
                and _PLACE_WORDS.search(place or PurePosixPath(path).stem)
            ):
                yield Legend({str(number): item for number, item in enumerate(value)}, source, column, "list")
            records = [item for item in value[:_MAX_CODES] if isinstance(item, Mapping)]
            if len(records) == len(value) > 0:
                yield from _read_records(records, source, column)
            if len(records) <= _MAX_GROUPS and depth < 6:
                lists = [(key, item) for record in records for key, item in record.items() if isinstance(item, list)]
                stack += [(f"{place}.{key}" if place else str(key), item, depth + 1) for key, item in lists]


def _read_object(items: Mapping[str, Any], source: str, column: str) -> Iterator[Legend]:
    colours = {_colour_code(_COLOUR.fullmatch(key)): item for key, item in items.items() if isinstance(item, str)}
    if "" not in colours and len(colours) == len(items) == len(set(colours.values())):
        yield Legend(colours, source, column)
        return
    numbered = {
        key: item
        for key, item in items.items()
        if re.fullmatch(r"-?\d{1,3}", key) and isinstance(item, str) and item.strip()
    }
    if len(numbered) == len(items):
        yield Legend({str(int(key)): str(item).strip() for key, item in numbered.items()}, source, column)
        return
    reverse: dict[str, str] = {}
    for key, item in items.items():
        values = item if isinstance(item, list) else [item]
        if not all(_is_small_number(number) for number in values) or not re.search(r"[^\W\d_]", key):
            break
        reverse.update({str(int(number)): key for number in values})
    else:
        numbers = sorted(map(int, reverse))
        if (
            len(reverse) >= len(items)
            and numbers[0] >= -1
            and (
                _PLACE_WORDS.search(source) or numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))
            )
        ):
            yield Legend(reverse, source, column)
        return
    if all(re.fullmatch(_SHORT, key) and isinstance(item, str) and len(item) > len(key) and re.search(r"[^\W\d_]{2}", item)
           and not re.search(r"\.\w{2,4}$|/", item) for key, item in items.items()) and _PLACE_WORDS.search(source):  # fmt: skip
        yield Legend({key: str(item) for key, item in items.items()}, source, column, "abbreviations")


def _read_records(records: list[Mapping[str, Any]], source: str, column: str) -> Iterator[Legend]:
    """Yield the legend of records with a number and a name, such as the categories of COCO."""
    for number_key in ("id", "value", "label", "code", "index", "class_id", "category_id"):
        for name_key in ("name", "label", "class", "title", "meaning", "description"):
            codes = {str(record.get(number_key)): str(record.get(name_key)) for record in records
                     if _is_small_number(record.get(number_key)) and isinstance(record.get(name_key), str)}  # fmt: skip
            if number_key != name_key and len(codes) == len(records) and len(set(codes.values())) == len(codes):
                yield Legend(codes, source, column)
                return


def _is_small_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return False
    return abs(value) < 1000 if isinstance(value, int) else bool(re.fullmatch(r"-?\d{1,3}", value))


def _read_list(text: str) -> tuple[dict[str, str], LegendKind] | None:
    """Return the names of a file that lists classes, a line each, with numbers before or after them or without."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not 1 <= len(lines) <= _MAX_CODES or any(len(line) > 80 for line in lines):
        return None
    for pattern, code_place, name_place in _NUMBERED_NAMES:
        matches = [re.fullmatch(pattern, line) for line in lines]
        codes = {match[code_place]: match[name_place].strip("\"' ") for match in matches if match}
        are_names = all(re.search(r"[^\W\d_]", name) for name in codes.values())
        if are_names and len(codes) == len(lines) == len(set(codes.values())):
            return codes, "codes"
    if not all(re.search(r"[^\W\d_]", line) for line in lines):
        return None
    return {str(number): line.strip("\"'") for number, line in enumerate(lines)}, "list"


def _find_in_text(text: str, path: str) -> Iterator[Legend]:
    """Yield the legends of prose: numbered lines, codes in sentences, ranges, and abbreviations."""
    for start, codes in _find_numbered_lines(text):
        yield Legend(codes, path, _find_column_before(text, start))
    for passage, start in _split_passages(text):
        codes = _pair(_CODE_NAME, passage, 1, 2) or _pair(_NAME_CODE, passage, 2, 1)
        if not codes and (listed := _SPACED_LIST.search(passage)):
            codes = _pair(_SPACED, listed[0], 1, 2)
        if codes:
            first = re.search(
                rf"(?<!\w)(?:{re.escape(next(iter(codes)))}|{re.escape(next(iter(codes.values())))})(?!\w)", passage
            )
            yield Legend(codes, path, _find_column_before(text, start + (first.start() if first else 0)))
        elif codes := _pair(_NAME_IN_BRACKETS, passage, 2, 1, needs_gapless=False):
            yield Legend(codes, path)
        if ranged := _read_ranges(passage):
            yield Legend(ranged, path)
    abbreviations: dict[str, str] = {}
    for short, long in (*_iterate_abbreviations(text), *_iterate_letter_codes(text)):
        abbreviations.setdefault(short, long)
    if abbreviations:
        yield Legend(abbreviations, path, "", "abbreviations")


def _find_numbered_lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    start = 0
    block: dict[str, str] = {}
    block_start = 0
    for line in (*text.split("\n"), ""):
        match = _BULLET.match(line)
        if match and match[1] not in block:
            block_start = start if not block else block_start
            block[match[1]] = _clean_name(match[2])
        elif (block and not re.fullmatch(r"[\s|:+-]*", line)) or (block and line == "" and start >= len(text)):
            if _is_code_list(block, needs_gapless=True):
                yield block_start, block
            block = {}
        start += len(line) + 1


def _split_passages(text: str) -> Iterator[tuple[str, int]]:
    """Yield sentences and lines with their start; a list in one sentence stays whole."""
    start = 0
    for match in re.finditer(r"(?<=[.!?。])\s+(?=[A-ZÄÖÜÉ\W])|\n+", text):
        yield text[start : match.start()], start
        start = match.end()
    yield text[start:], start


def _pair(
    pattern: re.Pattern[str], text: str, code_place: int, name_place: int, *, needs_gapless: bool = True
) -> dict[str, str]:
    codes: dict[str, str] = {}
    for match in pattern.finditer(text):
        name = _clean_name(match[name_place], is_phrase=name_place < code_place and not needs_gapless)
        if name and codes.setdefault(match[code_place], name).casefold() != name.casefold():
            return {}
    return codes if _is_code_list(codes, needs_gapless=needs_gapless) else {}


def _clean_name(name: str, *, is_phrase: bool = False) -> str:
    """Return a name without quotes, and without the words of a sentence before it."""
    name = name.strip(" \"'`*_-|")
    if is_phrase or len(name.split()) > 4 or re.match(r"(and|or|und|oder|et|y)\s", name):
        return _FILLERS.sub("", name)
    return name


def _is_code_list(codes: Mapping[str, str], *, needs_gapless: bool) -> bool:
    """Return whether codes count up from -1, 0 or 1, and no name occurs twice: other numbers count something else."""
    numbers = sorted(int(code) for code in codes)
    if len(numbers) < 2 or len({name.casefold() for name in codes.values()}) < len(codes):
        return False
    return (
        not needs_gapless
        or (numbers[0] in (-1, 0, 1) and numbers == list(range(numbers[0], numbers[-1] + 1)))
        or (
            numbers[0] in (0, 1)
            and numbers[-1] == 255
            and numbers[:-1] == list(range(numbers[0], numbers[0] + len(numbers) - 1))
        )
    )


def _read_ranges(text: str) -> dict[str, str]:
    """Return codes named by ranges of as many numbered names: `1-7 are C1-C7, 8-19 T1-T12`."""
    pairs = [
        (str(code), f"{name.strip()}{number}")
        for low, high, name, first, last in _RANGE.findall(text)
        if int(high) - int(low) == int(last) - int(first) > 0 and name.strip().casefold() not in _CONJUNCTIONS
        for code, number in zip(range(int(low), int(high) + 1), range(int(first), int(last) + 1), strict=True)
    ]
    if pairs:
        pairs += [
            (code, name)
            for code, name in re.findall(
                r"(?<![\w.-])(\d{1,3})\s*(?:[:=]|=>|->|\bis\b)\s*([A-Za-z]+\d{1,3})(?!\w)", text
            )
        ]
    codes = dict(pairs)
    return codes if len(codes) == len(pairs) == len(set(codes.values())) else {}


def _find_column_before(text: str, start: int) -> str:
    """Return the last word before a legend, on its line or as the heading above it."""
    before = text[max(0, start - 200) : start].rstrip(" ([{:=\n\t-*|#\"'`")
    last_line = before.rpartition("\n")[2]
    words = re.findall(r"[^\W\d][\w.]*", last_line)
    return words[-1].strip("_.") if words else ""


def _iterate_abbreviations(text: str) -> Iterator[tuple[str, str]]:
    for pattern, short_place, long_place in (
        (_SHORT_IS, 1, 2),
        (_SHORT_IN_LINE, 1, 2),
        (_SHORT_LONG, 1, 2),
        (_LONG_SHORT, 2, 1),
    ):
        for match in pattern.finditer(text):
            short, long = match[short_place], match[long_place].strip(" \"'`*_-|")
            if short.casefold() in _SKIPPED_KEYS or len(long) < len(short) + 3 or len(long.split()) > 7:
                continue
            if (len(short) > 1 and long.casefold().startswith(short.casefold())) or "/" in long:
                continue
            if pattern is _LONG_SHORT:
                long = _cut_to_abbreviation(short, long)
            elif not _abbreviates(short, long):
                is_code = len(short) <= 8 and (short != short.capitalize() or len(short) == 1)
                if not is_code or not (pattern is _SHORT_IS or "=" in match[0]):
                    continue
            if long:
                yield short, long


def _iterate_letter_codes(text: str) -> Iterator[tuple[str, str]]:
    for passage, _ in _split_passages(text):
        names = {match[1]: match[2].strip() for match in _LETTERS_ARE.finditer(passage)}
        if len(names) > 1 and len(set(names.values())) == len(names):
            yield from names.items()
    for line in text.splitlines():
        names = {match[1]: match[2].strip() for match in _CODE_AND_NAME.finditer(line)}
        abbreviations = [short for short, long in names.items() if _abbreviates(short, long)]
        if len(names) > 1 and 2 * len(abbreviations) >= len(names):
            yield from names.items()


def _cut_to_abbreviation(short: str, long: str) -> str:
    """Return the shortest end of a phrase that a short name abbreviates; empty if none."""
    words = long.split()
    return next(
        (
            " ".join(words[-count:])
            for count in range(1, len(words) + 1)
            if _abbreviates(short, " ".join(words[-count:]))
        ),
        "",
    )


def _abbreviates(short: str, long: str) -> bool:
    """Return whether the letters of a short name occur in order in a phrase, the first at the start of its first word."""
    letters = [sign for sign in short.casefold() if sign.isalpha()]
    if len(letters) < 2 and not short.isupper():
        return False
    phrase = long.casefold()
    if not letters or phrase[:1] != letters[0]:
        return False
    place = 0
    for letter in letters:
        place = phrase.find(letter, place)
        if place < 0:
            return False
        place += 1
    return True


def _drop_repeated(legends: Iterable[Legend]) -> list[Legend]:
    merged: list[Legend] = []
    for legend in legends:
        if not any(
            legend.codes == merged_legend.codes and legend.source == merged_legend.source for merged_legend in merged
        ):
            merged.append(legend)
    return merged
