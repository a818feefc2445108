"""Columns and header fields that say of what kind a patient or an acquisition is: sex, age, site, scanner, view.

Figures are told apart by them at the end; nobody trains on them.
"""

from __future__ import annotations

from collections.abc import Iterator

from m3b.data.spec.model import FromTag, IndexSpec, Value
from m3b.data.spec.proposals.image_joins import best_join
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.item_images import cell_of, columns_of
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.surroundings import from_column
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Column

ATTRIBUTES = {
    "sex": "sex gender geschlecht sexe sexo genero 性别 性別",
    "age": "age alter âge edad 年龄 年齢",
    "site": "site center centre hospital institution clinic zentrum klinik krankenhaus hôpital centro 医院 施設",
    "scanner": "scanner manufacturer vendor device hersteller gerät fabricant fabricante 厂商",
    "view": "view projection viewposition ansicht vue proyección",
}
"""Attribute -> words that name it."""
_BESIDE = (
    "patient subject participant person id name of at the in year yr yrs jahre scan exam study examination follow up"
)
"""Words that may stand beside one in the name of a column: `age_at_scan` is an age, `bone_age` is not."""
_WHEN = "mri mr ct pet imaging acquisition baseline diagnosis dx presentation admission enrolment enrollment inclusion entry surgery"
"""Words that say when an age was taken: `age_at_mri`. None says when all is over: an age at death tells what is to be foreseen."""
TAGS = {
    "sex": "PatientSex",
    "age": "PatientAge",
    "site": "InstitutionName",
    "scanner": "Manufacturer",
    "view": "ViewPosition",
}
LEAST_FILLED, MOST_VALUES, LEAST_NAMED = 0.5, 20, 0.5
"""Shares of rows that have a value, different values of an attribute in words, and images that the table must name."""

_NAMED = {name: frozenset(words(listed)) for name, listed in ATTRIBUTES.items()}
_ALLOWED = frozenset(words(_BESIDE))
_ALLOWED_OF_AGES = _ALLOWED | frozenset(words(_WHEN))


def attribute(column: Column) -> str:
    """What a column says of patients; empty where that is none of `ATTRIBUTES`, or too little of it."""
    said = set(words(column.name.rsplit(".", 1)[-1]))
    name = next((name for name, known in _NAMED.items() if said & known and not said - known - _allowed(name)), "")
    rows = column.filled + column.missing
    if not name or column.distinct < 2 or column.filled < LEAST_FILLED * rows or column.lists:
        return ""
    counted = column.type in ("integer", "number") or (name == "age" and column.type == "category")
    return name if column.distinct <= MOST_VALUES or (counted and name == "age") else ""


def _allowed(name: str) -> frozenset[str]:
    return _ALLOWED_OF_AGES if name == "age" else _ALLOWED


def attributes(survey: Survey, images: ImageSet) -> dict[str, Value]:
    """Attribute -> where it stands, in tables that name the images or else in their headers."""
    found: dict[str, Value] = {}
    for name, value in (*_columns(survey, images), *_headers(survey, images)):
        found.setdefault(name, value)
    return found


def without_taught(spec: IndexSpec) -> IndexSpec:
    """The spec without attributes that are what is to be learnt, the patient or the split."""
    taught: list[Value | None] = [spec.patient, spec.split.source]
    taught += spec.labels.sources if spec.labels else []
    taught += [spec.value.source] if spec.value else []
    taught += [spec.survival.time.source, spec.survival.event] if spec.survival else []
    kept = {name: value for name, value in spec.attributes.items() if value not in taught}
    return spec if len(kept) == len(spec.attributes) else spec.model_copy(update={"attributes": kept})


def _columns(survey: Survey, images: ImageSet) -> Iterator[tuple[str, Value]]:
    for rows in images.items.tables if images.items is not None else ():
        for column, _ in columns_of(survey, rows):
            if images.items is not None and (name := attribute(column)):
                yield name, cell_of(survey, images.items, rows, column.name)
    files = sum(group.count for group in images.groups)
    for table in survey.tables:
        named = [(name, column) for column in table.columns if (name := attribute(column))]
        join = best_join(survey, images, table.id) if named else None
        if join is None or join.files < LEAST_NAMED * files:
            continue
        for name, column in named:
            if column.name != join.left.name:
                yield name, from_column(survey, images, join, column.name)


def _headers(survey: Survey, images: ImageSet) -> Iterator[tuple[str, Value]]:
    mine = {group.id for group in images.groups}
    for series in (one for one in survey.series if one.group in mine):
        told = {tag.keyword: tag for tag in series.tags}
        for name, keyword in TAGS.items():
            if keyword in told and told[keyword].distinct > 1:
                yield name, FromTag(keyword=keyword)
