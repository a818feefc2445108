"""Which files lie beside the cases of an image set: pairings of the survey, and those of whole folders and series."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import polars as pl

from m3b.dataset.manifest.image_frame import ImageFrame
from m3b.dataset.manifest.model import Files, Match
from m3b.dataset.manifest.templates import match_keys
from m3b.dataset.proposals.image_sets import MAX_CHANNELS, MAX_FOLDERS, ImageSet, group_content, mean_of
from m3b.dataset.survey.contents import measure_overlap
from m3b.dataset.survey.facts import Content, FileGroup, Pairing, Survey

MATCHES: tuple[Match, ...] = ("exact", "normalized")
MIN_SHARE = 0.3


def list_pairings(image_set: ImageSet, survey: Survey) -> Iterator[tuple[Pairing, FileGroup, Content, str]]:
    """Yield each group of image files that is paired with the cases, what its files hold, and the array of each that it is."""
    ids = set(image_set.groups)
    is_whole = image_set.images.several != "one" or image_set.images.unit == "folder"
    patterns = image_set.images.patterns
    whole_groups = [] if is_whole else [id for id in image_set.groups if survey.group(id).pattern in patterns]
    for group in survey.groups:
        content, member = group_content(survey, group)
        if content is None or group.id in ids or group.stray:
            continue
        if whole_groups:
            pairing = _joined_pairing(image_set, whole_groups, survey, group)
            pairing = pairing or _listed_pairing(image_set, whole_groups, survey, group)
        else:
            pairing = (None if is_whole else _pairing_of_part(image_set, survey, group)) or pair_cases(
                image_set, group, _list_templates(image_set, survey, group)
            )
        if pairing is not None:
            yield pairing, group, content, member


def _joined_pairing(image_set: ImageSet, owners: Sequence[str], survey: Survey, right: FileGroup) -> Pairing | None:
    """The survey's pairing of a group with the images; of several groups of images, all together if their keys agree."""
    pairings = [item for item in survey.pairings if item.image_group in owners and item.partner_group == right.id]
    if not pairings:
        return None
    best = max(pairings, key=lambda item: item.images_matched)
    if len(owners) == 1:
        return best
    alike = [item for item in pairings if (item.key, item.image, item.match) == (best.key, best.image, best.match)]
    return best.model_copy(
        update={
            "image_files": image_set.count,
            "images_matched": sum(item.images_matched for item in alike),
            "partners_matched": min(right.count, sum(item.partners_matched for item in alike)),
            "images_per_partner": max(
                math.ceil(sum(item.images_matched * item.per_image[0] for item in alike) / max(right.count, 1)),
                *(item.images_per_partner for item in alike),
            ),
        }
    )


def _listed_pairing(image_set: ImageSet, owners: Sequence[str], survey: Survey, right: FileGroup) -> Pairing | None:
    """The pairing that a table makes which names an image and a file of a group in each row, whatever the two are called."""
    for name, table_id in image_set.table_ids.items():
        joins = [
            join for join in survey.joins if join.table == table_id and join.rows_per_file == 1 == join.files_per_row
        ]
        images = [join for join in joins if join.group in owners]
        for join in (join for join in joins if join.group == right.id):
            column = re.fullmatch(r"\{([^{}.]+)\}", join.key)
            if (
                column is None
                or not images
                or join.files_share < MIN_SHARE
                or any(item.key == join.key for item in images)
            ):
                continue
            return Pairing(
                image_group=owners[0],
                partner_group=right.id,
                key=join.image,
                image=f"{{{name}.{column[1]}}}",
                match=join.match,
                image_files=image_set.count,
                images_matched=min(image_set.count, join.rows_matched),
                partner_files=right.count,
                partners_matched=join.files_matched,
            )
    return None


def _list_templates(image_set: ImageSet, survey: Survey, right: FileGroup) -> list[tuple[str, str, Match]]:
    """Return the templates by which files of a group go with those that images are some of, such as one sequence of several."""
    return [
        (pairing.image, pairing.key, pairing.match)
        for pairing in survey.pairings
        if pairing.image_group in image_set.groups and pairing.partner_group == right.id
    ]


def _pairing_of_part(image_set: ImageSet, survey: Survey, right: FileGroup) -> Pairing | None:
    """The survey's pairing of the group of which the images are a part, if each image of the group has a file of its own: other
    parts, such as those of another site, may use the same names."""
    for item in survey.pairings:
        is_complete = item.images_per_partner == 1 and item.images_matched == item.image_files
        if item.image_group in image_set.groups and item.partner_group == right.id and is_complete:
            count = min(image_set.count, item.partners_matched)
            return item.model_copy(
                update={"image_files": image_set.count, "images_matched": image_set.count, "partners_matched": count}
            )
    return None


