"""Marks that somebody drew: one module a family of formats, each from loaded tables or groups to `Marks`."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.data.survey.annotations import (
    aperio,
    contours,
    cvat,
    fits,
    in_json,
    in_tables,
    in_text,
    in_xml,
    run_lengths,
    via,
)
from m3b.data.survey.annotations.marks import Marks
from m3b.data.survey.ends import Texts, paths_of
from m3b.data.survey.facts import Value
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.joins import names_in
from m3b.data.survey.keys import key
from m3b.data.survey.relations import Rule
from m3b.data.survey.table_facts import Annotation
from m3b.data.survey.tables import Loaded


def annotations_of(found: Gathering, tables: Sequence[Loaded]) -> list[Annotation]:
    """Every annotation of a folder, with the images that it names looked for among the groups."""
    images = [group for group in found.groups if group.is_images]
    marks = [
        *in_json.find(found, tables), *in_xml.find(tables), *in_text.find(found), *in_tables.find(tables, images),
        *contours.find(found), *aperio.find(found), *cvat.find(found), *via.find(found), *run_lengths.find(tables, images),
    ]  # fmt: skip
    return [_fact(found, one, f"a{number}", images) for number, one in enumerate(marks, 1)]


def _fact(found: Gathering, marks: Marks, id: str, images: Sequence[Gathered]) -> Annotation:
    names = sorted(set(marks.named))
    group, there, files = marks.images, marks.images_found, 0
    if not group and names:
        most = found.tree.limits.keys
        best = names_in(names, [paths_of(one, most) for one in images if one.id != marks.group])
        if best:
            group, there, files = best[0].end.owner, best[2], best[3]
            owner = next(one for one in images if one.id == group)
            paths = _paths(names, best[0], best[1], owner)
            fits.decide(marks, paths, found.tree.root)
            run_lengths.decide(marks, paths, found.tree.root)
    total = next((len(one.units) for one in images if one.id == group), 0)
    return Annotation(
        id=id,
        format=marks.format,
        shapes=tuple(sorted(marks.shapes)),
        path=marks.path,
        group=marks.group,
        table=marks.table,
        files=marks.files,
        items=marks.items,
        classes=tuple(Value(text=text, count=count) for text, count in sorted(marks.classes.items())),
        class_source=marks.class_source,
        images_named=len(names),
        images_marked=marks.marked,
        images=group,
        images_found=there,
        images_without=max(total - (files or there), 0) if group else 0,
        columns=tuple(marks.columns),
        faults=tuple(sorted((code, count) for code, count in marks.faults.items() if count)),
        exact=marks.exact,
        numbers=tuple(sorted(marks.numbers.items())),
        space=marks.space,
        sizes_mm=marks.sizes_mm,
        volumes=marks.volumes,
        runs=(rule.order, rule.first, rule.relative) if (rule := marks.run_rule) is not None else None,
    )


def _paths(names: Sequence[str], ends: Texts, rule: Rule, owner: Gathered) -> dict[str, str]:
    """Image as it is named -> its file, or the folder of its slices; names that several files answer to are none."""
    theirs = ends.by_key(rule)
    found = {}
    for name in names:
        some = theirs.get(key(rule, name), ())
        places = {path.rpartition("/")[0] for path in some} if owner.by_folder else set(some)
        if len(places) == 1:
            found[name] = places.pop()
    return found
