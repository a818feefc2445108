"""One view, plane or sequence of several, where a request names it: `frontal` of frontal and lateral, `sagittal` of three planes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from m3b.data.spec.model import FromPath, IndexSpec, Only, Value
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import image_sets
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.parted import joined_tables
from m3b.data.spec.proposals.vocabulary import SEQUENCES
from m3b.data.survey.relations import Survey

MOST = 6
"""Different values of a view."""


def of_views(survey: Survey, ask: Ask, found: Sequence[Proposal]) -> list[Proposal]:
    """The readings with the cases that the request means alone, where it names some views of several."""
    sets = {one.images.files.model_dump_json(): one for one in image_sets(survey, ask.stacks)}
    known: dict[str, list[tuple[Only, str]]] = {}
    made = []
    for one in found:
        files = one.spec.images.files.model_dump_json()
        if files in sets and files not in known:
            known[files] = list(_named(survey, ask, sets[files]))
        made.append(_with(one, known.get(files, [])))
    return made


def _with(one: Proposal, named: Sequence[tuple[Only, str]]) -> Proposal:
    mine = [(only, told) for only, told in named if not _taught(one.spec, only.source)]
    if not mine:
        return one
    spec = one.spec.model_copy(update={"only": tuple(only for only, _ in mine)})
    return replace(one, spec=spec, evidence=(*one.evidence, *(told for _, told in mine)))


def _taught(spec: IndexSpec, source: Value) -> bool:
    """Whether the classes themselves are these views."""
    return spec.labels is not None and source in spec.labels.sources


def _named(survey: Survey, ask: Ask, images: ImageSet) -> Iterator[tuple[Only, str]]:
    """Places of views of which the request names some and not all."""
    asked = set(words(ask.request))
    for source, values, where in _places(survey, images):
        if not 2 <= len(values) <= MOST or not all(_is_view(text) for text in values):
            continue
        chosen = [text for text in values if set(words(text)) & SEQUENCES & asked]
        if chosen and len(chosen) < len(values):
            others = ", ".join(f"{text} {count:,}" for text, count in values.items() if text not in chosen)
            yield (
                Only(source=source, texts=tuple(chosen)),
                f"{', '.join(chosen)} alone, as asked for ({where}); left out: {others}",
            )


def _is_view(text: str) -> bool:
    """Whether a text is the name of a view and says nothing else."""
    some = [word for word in words(text) if not word.isdigit()]
    return bool(some) and set(some) <= SEQUENCES


def _places(survey: Survey, images: ImageSet) -> Iterator[tuple[Value, Mapping[str, int], str]]:
    for slot, values in images.levels.items():
        yield FromPath(value=f"{{{slot}}}"), values, "the folders"
    for part in images.single.parts if images.single is not None else ():
        if part.slot.startswith("name") and part.kind == "word":
            texts = {value.text: value.count for value in part.values}
            yield FromPath(value="{" + part.slot.replace(".", "_") + "}"), texts, "the names"
    for tables in joined_tables(survey, images):
        for column in tables.first.columns:
            if column.type == "category" and column.name != tables.join.left.name:
                yield (
                    tables.column(survey, images, column.name),
                    tables.values(column.name),
                    f"the column {column.name!r}",
                )
