"""What could be a patient or a source: tags, columns, parts of names and folders that several files share."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from m3b.data.survey.columns import fold, is_missing
from m3b.data.survey.divisions import Division, keys_by_path
from m3b.data.survey.facts import PathPart, Sensitive
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.keys import key
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.parts import sizes
from m3b.data.survey.relations import Crossing, End, Grouping, Join
from m3b.data.survey.sides import is_split, side_of
from m3b.data.survey.table_facts import Column
from m3b.data.survey.tables import Loaded

_NUMBERED = r"(s|id|ids|no|nr|number|num|idx|code|key|uid|nummer|kennung|nummern)?"
_PERSON = re.compile(
    rf"(pat|patient|patienten|paciente|subject|subj|sub|sujet|person|participant|child|volunteer|donor|proband|p|pt){_NUMBERED}"
)
_CASE = re.compile(
    rf"(case|cas|fall|caso|studie|etude|estudio|untersuchung|study|exam|visit|accession|session|u|scan|record){_NUMBERED}"
)
_SOURCE = re.compile(rf"(set|source|src|video|vid|clip|seq|sequence|slide|wsi|specimen|plate|lesion){_NUMBERED}")
_SOURCE_COLUMN = re.compile(
    rf"(video|vid|clip|seq|sequence|series|slide|wsi|specimen|plate|lesion|eye|session|sequenz|serie|auge){_NUMBERED}"
)
_BESIDE = frozenset({
    "id", "ids", "no", "nr", "number", "num", "idx", "code", "key", "name", "of", "the", "unique", "anon", "anonymous",
    "anonymized", "dicom", "pseudo", "nummer", "numero", "kennung", "identifiant", "identificador", "codigo", "codice", "de", "du",
    "del", "des", "der",
})  # fmt: skip
"""Words that may stand beside the one that says what a value is."""
_AUGMENTED = re.compile(r"transform|aug|rotat|flip|copy|crop|mirror|\.rf\.", re.I)
STRENGTH = {
    "tag_patient": 0.95, "column_patient": 0.9, "word_patient": 0.85, "side_follows": 0.85, "augmentation": 0.6,
    "word_case": 0.6, "column_case": 0.55, "tag_study": 0.6, "source_word": 0.5, "column_source": 0.5, "column_unnamed": 0.5,
    "folder_of_several": 0.45,
    "leading_number": 0.35, "column_alike": 0.45,
}  # fmt: skip

MIN_UNNAMED, MOST_UNNAMED = 10, 0.95
"""Values of a column without a name that may be persons, and their share of the rows at most."""
MIN_ALIKE = 5
"""Numbers that a column and a part of names share, all of both."""
OLDEST = 120
"""Numbers up to this may be ages."""
BROKEN = 1.2
"""Runs of equal values a value, at most: some persons come again further down."""

Values = dict[str, str]
"""A value by path."""


def groupings_of(
    found: Gathering, tables: Sequence[Loaded], joins: Sequence[Join], splits: Sequence[Division]
) -> list[Grouping]:
    """Every candidate for each image group, the surest first."""
    made: list[Grouping] = []
    for group in found.groups:
        if group.fact.kind not in IMAGES or group.merged.count < 2:
            continue
        told = (*_tags(group), *_columns(group, tables, joins), *_held(group), *_parts(group, joins), *_levels(group))
        for end, values, evidence in told:
            if (one := _grouping(group, end, values, evidence, splits)) is not None:
                made.append(one)
    return sorted(made, key=lambda one: (int(one.group[1:]), -one.strength, one.ends[0].kind, one.ends[0].name))


def _grouping(
    group: Gathered, end: End, values: Values, evidence: list[str], splits: Sequence[Division]
) -> Grouping | None:
    counts = Counter(values.values())
    if len(counts) < 2 or not evidence:
        return None
    strength = max(STRENGTH[one] for one in evidence)
    if len(counts) == len(values) and strength < 0.8:
        return None  # a value for every file groups nothing
    sensitive: Sensitive = "identity" if end.kind in ("tag", "column", "member") else ""
    return Grouping(
        group=group.id, ends=(end,), distinct=len(counts), files=len(values), per_value=sizes(list(counts.values())),
        evidence=tuple(sorted(set(evidence))), strength=round(min(strength + 0.03 * (len(set(evidence)) - 1), 1.0), 3),
        crosses=crossings(values, group.id, splits), examples=tuple(sorted(counts)[:3]), sensitive=sensitive,
    )  # fmt: skip


def crossings(values: Values, group: str, splits: Sequence[Division]) -> tuple[Crossing, ...]:
    """How many values have files on several sides of each split of the group."""
    found = []
    for split in splits:
        if split.group != group or not split.sides:
            continue
        sides: dict[str, set[str]] = defaultdict(set)
        for path, value in values.items():
            if path in split.sides:
                sides[value].add(split.sides[path])
        found.append(Crossing(split=split.fact.id, count=sum(1 for some in sides.values() if len(some) > 1)))
    return tuple(found)


def _tags(group: Gathered) -> Iterator[tuple[End, Values, list[str]]]:
    for keyword, evidence in (("PatientID", "tag_patient"), ("PatientName", "tag_patient"),
                              ("StudyInstanceUID", "tag_study")):  # fmt: skip
        values = {one.path: one.tags[keyword] for one in (group.headers.found if group.headers else ())
                  if keyword in one.tags}  # fmt: skip
        yield End(kind="tag", owner=group.id, name=keyword), values, [evidence]


def _columns(
    group: Gathered, tables: Sequence[Loaded], joins: Sequence[Join]
) -> Iterator[tuple[End, Values, list[str]]]:
    """Columns called after patients, cases or what images were taken from (a video, a slide, an eye), brought to the files
    by the table's best join."""
    for table in tables:
        join = max(
            (one for one in joins if one.left.owner == table.fact.id and one.right.owner == group.id and one.chance < 0.5
             and one.right.kind in ("path", "level", "part") and one.files >= 0.3 * len(group.looked)),
            key=lambda one: (one.files, one.right_matched), default=None,
        )  # fmt: skip
        if join is None:
            continue
        keys = keys_by_path(group, join)
        for column in table.fact.columns:
            evidence = evidence_of(column.name)
            if not table.fact.header and column.name != join.left.name:
                evidence = _running(table, column)
            if not evidence or column.distinct < 2 or column.type in ("text", "boolean", "number"):
                continue
            by_key: dict[str, str] = {}
            for items, names in zip(table.cells(column.name), table.cells(join.left.name), strict=True):
                if items and not is_missing(items[0]):
                    by_key.update({key(join.rule, name): fold(items[0]) for name in names})
            values = {path: by_key[made] for path, made in keys.items() if made in by_key}
            yield End(kind="column", owner=table.fact.id, name=column.name), values, evidence


