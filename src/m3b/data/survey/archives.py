"""What lies in zip and tar files, by the members' names; nothing is unpacked."""

from __future__ import annotations

import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from m3b.data.survey.array_files import MAX_MEMBERS
from m3b.data.survey.array_members import Format
from m3b.data.survey.containers import MAX_KEYS, form_of
from m3b.data.survey.facts import Container, Member


def archive_of(group: str, files: int, paths: list[Path]) -> tuple[Container | None, int]:
    """The members of zip and tar files by their names; nothing is unpacked."""
    forms = Counter[str]()
    present = Counter[str]()
    formats: list[Format] = []
    failed = unpacked = packed = 0
    for path in paths:
        try:
            form, names, size = _listed(path)
        except (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError):
            failed += 1
            continue
        formats.append(form)
        unpacked, packed = unpacked + size, packed + path.stat().st_size
        counts = Counter(form_of(name) for name in names)
        forms.update(counts)
        present.update(counts.keys())
    if not formats:
        return None, failed
    members = [Member(key=form, files=present[form], keys=count) for form, count in forms.most_common(MAX_KEYS)]
    note = "bomb" if unpacked > 200 * max(packed, 1) and unpacked > 2**30 else ""
    return Container(
        group=group, format=formats[0], files=files, looked=len(formats), note=note,
        members=tuple(sorted(members, key=lambda one: one.key)),
    ), failed  # fmt: skip


def _listed(path: Path) -> tuple[Format, list[str], int]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()[:MAX_MEMBERS]
            return "zip", [one.filename for one in infos if not one.is_dir()], sum(one.file_size for one in infos)
    with tarfile.open(path, "r|*") as tape:
        found = list(islice(_tape(tape), 10_000))
        return "tar", [name for name, _ in found], sum(size for _, size in found)


def _tape(tape: tarfile.TarFile) -> Iterator[tuple[str, int]]:
    for member in tape:
        if member.isfile():
            yield member.name, member.size
        if member.offset > 2**30:  # a stream has to be unpacked to be listed
            return
