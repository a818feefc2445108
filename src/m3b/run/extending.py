"""A finished run's data set with cases that came later: a manifest that trains on them and keeps the locked test part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.checks.index_lock import RAW_FOLDER
from m3b.data.index import Index, read_index
from m3b.data.records import Record, paths_of
from m3b.errors import DataError, UsageError
from m3b.isolation.untrusted import TemporaryFolder
from m3b.run.accepted_manifest import load_accepted_manifest
from m3b.run.folder import RunFolder
from m3b.run.manifests import describe_accounting

if TYPE_CHECKING:
    from m3b.dataset.manifest.model import Manifest


@dataclass(frozen=True)
class ExtendedData:
    """A data set with cases that came later.

    Args:
        manifest: of the folder; its `split.test_images` are the images of the run's test part.
        training, testing: cases of each part.
        added: training cases that the run did not have.
        lost: training cases that the run had.
        changed: test cases whose targets or patient are others than in the run.
        notes: sentences on what is left out, such as cases of patients of the test part.
    """

    manifest: Manifest
    training: int
    testing: int
    added: int
    lost: int
    changed: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values, without the manifest."""
        return {
            "training": self.training,
            "testing": self.testing,
            "added": self.added,
            "lost": self.lost,
            "changed": list(self.changed),
            "notes": list(self.notes),
        }

    def describe(self) -> list[str]:
        """Return the counts in sentences."""
        lost = f", {self.lost:,} of the run's are gone" if self.lost else ""
        lines = [
            f"training: {self.training:,} cases, {self.added:,} of them new{lost}",
            f"testing: the {self.testing:,} cases of the run",
        ]
        if self.changed:
            lines.append(
                f"{len(self.changed):,} test cases have other targets or patients than in the run, e.g. {self.changed[0]}: "
                "figures of both runs cannot be compared on these"
            )
        return [*lines, *self.notes]


def extend_data(run: str | Path, folder: str | Path) -> ExtendedData:
    """Return how a folder that has grown is read for a new run with the same test part as a finished run.

    The manifest is that of the run's accepted index. Every case that is not of the run's test part trains, except those that
    share a patient with it, copies of its pictures, and later cases of the folder's own test part, which are left out.

    Args:
        run: folder or id of a run, or `last`.
        folder: the run's data folder with what came later; it must hold the test images at the same paths.

    Raises:
        UsageError: there is no such run, it has no accepted index, or a script made the index.
        DataError: test images are missing, no case came later, or the folder does not fit the manifest.
    """
    run_folder, root = RunFolder.open(run), Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise UsageError(
            f"{folder} is no folder that can be read. Name the data folder with the cases that came later."
        )
    manifest, _ = load_accepted_manifest(run_folder)
    locked_index = read_index(run_folder.locked, manifest.task)
    tests = {_strip_folder(paths_of(record.image)[0]): record for record in locked_index.test}
    name = _find_data_name(locked_index)
    manifest = manifest.model_copy(
        update={"split": manifest.split.model_copy(update={"test_images": tuple(sorted(tests))})}
    )
    with TemporaryFolder("extend") as scratch:
        answer = _execute(manifest, root, name, scratch)
        index = read_index(scratch, manifest.task)
    before, after = (
        {_strip_folder(paths_of(record.image)[0]) for record in part} for part in (locked_index.train, index.train)
    )
    found = {_strip_folder(paths_of(record.image)[0]): record for record in index.test}
    if missing := sorted(set(tests) - set(found)):
        raise DataError(
            f"{len(missing):,} of the {len(tests):,} test cases of the run cannot be used any more, e.g. {missing[0]}. Restore "
            "their images and targets; a smaller test part would be another one."
        )
    if not after - before:
        raise DataError(
            f"No case came later: the {len(after):,} training cases are those of the run. {' '.join(describe_accounting(answer))} "
            "New images need names like the old ones, and targets."
        )
    return ExtendedData(
        manifest,
        len(index.train),
        len(index.test),
        added=len(after - before),
        lost=len(before - after),
        changed=tuple(path for path in sorted(tests) if _has_changed(tests[path], found[path])),
        notes=tuple(describe_accounting(answer)),
    )


def _execute(manifest: Manifest, root: Path, name: str, work: Path) -> dict[str, Any]:
    """Write the index of a manifest to `work`, in the confined reader."""
    from m3b.isolation.reader.inprocess import open_reader
    from m3b.tools.dataset_jobs import MANIFEST_JOB

    job = {
        "do": "execute",
        "manifest": manifest.model_dump(mode="json", exclude_defaults=True),
        "task": manifest.task,
        "name": name,
        "root": str(root),
        "work": str(work),
        "place": str(work),
    }
    (work / "Datapath").mkdir()
    with open_reader([root], [work]) as reader:
        answer = reader.run_job(MANIFEST_JOB, job)
    if "error" in answer:
        raise DataError(str(answer["error"]))
    return answer


def _find_data_name(index: Index) -> str:
    path = paths_of(index.records[0].image)[0]
    return path.split("/")[1] if path.startswith(f"{RAW_FOLDER}/") else "set"


def _strip_folder(path: str) -> str:
    """Return a path below the data folder: `a/1.png` of `data/set/a/1.png`."""
    return path.split("/", 2)[2] if path.startswith(f"{RAW_FOLDER}/") else path


def _has_changed(before: Record, after: Record) -> bool:
    """Whether targets or patient differ; of masks that m3b made, only whether there is one."""
    if any(
        getattr(before, key) != getattr(after, key) for key in ("labels", "boxes", "report", "extra", "patient_known")
    ):
        return True
    if before.patient_known and before.patient != after.patient:
        return True
    masks = [record.mask for record in (before, after)]
    is_raw = all(isinstance(mask, str) and mask.startswith(f"{RAW_FOLDER}/") for mask in masks)
    return masks[0] != masks[1] if is_raw else (masks[0] is None) != (masks[1] is None)