def _held(group: Gathered) -> Iterator[tuple[End, Values, list[str]]]:
    """Single values in the files of arrays whose keys are called after patients, cases or sources."""
    for name, values in group.texts.items():
        kept = {path: fold(text) for path, text in values.items() if not is_missing(text)}
        if kept and not any("." in text and text.replace(".", "", 1).isdigit() for text in kept.values()):
            yield End(kind="member", owner=group.id, name=name), kept, evidence_of(name.rpartition("/")[2])


def _running(table: Loaded, column: Column) -> list[str]:
    """Evidence of a column without a name: rows that follow each other have one value, as those of a patient in a list."""
    rows = [fold(items[0]) for items in table.cells(column.name) if items]
    many = MIN_UNNAMED <= column.distinct <= MOST_UNNAMED * max(len(rows), 1)
    if not many or (column.high is not None and column.high <= OLDEST) or len(rows) < table.fact.rows:
        return []
    runs = 1 + sum(one != other for one, other in pairwise(rows))
    return ["column_unnamed"] if runs <= BROKEN * len(set(rows)) else []


def names_patients(column: str) -> bool:
    """Whether a column is called as those are that tell patients apart."""
    return _of_word(_own_name(column), "column_patient", "column_case") == ["column_patient"]


def evidence_of(name: str) -> list[str]:
    """The evidence of the name of a column, or of an array: "column_patient", "column_case", "column_source", or none."""
    own = _own_name(name)
    found = _of_word(own, "column_patient", "column_case")
    return found or (["column_source"] if _SOURCE_COLUMN.fullmatch(_said(own)[0]) else [])


def _own_name(column: str) -> str:
    """The last part of a column's path in a document, with the one before where it says nothing alone (`patient.id`)."""
    before, _, last = column.rpartition(".")
    return f"{before.rpartition('.')[2]} {last}" if before and last.lower() in _BESIDE else last


def _bare(text: str) -> str:
    """A text without accents."""
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


