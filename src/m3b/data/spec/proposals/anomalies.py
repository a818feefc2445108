"""Readings of a folder for anomalies: which images are normal and which are not, and masks of the latter where there are some.

Published sets of anomalies are laid out in two ways: `train|valid|test / good|Ungood / img|anomaly_mask` (BMAD, after MVTec 3D),
and `train/good`, `test/<defect>`, `ground_truth/<defect>/<name>_mask` (MVTec AD). Others say it in a column or in class folders.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from m3b.data.spec.model import Files, FromPath, IndexSpec, Masks, SplitRule, States
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import (
    MASKED,
    folder_values,
    is_images,
    single_set,
    union_of,
)
from m3b.data.spec.proposals.language import plain
from m3b.data.spec.proposals.states import of_labels, says_normal
from m3b.data.spec.proposals.surroundings import around, leave_out
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Survey
from m3b.data.survey.sides import side_of

MARKS = ("anomaly_mask", "anomaly_masks", "label", "labels", "mask", "masks", "ground_truth", "groundtruth", "gt")
"""Names of folders with masks, compared in lower case."""
ENDS = r"(?:[_-](?:mask|gt|label))?"
MEANT = re.compile(r"\b(?:anomal|abnormal|unusual|outlier|auffallig|anormal)\w*")
ANOMALY = "anomaly"
LEAST = 2
"""Images of each state."""
DOUBT = "whether it is enough to tell abnormal images from normal ones: nothing marks where something is"


@dataclass(frozen=True)
class _Layout:
    """Folders of states.

    Args:
        level: of the states below the data folder, from 0.
        normal, abnormal: state -> images.
        half: level of the parts of the set (train, valid, test); None where there are none.
    """

    images: ImageSet
    level: int
    normal: dict[str, int]
    abnormal: dict[str, int]
    half: int | None
    sides: dict[str, int]


def propose_states(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Folders of states with their masks, and labels of which one means normal."""
    asked = MEANT.search(plain(ask.request)) is not None
    found = _layout(survey)
    if found is not None and (asked or found.half is not None):
        yield from _of_layout(survey, ask, found, asked)
    if asked:
        yield from of_labels(survey, ask, found is not None)


def _layout(survey: Survey) -> _Layout | None:
    """The folders of states, those that hold most images."""
    groups = tuple(one for one in survey.groups if is_images(survey, one) and not _marks(one))
    if not groups or any(one.content is not None and one.content.dims == 3 for one in groups):
        return None
    images = single_set(survey, groups[0]) if len(groups) == 1 else union_of(survey, groups)
    depth = min(one.template.count("/") for one in groups)
    levels = [_values(groups, level) for level in range(depth)]
    half = next((at for at, names in enumerate(levels) if names and _halves(names)), None)
    for level, names in reversed(list(enumerate(levels))):
        normal = {name: count for name, count in names.items() if says_normal(name)}
        others = {name: count for name, count in names.items() if name not in normal}
        enough = sum(normal.values()) >= LEAST and sum(others.values()) >= LEAST
        if enough and level != half and (half is None or level > half) and not any(map(side_of, others)):
            return _Layout(images, level, normal, others, half, dict(levels[half]) if half is not None else {})
    return None


def _marks(group: FileGroup) -> bool:
    """Whether a group lies in a folder of masks."""
    return any(part.casefold() in MARKS for part in group.template.split("/")[:-1])


def _values(groups: Sequence[FileGroup], level: int) -> Counter[str]:
    """Folder names at a level with their files; none where there are too many to know."""
    names: Counter[str] = Counter()
    for group in groups:
        some = folder_values(group, level)
        if some is None:
            return Counter()
        names.update(some)
    return names if 1 < len(names) <= 60 else Counter()


def _halves(names: Counter[str]) -> bool:
    sides = {side_of(name) for name in names}
    return "test" in sides and sides <= {"train", "val", "test"} and len(sides) > 1


