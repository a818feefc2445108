"""The groups of a tree with their parts and contents: what all later steps of a survey work on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from m3b.data.survey.archives import archive_of
from m3b.data.survey.array_texts import Values, single_values
from m3b.data.survey.cases import ANY, Merged, Signature
from m3b.data.survey.containers import container_of
from m3b.data.survey.dicom import Header, Headers, read_header, series_of
from m3b.data.survey.facts import Container, Content, FileGroup, Member, Series, Value
from m3b.data.survey.grouping import merge
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.modalities import modalities_apart
from m3b.data.survey.name_templates import NamedFiles, fine_groups
from m3b.data.survey.numbered_channels import channels_apart
from m3b.data.survey.parts import FEW_PATHS, LARGE, MAX_PATHS, parts_of, values_of
from m3b.data.survey.samples import MASKS, FileSample, content, look_at
from m3b.data.survey.stacks import stack_of
from m3b.data.survey.templates import Template, template_of
from m3b.data.survey.videos import look_at_video
from m3b.data.survey.walk import STAT_ALL, STAT_EACH, Tree

MOST_TEXTS = 200
"""Different texts that are listed."""


@dataclass
class Gathered:
    """A group with what the later steps need of it: all its paths, its template, and the headers that were read."""

    fact: FileGroup
    merged: Merged
    most: int
    """Paths that are looked at for parts."""
    template: Template | None
    headers: Headers | None = None
    container: Container | None = None
    texts: dict[str, Values] = field(default_factory=dict)
    """Of files of arrays: key of a single number or text -> what each file says under it."""

    @property
    def id(self) -> str:
        """Of the group."""
        return self.fact.id

    @cached_property
    def values(self) -> dict[str, list[str | None]]:
        """For each slot its value in each of `looked`."""
        return values_of(self.template, self.looked) if self.template else {}

    @cached_property
    def paths(self) -> list[str]:
        """All its paths, in order."""
        return self.merged.paths()

    @cached_property
    def looked(self) -> list[str]:
        """The paths, or of very many a part spread evenly."""
        return self.merged.spread(self.most) if self.merged.count > self.most else self.paths

    @cached_property
    def units(self) -> list[str]:
        """What a case's image is: the files, or of DICOM series in folders of their own the folders."""
        return sorted({path.rpartition("/")[0] for path in self.paths}) if self.by_folder else self.paths

    @cached_property
    def by_folder(self) -> bool:
        """Whether its files are slices of DICOM series of which each has a folder of its own."""
        folders: dict[str, set[str]] = {}
        for header in self.headers.found if self.headers else ():
            series = header.tags.get("SeriesInstanceUID", "")
            folders.setdefault(header.path.rpartition("/")[0], set()).add(series)
        return bool(folders) and all(len(one) == 1 for one in folders.values()) and 2 * len(folders) <= len(self.paths)

    @property
    def is_masks(self) -> bool:
        """Whether samples say that it holds masks."""
        return self.fact.content is not None and self.fact.content.values in MASKS

    @property
    def is_images(self) -> bool:
        """Whether it holds images that are no masks."""
        found = self.fact.content
        if self.fact.kind == "dicom" and found is None:
            return False  # structure sets, reports: no pixels
        return self.fact.kind in IMAGES and not self.is_masks and (found is None or found.looked > found.failed)


@dataclass
class Gathering:
    """All groups of a tree."""

    tree: Tree
    groups: list[Gathered] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    looks: dict[tuple[str, str], FileSample] = field(default_factory=dict)
    headers: dict[str, Header | None] = field(default_factory=dict)

    def look(self, path: str, files: NamedFiles | Merged) -> FileSample:
        """The look of one file, opened once."""
        key = (path, files.kind)
        if key not in self.looks:
            full = self.tree.root / path
            video = files.kind == "video"
            self.looks[key] = look_at_video(full) if video else look_at(full, files.kind, self.tree.limits)
        return self.looks[key]

    def header(self, path: str) -> Header | None:
        """The header of one DICOM file, read once."""
        if path not in self.headers:
            self.headers[path] = read_header(self.tree.root, path)
        return self.headers[path]


def gather(tree: Tree) -> Gathering:
    """Group the files of a tree and look at samples of each group."""
    found = Gathering(tree)
    fine = [one for files in fine_groups(tree) for apart in channels_apart(files) for one in _modalities(found, apart)]
    if len(fine) > tree.limits.groups:
        fine.sort(key=lambda one: (-one.count, one.levels, one.name, one.suffix))
        rest = fine[tree.limits.groups :]
        tree.notes.add("ungrouped", next(rest[0].paths()), sum(one.count for one in rest))
        fine = fine[: tree.limits.groups]
    merged = merge(fine, lambda files: _signature(found, files))
    dicoms = sum(1 for one in merged if one.kind == "dicom")
    for number, one in enumerate(merged, 1):
        found.groups.append(_gathered(found, one, f"g{number}", max(dicoms, 1)))
    return found


def _modalities(found: Gathering, files: NamedFiles) -> list[NamedFiles]:
    """A fine group of DICOM files as one a modality, where its names do not tell them apart."""
    if files.kind != "dicom" or found.tree.late:
        return [files]
    return modalities_apart(files, found.header, found.tree.limits.headers - len(found.headers))