def _of_word(name: str, patient: str, case: str) -> list[str]:
    """The evidence of a name such as "Patient ID / Name", "patientid", "sub", "U_id"."""
    said, plain = _said(name)
    short = said in ("p", "u", "pt") and plain
    if _PERSON.fullmatch(said) and not (short and patient == "column_patient"):
        return [patient]
    return [case] if _CASE.fullmatch(said) and not short else []


def _said(name: str) -> tuple[str, bool]:
    """The word of a name that says what its values are, empty where several do; and whether it stands alone."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", _bare(name)).lower()
    words = [word for word in re.split(r"[^a-z]+", spaced) if word]
    telling = [word for word in words if word not in _BESIDE]
    said = telling[0] if len(telling) == 1 else "".join(words) if len(words) <= 2 else ""
    return said, len(words) == len(telling)


def _parts(group: Gathered, joins: Sequence[Join]) -> Iterator[tuple[End, Values, list[str]]]:
    parts = list(group.fact.parts)
    for at, part in enumerate(parts):
        if part.slot.startswith("name") and group.by_folder:
            continue  # numbers of slices
        if part.kind not in ("number", "hash", "uid") or is_split(value.text for value in part.values):
            continue
        evidence = _evidence(group, part, parts[at + 1] if at + 1 < len(parts) else None)
        if not evidence and _numbered_alike(group, part, joins):
            evidence = ["column_alike"]
        values = {path: text.lstrip("0") or "0" if part.kind == "number" else text
                  for path, text in zip(group.looked, group.values[part.slot], strict=True) if text is not None}  # fmt: skip
        repeated = len(values) > len(set(values.values()))
        if not evidence and part.slot in ("name0", "name.lead") and len(set(values.values())) >= 10 and repeated:
            evidence = ["leading_number"]
        yield End(kind="part", owner=group.id, name=part.slot), values, evidence


def _numbered_alike(group: Gathered, part: PathPart, joins: Sequence[Join]) -> bool:
    """Whether a column called after patients holds exactly a part's numbers, though so few that chance could have them."""
    return any(
        one.right.kind == "part" and one.right.owner == group.id and one.right.name == part.slot and names_patients(one.left.name)
        and one.left_share == one.right_share == 1.0 and one.left_values >= MIN_ALIKE for one in joins
    )  # fmt: skip


def _evidence(group: Gathered, part: PathPart, after: PathPart | None) -> list[str]:
    word = part.before.lower().rstrip("_-. ")
    last = re.split(r"[^a-z]+", word)[-1]
    found = _of_word(last, "word_patient", "word_case") if last else []
    if not found and word and _SOURCE.fullmatch(re.split(r"[^a-z]+", word)[-1]):
        found = ["source_word"]
    if after is not None and after.kind == "side" and not after.before and part.slot.startswith("name"):
        found.append("side_follows")
    if part.slot.startswith("name.") and any(_AUGMENTED.search(one) for one in group.looked):
        changed = [path for path in group.looked if _AUGMENTED.search(path.rpartition("/")[2])]
        if len(changed) > 2 and not _AUGMENTED.search(word):
            found.append("augmentation")
    return found


def _levels(group: Gathered) -> Iterator[tuple[End, Values, list[str]]]:
    """Folders that are no plain words and hold several files: one case or patient each."""
    for level in range(len(group.merged.files[0].levels) if group.template else 0):
        values = {path: path.split("/", level + 1)[level] for path in group.looked}
        names = sorted(set(values.values()))
        if len(names) < 2 or any(side_of(name) for name in names):
            continue
        slots = [part for part in group.fact.parts if part.slot.split(".")[0] == f"level{level}"]
        ids = any(part.kind in ("number", "hash", "uid", "text", "date") for part in slots)
        words = [re.split(r"[^a-z]+", part.before.lower().rstrip("_-. "))[-1] for part in slots]
        evidence = [one for word in words if word for one in _of_word(word, "word_patient", "word_case")]
        if not evidence and all(name.lower().startswith("sub-") for name in names):
            evidence = ["word_patient"]  # as in BIDS
        several = len(names) <= 0.67 * len(values)
        classes = all(name.isdigit() and len(name) <= 2 for name in names) and len(names) <= 12
        if ids and several and not classes:
            evidence.append("folder_of_several")
        yield End(kind="level", owner=group.id, name=str(level)), values, evidence
