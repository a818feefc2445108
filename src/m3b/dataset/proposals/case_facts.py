"""Facts of cases beside the target: attributes for the figures of subgroups, and covariates that the request asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from m3b.data.kinds.parts import MAX_ATTRIBUTE
from m3b.dataset.manifest.model import Covariate, Manifest, ValueSource
from m3b.dataset.proposals.image_sets import Column, ImageSet
from m3b.dataset.proposals.request import Request
from m3b.dataset.proposals.roles import roles_of
from m3b.dataset.words.lexicon import get_lexicon

ATTRIBUTE_NAMES = {"sex": "sex", "age": "age", "hospital": "site", "scanner": "scanner"}
"""Concept of a column -> the attribute that it is."""
TAG_COVARIATES = {"age": "{tag.PatientAge}", "sex": "{tag.PatientSex}"}
"""Concept -> header field of DICOM files."""
MIN_COVERAGE = 0.5
"""Share of the images with a value from which on a column is an attribute."""
MAX_CHARACTERS = 40
"""Median length of the cells of an attribute."""
MIN_NUMERIC = 0.9
"""Share of numbers among the cells of a covariate that is a number."""
_KEY_ROLES = frozenset({"identifier", "patient", "split", "label", "grade", "time"})


def add_case_facts(manifest: Manifest, image_set: ImageSet, request: Request) -> Manifest:
    """Return a manifest with the attributes that its tables have, and the covariates that the request asks for.

    What is a target, a patient or a part of the split is neither. Attributes come from tables that are joined anyway, so that
    no join leaves cases out.
    """
    if manifest.attributes or manifest.covariates:
        return manifest
    used = manifest.model_dump_json(exclude={"tables"})
    free_columns = _list_free_columns(image_set, used)
    attributes: dict[str, Any] = {}
    for column in free_columns:
        if set(column.tables) <= set(manifest.tables) and column.stats.coverage >= MIN_COVERAGE:
            name = _name_attribute(column)
            if name and name not in attributes and column.stats.distinct > 1:
                attributes[name] = ValueSource(value=column.template)
    covariates = {}
    for name in request.claims.covariates:
        if (source := _find_covariate(name, image_set, free_columns)) is not None:
            is_number = source.stats.numeric >= MIN_NUMERIC or name == "age"
            covariates[name] = Covariate(
                value=ValueSource(value=source.template), kind="number" if is_number else "category"
            )
    if not attributes and not covariates:
        return manifest
    further_tables = image_set.tables_of([covariate.value.value for covariate in covariates.values()])
    tables = {
        **manifest.tables,
        **{name: further_tables[name] for name in further_tables if name not in manifest.tables},
    }
    return manifest.model_copy(update={"attributes": attributes, "covariates": covariates, "tables": tables})


def list_missing_covariates(image_set: ImageSet, request: Request, target_templates: Sequence[str]) -> list[str]:
    """Return the covariates of the request that no column of a folder holds."""
    free_columns = _list_free_columns(image_set, "".join(target_templates))
    return [name for name in request.claims.covariates if _find_covariate(name, image_set, free_columns) is None]


def _list_free_columns(image_set: ImageSet, used_text: str) -> list[Column]:
    """Return columns of tables with one value for each image, without those whose templates a text holds."""
    columns = []
    for column in image_set.columns:
        if column.source != "table" or column.template in used_text or column.stats.conflicts:
            continue
        table_name, _, key = column.template.strip("{}").partition(".")
        table = image_set.tables.get(table_name)
        if table is not None and key not in {*table.choices, *table.agreements}:
            columns.append(column)
    return columns


def _name_attribute(column: Column) -> str:
    """Return the attribute that a column is by its name and the length of its cells; '' if it is none, as free text is."""
    roles = roles_of(column.name)
    is_text = column.stats.characters > MAX_CHARACTERS or any(len(text) > MAX_ATTRIBUTE for text in column.stats.counts)
    if "attribute" not in roles or roles & _KEY_ROLES or is_text:
        return ""
    concepts = get_lexicon().find_concepts(column.name)
    attribute = next((ATTRIBUTE_NAMES[name] for name in concepts if name in ATTRIBUTE_NAMES), "")
    return attribute if attribute == "age" or column.stats.counts else ""


def _find_covariate(name: str, image_set: ImageSet, columns: Sequence[Column]) -> Column | None:
    """Return the column of a covariate: the best filled one that is called so, else the header field for it."""
    named = [column for column in columns if name in get_lexicon().find_concepts(column.name)]
    in_headers = [column for column in image_set.columns if column.template == TAG_COVARIATES.get(name)]
    return max(named, key=lambda column: column.stats.coverage, default=next(iter(in_headers), None))
