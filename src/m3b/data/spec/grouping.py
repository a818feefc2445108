"""In words, what a spec keeps together on one side of the split: patients, or images that are of one thing."""

from __future__ import annotations

from m3b.data.spec.model import FromList, FromMember, FromPath, FromTable, FromTag, IndexSpec, Value


def grouped_by(spec: IndexSpec) -> str:
    """Such as `the column patient of labels.csv` or `the part marked {id} in the file names {id}_{side:word}.png`; empty where
    nothing is said."""
    values = [*([spec.patient] if spec.patient is not None else []), *spec.together]
    return ", and ".join(dict.fromkeys(_told(value, spec.images.files.pattern) for value in values))


def _told(value: Value, pattern: str) -> str:
    match value:
        case FromTable(column=column, file=file):
            return f"the column {column} of {readable(file)}"
        case FromTag(keyword=keyword):
            return f"the DICOM header field {keyword}"
        case FromMember(key=key):
            return f"the array {key} of the file"
        case FromList():
            return "lists of files"
        case FromPath(value=text, find=find):
            share = "a piece" if find else "the part"
            return f"{share} marked {text} in the file names {readable(pattern)}"


def readable(pattern: str) -> str:
    """A pattern of paths for people: of a regular expression, its named groups as `{name}` and fixed text without escapes."""
    if not pattern.startswith("re:"):
        return pattern
    text, told, at = pattern.removeprefix("re:"), "", 0
    while at < len(text):
        if text[at] == "\\":
            told, at = told + text[at + 1 : at + 2], at + 2
        elif text.startswith("(?P<", at):
            name = text[at + 4 : text.index(">", at)]
            told, at = f"{told}{{{name}}}", _closed(text, at)
        elif text.startswith("(?i:", at):  # of endings, whose case does not matter
            end = _closed(text, at)
            told, at = told + readable(f"re:{text[at + 4 : end - 1]}"), end
        elif text.startswith("(?:(?=", at):  # what is looked for within a free name
            end = _closed(text, at)
            at = end + text.startswith("?", end)
        else:
            told, at = told + text[at], at + 1
    return told


def _closed(text: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth, inside = 0, False
    while at < len(text):
        letter = text[at]
        at += 2 if letter == "\\" else 1
        inside = letter == "[" or (inside and letter != "]")
        depth += 0 if inside else (letter == "(") - (letter == ")")
        if not depth and not inside:
            break
    return at
