"""Readings of a folder for reports: tables with prose that name images or studies."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.data.spec.model import IndexSpec, Text
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.image_joins import image_key
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import image_sets
from m3b.data.spec.proposals.language import telling, words
from m3b.data.spec.proposals.parted import Tables, joined_tables
from m3b.data.spec.proposals.study_views import study_views
from m3b.data.spec.proposals.surroundings import around, leave_out, with_patient
from m3b.data.spec.proposals.vocabulary import VIEWS
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Column

FINDINGS = telling("finding findings report text description caption observation befund beschreibung informe hallazgos")
IMPRESSION = telling("impression conclusion summary opinion beurteilung conclusion impresion")

SHARED = 0.75
"""Different texts an image up to which the views of a study have one together: half with two views, a few corrected."""


def propose_reports(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with reports."""
    known = image_sets(survey, ask.stacks)[:8]
    sets = [*known, *study_views(survey, known, frozenset(words(ask.request)))]
    most = max((tables.files for images in sets for tables in joined_tables(survey, images)), default=1)
    for images in sets:
        if images.member is not None:
            continue
        for tables in joined_tables(survey, images):
            names = {column.name for part in tables.parts for column in part.columns if _is_prose(column)}
            prose = [column for column in tables.first.columns if column.name in names]
            if not prose or not _one_text_a_study(images, tables, prose):
                continue
            made = _reading(survey, ask, images, tables, prose, most)
            if made is not None:
                yield made


def _reading(
    survey: Survey, ask: Ask, images: ImageSet, tables: Tables, prose: list[Column], most: int
) -> Proposal | None:
    findings = _best(prose, FINDINGS, ask)
    called = telling(findings.name) if findings else frozenset()
    if findings is None and not tables.first.header and len(prose) == 1:
        findings, called = prose[0], telling(tables.first.path.rpartition("/")[2])  # a list of names and texts
    impression = _best([column for column in prose if column is not findings], IMPRESSION, None)
    if findings is None and impression is None:
        return None
    text = Text(
        findings=tables.column(survey, images, findings.name) if findings else None,
        impression=tables.column(survey, images, impression.name) if impression else None,
    )
    around_it = with_patient(around(survey, images), tables.patient(survey, images))
    join = tables.join
    split = tables.split(survey, images) or around_it.split
    views = images.images.several == "views"
    several = views or join.most_right > 1
    case = image_key(images, join) if several and not views else images.images.case
    spec = IndexSpec(
        task="report", images=images.images.model_copy(update={"case": case, "several": "views" if several else "one"}),
        report=text, patient=around_it.patient,
        attributes=attributes(survey, images), split=split,
        together=(*around_it.together, *tables.together(survey, images)),
        left_out=leave_out(survey, {group.id for group in images.groups}, {}),
    )  # fmt: skip
    names = {column.name for column in (findings, impression) if column}
    filled = sum(max(c.filled for c in part.columns if c.name in names) for part in tables.parts)
    total = sum(group.count for group in images.groups[: 1 if views else None])
    told_split = bool(around_it.divided)
    if tables.split(survey, images) is not None and not told_split:
        around_it.divided.append(f"the data set's own split: {tables.title}")
    named = ", ".join(f"{column.name!r}" for column in (findings, impression) if column)
    told = [
        f"text from {named} of {tables.title}: {filled:,} of {tables.rows:,} rows have a text",
        f"{tables.files:,} of {total:,} images have a row",
        *tables.told,
    ]
    if views:
        told.append(
            f"{images.count:,} studies of several views each, with one text: what is beside the view in their names"
        )
    elif several:
        told.append("the images of one row are the views of one study")
    doubts = list(around_it.doubts)
    if tables.named > 1.2 * tables.matched and not views:
        doubts.insert(0, f"{tables.title} names {tables.named - tables.matched:,} that are not here")
    score = 0.45 + (0.2 if called & FINDINGS else 0.0) + (0.05 if impression else 0.0)
    score += 0.15 * max((len(telling(c.name) & ask.words) > 0 for c in (findings, impression) if c), default=0)
    asked = images.single is not None and set(words(images.single.template)) & VIEWS & set(words(ask.request))
    score += 0.1 if views or asked else 0.0
    score *= 0.4 + 0.6 * min(1.0, tables.files / max(total, 1))
    score *= 0.7 + 0.3 * min(1.0, tables.files / max(most, 1))
    return Proposal(
        spec,
        f"{images.groups[0].title + ' with other views' if views else images.title}, reports from {tables.title}",
        min(1.0, score),
        (*told, *around_it.evidence),
        tuple(doubts),
        tables.unclear,
    )


def _one_text_a_study(images: ImageSet, tables: Tables, prose: list[Column]) -> bool:
    """Whether a table of a row an image says the same of all views of a study; of other sets and tables, always."""
    if images.images.several != "views" or tables.join.most_right > 1 or tables.rows < 2 * images.count:
        return True
    return max(column.distinct for column in prose) <= SHARED * tables.rows


def _is_prose(column: Column) -> bool:
    if column.sensitive == "free_text" or column.type == "text":
        return True
    own = telling(column.name.rsplit(".", 1)[-1])
    return column.type == "category" and bool(own & IMPRESSION) and any(" " in value.text for value in column.values)


def _best(prose: list[Column], known: frozenset[str], ask: Ask | None) -> Column | None:
    """The column called like what is looked for; one that the request names too comes first."""
    fitting = [column for column in prose if telling(column.name.rsplit(".", 1)[-1]) & known]
    words = ask.words if ask else frozenset()
    return max(fitting, key=lambda c: (len(telling(c.name.rsplit(".", 1)[-1]) & words), c.filled), default=None)
