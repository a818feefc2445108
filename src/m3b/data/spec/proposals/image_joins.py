"""How the tables of a folder name the images of a set: by which column, of which files, and what that leaves open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import is_images
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.vocabulary import PLANES, VIEWS
from m3b.data.survey.keys import ABOVE
from m3b.data.survey.relations import End, Join, Survey

SURE = 0.8
"""Share of a column's values that files must have, where it is taken for one of images."""
SMALL = 0.1
"""Share that may match by chance where columns are taken for those of further views."""

CALLED = ("path", "tail5", "tail4", "tail3", "tail", "name", "stem")
"""Rules by which a text is the very name of a file."""
MARKS = frozenset(words("mask roi label labels seg segmentation annotation contour outline overlay"))
"""Words of columns that name files with marks."""
NUMBERED = frozenset(words("image img id file filename picture bild name slide scan case number nr no index study"))
"""Words of columns whose running numbers can be those of the images' names."""


def slot_of(images: ImageSet, end: End) -> str:
    """The key of a part or level of the image's path; empty where the set's pattern has no such slot."""
    if end.kind == "level":
        return f"{{folder{end.name}}}"
    if end.kind == "part" and images.single is not None:
        return "{" + end.name.replace(".", "_") + "}"
    return ""


def best_join(survey: Survey, images: ImageSet, table: str) -> Join | None:
    """The join of a table with the images that names most of them, by path rather than by parts."""
    found = _over_groups(survey, images, table)
    usable = [one for one in found if image_key(images, one) and (one.chance < 0.5 or _numbers_all(one))]
    usable = [one for one in usable if not _named_surely(one, usable)]
    usable = [one for one in usable if not _of_marks(one, usable) and not _of_a_part(one, usable)]
    most = max((one.files for one in usable), default=0)
    telling = [one for one in usable if 1 in (one.most_left, one.most_right) and 2 * one.files >= most]
    return max(
        telling
        or usable,  # many rows that name many files alike (a folder called as a column says) tell them apart by chance
        key=lambda one: (one.files, round(one.left_share, 2), one.right.kind == "path", -one.chance),
        default=None,
    )


def _over_groups(survey: Survey, images: ImageSet, table: str) -> list[Join]:
    """A table's joins with a set; of several groups of which each row names images of one alone, as one join with all."""
    ids = [group.id for group in images.groups]
    found = [
        one for one in survey.joins
        if one.left.owner == table and one.left.kind == "column" and one.right.owner in ids and one.right.kind != "member"
    ]  # fmt: skip
    alike: dict[tuple[str, ...], list[Join]] = defaultdict(list)
    for one in found:
        alike[one.left.name, one.rule, one.right.kind, one.right.name].append(one)
    if _planes_apart(images):
        return found
    whole = [_summed(some) for some in alike.values() if len(some) > 1 and not any(one.folders for one in some)]
    return [*found, *(one for one in whole if one.left_matched <= one.left_values)]


def _planes_apart(images: ImageSet) -> bool:
    """Whether groups are called after frontal and lateral views, or planes: a model takes one of them, or all as a study."""
    called = [frozenset(words(group.template)) for group in images.groups]
    shared = frozenset.intersection(*called)
    return any((one - shared) & PLANES for one in called)


def _summed(some: Sequence[Join]) -> Join:
    counted = ("left_matched", "right_values", "right_matched", "files", "near")
    told: dict[str, object] = {name: sum(getattr(one, name) for one in some) for name in counted}
    most = {name: max(getattr(one, name) for one in some) for name in ("most_left", "most_right", "chance")}
    return some[0].model_copy(update={**told, **most})


def _named_surely(one: Join, others: Sequence[Join]) -> bool:
    """Whether a column names one file each as it is called, so that further files of the same numbers (thumbnails) are no rows'."""
    return one.right.kind == "part" and one.files > one.left_matched and any(
        other.right.kind == "path" and other.left == one.left and other.rule in CALLED and other.left_share >= 0.95
        and other.most_right == 1 and other.chance < SMALL for other in others
    )  # fmt: skip


def _of_marks(one: Join, others: Sequence[Join]) -> bool:
    """Whether a column is called after masks, where the same folders are named by one that is not."""
    mine = set(words(one.left.name)) & MARKS
    return bool(mine) and any(not set(words(other.left.name)) & MARKS for other in _rivals(one, others))


