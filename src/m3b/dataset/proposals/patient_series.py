"""Several volumes of one patient that share one target: scouts, reconstructions and phases, of which one kind is meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

import polars as pl

from m3b.dataset.archives import local_reference
from m3b.dataset.formats import DataError, probe_image
from m3b.dataset.proposals.context import choose_patient
from m3b.dataset.proposals.image_sets import ImageSet, mean_of
from m3b.dataset.proposals.roles import roles_of, split_words
from m3b.dataset.survey.facts import Survey
from m3b.dataset.words.lexicon import get_lexicon

STUDY_TAGS = ("tag.StudyInstanceUID", "tag.PatientID")
"""Header fields whose series are of one patient, the narrower first: several studies of a patient are visits."""
KIND_TAGS = ("tag.SeriesDescription", "tag.SliceThickness", "tag.ConvolutionKernel", "tag.SeriesNumber")
"""Header fields that may tell the series of a study apart, the most telling first."""
MAX_KINDS = 8
"""Distinct texts of a column of kinds."""
MIN_SEVERAL = 0.5
"""Share of the patients with several volumes from which on these are kinds and no accident."""
MIN_PATIENT = 0.5
"""Probability from which on a column says whose a volume is."""
MAX_FEW_SLICES = 0.25
"""Slices of a series, as a part of those of the longest series of its patient, up to which it is a scout or a thick copy."""
MIN_MORE_SLICES = 1.25
"""Slices of the longest kind, as a multiple of those of the next one, from which on it is the one to be taken."""
MIN_SHARE = 0.98
"""Share of the patients that must have the chosen kind, have one volume of each, or have one target for all volumes."""
MAX_PROBED = 5
"""Patients of whose files headers are read for the number of voxels."""


@dataclass(frozen=True)
class PatientSeries:
    """Volumes of which each patient has several.

    Args:
        image_set: all of them.
        studies: patient or study of each image of the set.
        cases: image of the set that begins each case.
        value: template whose texts are the kinds; empty if none is.
        texts: the kinds.
        chosen: the kind that is taken; empty if nothing decides, or if only `min_files` does.
        min_files: files of a series below which it is no case; 0 for no such limit.
        n_few: series below that limit.
    """

    image_set: ImageSet
    studies: pl.Series
    cases: pl.Series
    value: str = ""
    texts: tuple[str, ...] = ()
    chosen: str = ""
    min_files: int = 0
    n_few: int = 0

    @property
    def is_decided(self) -> bool:
        """Whether it is known which volumes are the cases."""
        return bool(self.chosen) or not self.value

    def shares_target(self, templates: Sequence[str]) -> bool:
        """Return whether a target that templates give is that of patients, and not one of each volume or of its kind."""
        if any(self.value in template for template in templates if self.value):
            return False
        if self.image_set.rows_of(templates) > (self.studies.drop_nulls().n_unique() + len(self.cases)) / 2:
            return False  # rows name each volume
        values = [self.image_set.values(template).gather(self.cases).fill_null("") for template in templates]
        table = pl.DataFrame({"study": self.studies.gather(self.cases)}).hstack(
            [series.alias(str(at)) for at, series in enumerate(values)]
        )
        several = table.filter(pl.len().over("study") > 1).group_by("study").agg(pl.exclude("study").n_unique())
        return mean_of(several.select(pl.max_horizontal(pl.exclude("study")) == 1).to_series()) >= MIN_SHARE

    def describe(self) -> str:
        """Return what is taken, left out or open, for people."""
        if self.chosen:
            other_texts = ", ".join(text for text in self.texts if text != self.chosen)
            return f"each patient has several series: {self.chosen} is taken, and {other_texts} left out"
        if self.value:
            return f"each patient has several series with one target ({', '.join(self.texts)})"
        return f"{self.n_few:,} series of fewer than {self.min_files} slices (scouts) are left out"

    def covers(self, image_set: ImageSet) -> bool:
        """Return whether the images of another set are some of these."""
        return image_set is self.image_set or image_set.paths <= self.image_set.paths

    def is_meant(self, image_set: ImageSet) -> bool:
        """Return whether another set has no images of kinds that are left out."""
        if image_set is self.image_set or not self.chosen:
            return True
        if image_set.images.channels:
            return False
        kinds = pl.DataFrame({"path": self.image_set.frame.frame["path"], "kind": self.image_set.values(self.value)})
        return set(kinds.filter(pl.col("path").is_in(list(image_set.paths)))["kind"].unique()) == {self.chosen}


def find_patient_series(image_set: ImageSet, survey: Survey, request_text: str) -> PatientSeries | None:
    """Return how the volumes of a set that one patient has several of differ; None if there are no such volumes."""
    images = image_set.images
    is_joined = images.several == "slices" or images.unit == "folder"
    if images.channels or images.member or image_set.content.is_mask or not (is_joined or image_set.content.dims == 3):
        return None
    case = image_set.values("{folder}" if images.unit == "folder" else images.case)
    table = (
        pl.DataFrame({"case": case, "path": image_set.frame.frame["path"]})
        .with_row_index("image")
        .drop_nulls()
        .group_by("case", maintain_order=True)
        .agg(pl.col("image").first(), pl.col("path").first(), pl.len().alias("size"))
    )
    has_headers = bool({facts.group for facts in survey.dicom} & set(image_set.groups))
    for studies in _list_studies(image_set, table, has_headers=has_headers):
        grouped = table.with_columns(study=studies).drop_nulls("study")
        counts = grouped.group_by("study").len()["len"]
        if len(counts) < 2 or len(grouped) < MIN_SHARE * len(table) or not (counts > 1).any():
            continue
        every = pl.Series([None] * image_set.count, dtype=pl.String).scatter(grouped["image"], grouped["study"])
        series = PatientSeries(image_set, every, grouped["image"])
        has_several = mean_of(counts > 1) >= MIN_SEVERAL
        kinds = None
        if has_several:
            kinds = _find_kinds(series, grouped, request_text, is_joined=is_joined, has_headers=has_headers)
        is_few = grouped["size"] <= MAX_FEW_SLICES * grouped.select(pl.col("size").max().over("study")).to_series()
        limit = int(grouped["size"].filter(is_few).max() or 0) + 1  # type: ignore[arg-type]
        long = grouped.filter(~is_few)
        if is_joined and not (kinds and kinds.chosen) and is_few.any() and not (long["size"] < limit).any():
            series = replace(series, min_files=limit, n_few=int(is_few.sum()))
            if mean_of(long.group_by("study").len()["len"] > 1) < MIN_SEVERAL:
                return series
            return _find_kinds(series, long, request_text, is_joined=is_joined, has_headers=has_headers) or series
        if has_several:
            return kinds
    return None


def _list_studies(image_set: ImageSet, table: pl.DataFrame, *, has_headers: bool) -> Iterator[pl.Series]:
    """Yield what may say for each case whose it is."""
    if has_headers:
        tags = image_set.frame.readers.with_tags(table.select("path"), [*STUDY_TAGS, *KIND_TAGS])
        yield from (tags[name] for name in STUDY_TAGS)
    for choice in choose_patient(image_set, image_set.case_count)[:1]:
        if choice.probability >= MIN_PATIENT:
            yield image_set.values(choice.column.template).gather(table["image"])


def _find_kinds(
    series: PatientSeries, cases: pl.DataFrame, request_text: str, *, is_joined: bool, has_headers: bool
) -> PatientSeries | None:
    """Return the column that tells the volumes of each patient apart, with the kind that is to be taken if one is."""
    image_set = series.image_set
    columns: list[tuple[str, pl.Series]] = []
    if has_headers:
        tags = image_set.frame.readers.with_tags(cases.select("path"), KIND_TAGS)
        columns = [(f"{{{name}}}", tags[name]) for name in KIND_TAGS]
    templates = [column.template for column in image_set.columns if column.source in ("slot", "folder")]
    if not has_headers and len(image_set.groups) > 1:
        templates.append("{stem}")
    columns[1:1] = [(text, image_set.values(text).gather(cases["image"])) for text in templates]
    undecided = None
    for template, values in columns:
        kinds = _choose_kind(series, cases.with_columns(kind=values), template, request_text, is_joined=is_joined)
        if kinds is not None and kinds.chosen:
            return kinds
        undecided = undecided or kinds
    return undecided


def _choose_kind(
    series: PatientSeries, table: pl.DataFrame, template: str, request_text: str, *, is_joined: bool
) -> PatientSeries | None:
    """Return the texts of a template as kinds, if nearly every study has one volume of each, with the kind that is meant."""
    n_studies = table["study"].n_unique()
    pairs = table.select("study", "kind").drop_nulls()
    counts = dict(pairs.unique().group_by("kind").len().iter_rows())
    texts = tuple(sorted(counts))
    if (
        len(pairs) < len(table)
        or not 2 <= len(texts) <= MAX_KINDS
        or pairs.n_unique() < MIN_SHARE * len(pairs)
        or sum(count >= MIN_SEVERAL * n_studies for count in counts.values()) < 2
        or any("laterality" in roles_of(text) for text in texts)
    ):
        return None
    lexicon = get_lexicon()
    are_sequences = all(lexicon.find_concepts(text, ("modalities",)) for text in texts)
    if are_sequences and not is_joined:
        return None  # files of one grid, which may be channels
    kinds = replace(series, value=template, texts=texts)
    words = {text: {word for word in split_words(text) if not word.isdecimal()} for text in texts}
    sizes = table.select("study", "kind", "size") if is_joined else _probe_sizes(series, table)
    medians = dict(sizes.group_by("kind").agg(pl.col("size").median()).iter_rows())
    request_words = set(split_words(request_text))
    shared = words[texts[0]].intersection(*words.values())
    requested = [
        text
        for text in texts
        if (words[text] - shared) & request_words
        and medians.get(text, 0) > MAX_FEW_SLICES * max(medians.values(), default=0)
    ]
    if len(requested) == 1:
        return replace(kinds, chosen=requested[0], min_files=0)
    if not are_sequences and (longest := _find_longest(sizes)) and counts[longest] >= MIN_SHARE * n_studies:
        return replace(kinds, chosen=longest, min_files=0)
    return kinds if any(words.values()) else None


def _find_longest(sizes: pl.DataFrame) -> str:
    """Return the kind that has more slices than the others in nearly every study; empty if none has."""
    medians = sizes.group_by("kind").agg(pl.col("size").median()).sort("size", "kind", descending=True)
    if len(medians) < 2 or medians["size"][0] < MIN_MORE_SLICES * medians["size"][1]:
        return ""
    longest: str = medians["kind"][0]
    own_size = pl.col("size").filter(pl.col("kind") == longest).max()
    other_size = pl.col("size").filter(pl.col("kind") != longest).max()
    return (
        longest
        if mean_of(sizes.group_by("study").agg(is_longest=own_size > other_size)["is_longest"]) >= MIN_SHARE
        else ""
    )


def _probe_sizes(series: PatientSeries, table: pl.DataFrame) -> pl.DataFrame:
    """Return the voxels of the files of some studies, over all points in time, by their headers."""
    studies = table["study"].unique(maintain_order=True)
    studies = studies.gather_every(max(1, len(studies) // MAX_PROBED))[:MAX_PROBED]
    rows: list[dict[str, object]] = []
    for study, kind, path in (
        table.filter(pl.col("study").is_in(studies.implode())).select("study", "kind", "path").iter_rows()
    ):
        with suppress(DataError, OSError):
            reference = local_reference(series.image_set.frame.readers.root, path)
            info = probe_image(reference)
            rows.append({"study": study, "kind": kind, "size": prod(info.shape) * info.frames})
    return pl.DataFrame(rows, schema={"study": pl.String, "kind": pl.String, "size": pl.Int64})