def _signature(found: Gathering, files: NamedFiles) -> Signature:
    """What a fine group holds, by two samples: kind of content, and dimensions or modality."""
    if files.kind not in IMAGES:
        return ("text",)
    if found.tree.late:
        return ANY
    chosen = files.spread(2)
    if files.kind == "dicom":
        shown = [one for path in chosen if (one := found.header(path))]
        telling = sorted({one.modality for one in shown})
        return ("dicom", *telling) if telling else ANY
    if files.kind in ("array", "hdf5", "mat"):
        container, _ = container_of("", 0, [found.tree.root / path for path in chosen], files.suffix, found.tree.limits)
        if container is None:
            return ANY
        stacks = any(one.rows for one in container.members)
        return ("members", *(one.key for one in container.members[:8]), "stack" if stacks else "")
    if files.kind == "video":
        return ("kind", "video")
    looks = [found.look(path, files) for path in chosen]
    good = [one for one in looks if not one.error]
    if not good:
        return ANY
    if all(one.frames > 1 for one in good) and files.suffix in (".gif", ".webp"):
        return ("kind", "video")
    facts = content(looks)
    marked = facts.values in MASKS or facts.values == "constant"
    return ("mask" if marked else facts.values, facts.dims)


def _gathered(found: Gathering, merged: Merged, id: str, dicoms: int) -> Gathered:
    depths = {len(one.levels) for one in merged.files}
    most = MAX_PATHS if found.tree.files <= LARGE else FEW_PATHS
    template = template_of(merged.files, most) if len(depths) == 1 and merged.kind != "document" else None
    made = Gathered(_bare(found, merged, id, template), merged, most, template)
    fact = made.fact
    if template:
        parts = parts_of(template, made.looked, made.values)
        fact = fact.model_copy(update={"parts": parts, "looked": len(made.looked)})
    if merged.kind in IMAGES and not found.tree.late:
        fact = fact.model_copy(update={"content": _content(found, made, dicoms)})
    elif merged.kind == "archive":
        made.container, failed = archive_of(id, merged.count, [found.tree.root / path for path in merged.spread(4)])
        if failed:
            found.tree.notes.add("damaged", merged.first, failed)
    if made.container is None and not found.tree.late:
        made.container = stack_of(id, merged.kind, merged.count, found.tree.root / merged.first, fact.content)
    made.fact = fact
    return made


def _bare(found: Gathering, merged: Merged, id: str, template: Template | None) -> FileGroup:
    tree = found.tree
    some = merged.spread(STAT_ALL) if tree.exact else merged.spread(STAT_EACH)
    sizes = [tree.size(path) for path in some]
    return FileGroup(
        id=id,
        template=template.shown() if template else f"{merged.count} documents and other files",
        pattern=template.pattern() if template else "",
        kind=merged.kind,
        suffixes=tuple(sorted({one.suffix for one in merged.files if one.suffix})),
        count=merged.count,
        bytes=sum(sizes) if len(some) == merged.count else int(sum(sizes) / max(len(some), 1) * merged.count),
        exact=len(some) == merged.count,
        examples=tuple(dict.fromkeys([merged.first, *merged.spread(2)])),
        stray=merged.kind in ("document", "other"),
        modality=tuple(sorted({name for one in merged.files for name in one.modality})),
    )


def _told(found: Gathering, made: Gathered, suffix: str) -> None:
    """Read what each file says of its case: the numbers and texts that it holds one of, such as a class or a patient."""
    members = made.container.members if made.container else ()
    keys = [one.key for one in members if one.role == "scalar" and one.keys == 1]
    if made.container is None or made.merged.count < 2 or not keys:
        return
    tree, paths = found.tree, made.merged.spread(found.tree.limits.headers)
    made.texts = single_values(tree.root, paths, suffix, keys, lambda: tree.late)
    told = tuple(_with_texts(one, made.texts[one.key]) if one.key in made.texts else one for one in members)
    made.container = made.container.model_copy(update={"members": told})


def _with_texts(member: Member, texts: Values) -> Member:
    """A member with the vocabulary of its files."""
    counts = Counter(texts.values())
    values = tuple(Value(text=text, count=counts[text]) for text in sorted(counts)) if len(counts) <= MOST_TEXTS else ()
    return member.model_copy(update={"values": values, "read": len(texts), "distinct": len(counts)})


def _content(found: Gathering, made: Gathered, dicoms: int) -> Content | None:
    """Samples of a group; of DICOM files the headers too, of containers the members."""
    tree, merged = found.tree, made.merged
    chosen = merged.spread(tree.limits.samples)
    if merged.kind == "dicom":
        most = max(tree.limits.headers // dicoms, 8)
        made.headers = Headers(made.id, merged.count)
        for path in merged.spread(most):
            header = None if tree.late else found.header(path)
            if header is None:
                made.headers.failed += 1
            else:
                made.headers.found.append(header)
        found.series += series_of(made.headers)
        if not any("Rows" in one.tags for one in made.headers.found):
            return None
    if merged.kind in ("array", "hdf5", "mat"):
        suffix = merged.files[0].suffix
        full = [tree.root / path for path in chosen]
        made.container, failed = container_of(made.id, merged.count, full, suffix, tree.limits)
        if failed:
            tree.notes.add("damaged", chosen[0], failed)
        _told(found, made, suffix)
        only = made.container.members if made.container else ()
        images = [one for one in only if one.content and one.role in ("image", "mask")]
        return images[0].content if len(images) == 1 else None
    looks = []
    spent = 0
    for path in chosen:
        if tree.late or spent > tree.limits.pixels:
            break
        looks.append(found.look(path, merged))
        if looks[-1].error:
            tree.notes.add(looks[-1].error, path)
        size = looks[-1].channels
        for side in looks[-1].shape:
            size *= side
        spent += size
    return content(looks) if looks else None