def _of_a_part(one: Join, others: Sequence[Join]) -> bool:
    """Whether a column is called as another of images is, and something more (`cropped image path`, `image path`)."""
    mine = set(words(one.left.name))
    return any(set(words(other.left.name)) < mine for other in _rivals(one, others))


def _rivals(one: Join, others: Sequence[Join]) -> list[Join]:
    """Joins of other columns whose paths name the same folders by the same rule."""
    return [
        other for other in others
        if one.rule in ABOVE and other.rule in ABOVE and other.left != one.left and other.right == one.right
        and other.left_share > SURE
    ]  # fmt: skip


def files_of_others(survey: Survey, images: ImageSet, join: Join) -> int:
    """Images of the folders that the same table's other columns name, which are no cases without a row."""
    return max((one.files for one in _rivals(join, _over_groups(survey, images, join.left.owner))), default=0)


def _numbers_all(one: Join) -> bool:
    """Whether a column that is called after images or cases numbers each of them once: chance would not leave none out."""
    called = set(words(one.left.name.rsplit(".", 1)[-1])) & NUMBERED
    each = one.left_share == one.right_share == 1.0 and one.left_values == one.right_values >= 10
    return bool(called) and each and one.most_left == one.most_right == 1 and one.right.kind == "path"


def image_key(images: ImageSet, join: Join) -> str:
    """The key of an image that a join's right end speaks of; empty where a spec cannot say it."""
    end = join.right
    if end.kind == "path":
        return "{folder}" if images.images.unit == "folder" else "{path}"
    if end.kind == "tag":
        return f"{{tag.{end.name}}}"
    before = ""
    if join.rule == "prefixed" and end.kind == "part" and images.single is not None:
        before = next((part.before.split("/")[-1] for part in images.single.parts if part.slot == end.name), "")
    slot = slot_of(images, end)
    return before + slot if slot and not set(before) & set("{}") else slot


def beside(survey: Survey, images: ImageSet, join: Join) -> tuple[Join, ...]:
    """Joins of the same table's columns that name other views of each case: the right eye beside the left."""
    views = (one for one in _of_others(survey, join) if one.right == join.right)
    found = [one for one in views if _apart(join, one) and _apart(join, one) <= VIEWS]
    files = join.files + sum(one.files for one in found)
    return tuple(found) if files <= sum(group.count for group in images.groups) else ()


def pairs_of_images(survey: Survey, images: ImageSet, join: Join, asked: Collection[str] = ()) -> str:
    """What to ask where a row names several images that no word tells to be views: before and after, left out or both.

    Args:
        asked: the words of the request.
    """
    if (
        join.rule in ABOVE
        and images.images.unit == "file"
        and images.series is None
        and join.files > join.right_matched
    ):
        return (f"which of the files of a folder the rows of the column {join.left.name!r} speak of: they name {join.right_matched:,} "
                f"folders with {join.files:,} images")  # fmt: skip
    for one in _rivals(join, _over_groups(survey, images, join.left.owner)):
        more = set(words(one.left.name)) - set(words(join.left.name))
        if more & set(asked) or not (more & MARKS or set(words(join.left.name)) < set(words(one.left.name))):
            return f"whether the images of the column {join.left.name!r} or of {one.left.name!r} are meant"
    mine = {group.id for group in images.groups}
    total = sum(group.count for group in images.groups)
    for one in _of_others(survey, join):
        told = bool(_apart(join, one)) and _apart(join, one) <= VIEWS
        here = one.right.owner in mine and join.files + one.files <= total
        there = (
            one.right.owner not in mine
            and not images.images.channels
            and is_images(survey, survey.group(one.right.owner))
        )
        if (here or there) and not told:
            return f"whether the images in the columns {join.left.name!r} and {one.left.name!r} of a row are one case or two"
    return ""


def _of_others(survey: Survey, join: Join) -> list[Join]:
    """Joins of the same table's other columns with files, surely and by the same rule."""
    return [
        one for one in survey.joins
        if join.right.kind == one.right.kind == "path" and one.left.kind == "column" and one.left.owner == join.left.owner
        and one.left.name != join.left.name and one.rule == join.rule and one.chance < SMALL and one.left_share > SURE
    ]  # fmt: skip


def _apart(join: Join, one: Join) -> set[str]:
    """The words by which two columns' names differ."""
    return set(words(one.left.name)) ^ set(words(join.left.name))