def pair_cases(
    image_set: ImageSet, right: FileGroup, templates: Sequence[tuple[str, str, Match]] = ()
) -> Pairing | None:
    """Measure how the cases of an image set (folders, series) and the files of a group go together by name.

    Args:
        templates: further ones of images and files, and how both are compared.
    """
    frame = image_set.frame.frame
    case = "{folder}" if image_set.images.unit == "folder" else image_set.images.case
    cases = frame.with_columns(image_set.values(case).alias("(case)"))
    image_set.frame.add_columns(["parent"], "proposal")
    names = [slot for slot in _slots(image_set.images.patterns) if slot in frame.columns]
    depth = int(frame["path"].str.count_matches("/").max() or 0)  # type: ignore[arg-type]
    folders = [f"folder{level}" for level in range(min(depth, MAX_FOLDERS))]
    image_set.frame.add_columns(folders, "proposal")
    names = list(dict.fromkeys(["parent", *names, *folders]))
    texts = {f"{{{name}}}": image_set.values(f"{{{name}}}") for name in names}
    texts |= {image: image_set.values(image) for image, _, _ in templates}
    cases = (
        pl.DataFrame([cases["(case)"], *(series.alias(text) for text, series in texts.items())])
        .group_by("(case)", maintain_order=True)
        .agg(*(pl.col(text).first() for text in texts), *(pl.col(text).n_unique().alias(f"n.{text}") for text in texts))
    )
    keys = dict.fromkeys(["stem", "parent", *[slot.name for slot in right.slots], *folders])
    ways: list[tuple[str, str, Match]] = [
        (f"{{{name}}}", f"{{{key}}}", match) for name in names for key in keys for match in MATCHES
    ]
    files = Files(files=right.pattern, exclude=right.exclude)
    second = ImageFrame(image_set.frame.readers.items(files, "proposal"), image_set.frame.readers, [])
    best: tuple[float, Pairing] | None = None
    for image, key, match in (*templates, *ways):
        if cases[f"n.{image}"].max() != 1 or (cases[image].n_unique() == 1 < len(cases)):
            continue
        left_keys = image_set_keys(cases[image], match)
        right_keys = second.keys(key, match, "proposal")
        pairs = match_keys(left_keys, right_keys, match)
        rank_of_match = MATCHES.index(match) if match in MATCHES else len(MATCHES)
        if not len(pairs):
            continue
        counts = pairs.group_by("left").len()["len"]
        shared = int(pairs.group_by("right").len()["len"].max() or 1)  # type: ignore[arg-type]
        matched, used = pairs["left"].n_unique(), pairs["right"].n_unique()
        rank = matched / len(cases) + used / max(right.count, 1) - (shared > 1) - 0.01 * rank_of_match
        if matched < MIN_SHARE * min(len(cases), right.count) or (best is not None and rank <= best[0]):
            continue
        extra, overlap = "", None
        if int(counts.max()) > 1:  # type: ignore[arg-type]
            extra = _telling_slot(second, right, key.strip("{}"), pairs)
            overlap = _overlap(second, right, pairs, extra)
        low, middle, largest = int(counts.min()), int(counts.median()), int(counts.max())  # type: ignore[arg-type]
        best = (
            rank,
            Pairing(
                image_group=image_set.groups[0],
                partner_group=right.id,
                key=key,
                image=image,
                match=match,
                image_files=len(cases),
                images_matched=matched,
                partner_files=right.count,
                partners_matched=used,
                per_image=(low, middle, largest),
                images_per_partner=shared,
                extra_slot=extra if middle > 1 else "",
                overlap=overlap,
                partner_words=tuple(sorted(set(re.findall(r"[a-z]+", right.pattern.casefold())))),
            ),
        )
    return best[1] if best is not None else None


def _overlap(files: ImageFrame, right: FileGroup, pairs: pl.DataFrame, extra_slot: str) -> float | None:
    """How far the masks of one case overlap.

    Args:
        extra_slot: the slot that tells its masks apart; those of the same slice are compared, which the other slots tell.
    """
    others = [
        slot.name
        for slot in right.slots
        if extra_slot and slot.level == -1 and slot.kind == "number" and slot.name != extra_slot
    ]
    files.add_columns(others, "proposal")
    slots = [files.frame[name].gather(pairs["right"]) for name in others if name in files.frame.columns]
    partners = pairs.with_columns(files.frame["path"].gather(pairs["right"]).alias("path"), *slots)
    keys = ["left", *(series.name for series in slots)]
    by_case = partners.group_by(keys, maintain_order=True).agg(pl.col("path").sort())
    if (by_case["path"].list.len() < 2).all():
        by_case = partners.group_by("left", maintain_order=True).agg(pl.col("path").sort())
    cut = right.content.cut if right.content is not None else None
    return measure_overlap(files.readers.root, by_case["path"].to_list(), cut)


def _telling_slot(files: ImageFrame, right: FileGroup, key: str, pairs: pl.DataFrame) -> str:
    """The slot that differs most among the files of one case; empty if none does."""
    slots = [slot for slot in right.slots if slot.name != key and 1 < slot.distinct <= MAX_CHANNELS]
    names = [slot.name for slot in sorted(slots, key=lambda slot: slot.distinct)]
    shares = {}
    for name in names:
        files.add_columns([name], "proposal")
        if name in files.frame.columns:
            values = pl.DataFrame({"left": pairs["left"], "value": files.frame[name].gather(pairs["right"])})
            per_case = values.group_by("left").agg(pl.col("value").n_unique().alias("values"))["values"]
            shares[name] = mean_of(per_case > 1)
    best = max(shares, key=lambda name: shares[name], default="")
    return best if best and shares[best] > MIN_SHARE else ""


def image_set_keys(series: pl.Series, match: Match) -> pl.Series:
    """The texts of a column as keys."""
    from m3b.dataset.manifest.templates import normalize

    return pl.DataFrame({"text": series}).select(normalize(pl.col("text"), match).alias("key"))["key"]


def _slots(patterns: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(name for pattern in patterns for name in re.findall(r"\{(\w+)(?::\w+)?\}", pattern)))
