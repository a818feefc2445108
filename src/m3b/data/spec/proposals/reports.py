"""Readings of a folder for reports: tables with prose that name images or studies."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.data.spec.model import IndexSpec, Text
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.imagery import ImageSet, image_sets
from m3b.data.spec.proposals.language import telling
from m3b.data.spec.proposals.surroundings import around, best_join, from_column, image_key, leave_out
from m3b.data.survey.relations import Join, Survey
from m3b.data.survey.table_facts import Column, Table

FINDINGS = telling("finding findings report text description caption observation befund beschreibung informe hallazgos")
IMPRESSION = telling("impression conclusion summary opinion beurteilung conclusion impresion")


def propose_reports(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with reports."""
    for images in image_sets(survey)[:8]:
        if images.member is not None:
            continue
        for table in survey.tables:
            join = best_join(survey, images, table.id)
            prose = [column for column in table.columns if column.sensitive == "free_text" or column.type == "text"]
            if join is None or not prose:
                continue
            made = _reading(survey, ask, images, table, join, prose)
            if made is not None:
                yield made


def _reading(
    survey: Survey, ask: Ask, images: ImageSet, table: Table, join: Join, prose: list[Column]
) -> Proposal | None:
    findings = _best(prose, FINDINGS, ask)
    impression = _best([column for column in prose if column is not findings], IMPRESSION, None)
    if findings is None and impression is None:
        return None
    text = Text(
        findings=from_column(survey, images, join, findings.name) if findings else None,
        impression=from_column(survey, images, join, impression.name) if impression else None,
    )
    around_it = around(survey, images)
    several = join.most_right > 1
    case = image_key(images, join) if several else images.images.case
    spec = IndexSpec(
        task="report", images=images.images.model_copy(update={"case": case, "several": "views" if several else "one"}),
        report=text, patient=around_it.patient, together=around_it.together, split=around_it.split,
        left_out=leave_out(survey, {group.id for group in images.groups}, {}),
    )  # fmt: skip
    filled = max(column.filled for column in (findings, impression) if column)
    total = sum(group.count for group in images.groups)
    named = ", ".join(f"{column.name!r}" for column in (findings, impression) if column)
    told = (f"text from {named} of {table.path}: {filled:,} of {table.rows:,} rows have one", f"{join.files:,} of {total:,} images "
            "have a row", *(["the images of one row are the views of one study"] if several else []),
            *around_it.evidence)  # fmt: skip
    doubts = list(around_it.doubts)
    if join.left_values > 1.2 * join.left_matched:
        doubts.insert(0, f"{table.path} names {join.left_values - join.left_matched:,} that are not here")
    score = 0.45 + (0.2 if findings and telling(findings.name) & FINDINGS else 0.0) + (0.05 if impression else 0.0)
    score += 0.15 * max((len(telling(c.name) & ask.words) > 0 for c in (findings, impression) if c), default=0)
    score *= 0.4 + 0.6 * min(1.0, join.files / max(total, 1))
    return Proposal(spec, f"{images.title}, reports from {table.path}", min(1.0, score), told, tuple(doubts))


def _best(prose: list[Column], known: frozenset[str], ask: Ask | None) -> Column | None:
    """The column called like what is looked for; one that the request names too comes first."""
    fitting = [column for column in prose if telling(column.name.rsplit(".", 1)[-1]) & known]
    words = ask.words if ask else frozenset()
    return max(fitting, key=lambda c: (len(telling(c.name.rsplit(".", 1)[-1]) & words), c.filled), default=None)