def _of_layout(survey: Survey, ask: Ask, found: _Layout, asked: bool) -> Iterator[Proposal]:
    around_it = around(survey, found.images)
    split, told = around_it.split, list(around_it.evidence)
    if found.half is not None:
        split = _split(found)
        sides = ", ".join(f"{name} {count}" for name, count in found.sides.items())
        told = [*around_it.grouped, f"the data set's own split (folders): {sides}"]
    folder = f"{{folder{found.level}}}"
    states = States(source=FromPath(value=folder), normal=tuple(found.normal), abnormal=tuple(found.abnormal))
    counts = f"normal {sum(found.normal.values())}, abnormal {sum(found.abnormal.values())} ({', '.join(list(found.abnormal)[:6])})"
    masks, groups = _masks(survey, found)
    used = {*(one.id for one in found.images.groups), *(one.id for one in groups)}
    common = {
        "task": ask.task, "images": found.images.images, "states": states, "patient": around_it.patient,
        "attributes": attributes(survey, found.images), "together": around_it.together, "split": split,
    }  # fmt: skip
    title = f"{found.images.title}, states from the folders at level {found.level + 1}"
    doubts = tuple(around_it.doubts)
    if masks is not None:
        marked = sum(one.count for one in groups)
        spec = IndexSpec.model_validate({**common, "masks": masks, "left_out": leave_out(survey, used, {})})
        evidence = (f"an anomaly set: {counts}; {marked} masks in {groups[0].template}", *told)
        yield Proposal(spec, f"{title}, masks of what is abnormal", 0.95 if asked else 0.9, evidence, doubts)
    spec = IndexSpec.model_validate({**common, "left_out": leave_out(survey, used, {})})
    unclear = "" if asked else DOUBT
    yield Proposal(spec, title, 0.8 if asked else 0.4, (f"an anomaly set: {counts}", *told),
                   (*([unclear] if unclear else []), *doubts), unclear)  # fmt: skip


def _split(found: _Layout) -> SplitRule:
    """Everything but the test part teaches; m3b holds out its own validation."""
    tested = tuple(name for name in found.sides if side_of(name) == "test")
    rest = tuple(name for name in found.sides if name not in tested)
    return SplitRule(source=FromPath(value=f"{{folder{found.half}}}"), train=rest, test=tested)


def _masks(survey: Survey, found: _Layout) -> tuple[Masks | None, list[FileGroup]]:
    """The masks of abnormal images, which lie beside the images' folder or in one of their own, under the images' names."""
    groups = [one for one in survey.groups if one.kind == "picture" and not one.stray and _marks(one)]
    marked = [one for one in groups if one.content is not None and one.content.values in MASKED]
    if not marked:
        return None, []
    state, names = f"{{folder{found.level}}}", "|".join(map(re.escape, (*found.normal, *found.abnormal)))
    marks = "|".join(MARKS)
    inside = [one for one in marked if one.template.split("/")[-2].casefold() in MARKS]
    if inside:  # <state>/anomaly_mask/<name>
        pattern = rf"re:(?P<top>(?:[^/]+/)*)(?P<state>{names})/(?i:{marks})/(?P<base>[^/]+?){ENDS}\.\w+"
        case, image = (
            "{top}{state}/{base}",
            "".join(f"{{folder{at}}}/" for at in range(found.level)) + f"{state}/{{stem}}",
        )
    else:  # ground_truth/<state>/<name>_mask
        pattern = rf"re:(?:[^/]+/)*(?i:{marks})/(?P<state>{names})/(?P<base>[^/]+?){ENDS}\.\w+"
        case, image = "{state}/{base}", f"{state}/{{stem}}"
    value, cut = _levels(marked)
    masks = Masks(files=Files(pattern=pattern), case=case, image=image, classes={ANOMALY: value}, cut=cut)
    return masks, groups


def _levels(groups: Sequence[FileGroup]) -> tuple[int, float | None]:
    """The one value of the masks; else above which value they mark: whatever is not background."""
    contents = [one.content for one in groups if one.content is not None]
    levels = {one.value for content in contents for one in content.levels if one.value > 0}
    cuts = [content.cut for content in contents if content.values == "lossy_mask" and content.cut is not None]
    if cuts:
        return 1, max(cuts)
    if len(levels) == 1 and float(only := levels.pop()).is_integer():
        return int(only), None
    return 1, 0.0
