"""The carve-out: hidden test patients are removed from a data set before an agent sees it.

`carve` makes two copies of a data set: `agent/` in the same layout without any data of the hidden patients (files,
table rows, JSON records), and `hidden/` with the files of the hidden patients. `hidden.json` lists the hidden cases.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from m3b.bench.datasets import DatasetSpec, PixelBox, RawCase, get_dataset
from m3b.bench.subset import PATIENT_LOOKUPS, PatientLookup, Removal, write_subset
from m3b.cleanup import undo_on_error
from m3b.errors import DataError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader
from m3b.metrics.verdict import MIN_VERDICT_PATIENTS


def link_or_copy(source: Path, target: Path, link: Callable[[Path, Path], None] = os.link) -> None:
    """Link `source` to `target`, or copy it if links are refused."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        link(source, target)
    except OSError:
        shutil.copy2(source, target)


MIN_CLASS_PATIENTS = 6
"""Hidden patients of a class, if there are three times as many: the interval of a perfect AUROC begins at 0.51 with five patients of
the rarest class, and at 0.61 with six."""
AGENT_FOLDER, HIDDEN_FOLDER, CARVE_OUT_FILE = "agent", "hidden", "hidden.json"


@dataclass(frozen=True)
class CarveOut:
    """A carve-out on disk.

    Args:
        folder: contains `agent/`, `hidden/` and `hidden.json`.
        cases: the hidden cases, as read by the trusted reader of the layout; paths are relative to `hidden/`.
        kept: number of cases in the agent's copy.
        withheld: files that were left out of the agent's copy because they may contain anything, such as archives.
        stand_in: whether the data is a generated stand-in, for which the acceptable range of the stand-in applies.
    """

    folder: Path
    dataset: str
    cases: tuple[RawCase, ...]
    kept: int
    withheld: tuple[str, ...]
    stand_in: bool
    seed: int

    @property
    def agent_folder(self) -> Path:
        return self.folder / AGENT_FOLDER

    @property
    def hidden_folder(self) -> Path:
        return self.folder / HIDDEN_FOLDER

    def save(self) -> None:
        """Write `hidden.json`. This is the last step, so that its presence means that the carve-out is complete."""
        from m3b.writing import write_text_atomically

        raw = {**asdict(self), "folder": "."}
        write_text_atomically(self.folder / CARVE_OUT_FILE, json.dumps(raw, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, folder: Path) -> CarveOut:
        """Load an existing carve-out.

        Raises:
            DataError: there is none, or its `hidden.json` is broken.
        """
        file = folder / CARVE_OUT_FILE
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            cases = tuple(_case_from_json(raw_case) for raw_case in raw.pop("cases"))
            return cls(**{**raw, "folder": folder, "cases": cases, "withheld": tuple(raw["withheld"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{file} is not a list of hidden cases: {error}. Delete its folder and try again."
            ) from error


def _case_from_json(raw: dict[str, Any]) -> RawCase:
    raw = {**raw, "images": tuple(raw["images"]), "labels": tuple(raw["labels"])}
    raw["boxes"] = tuple(PixelBox(**box) for box in raw["boxes"])
    raw["rescale"] = tuple(raw["rescale"]) if raw["rescale"] else None
    return RawCase(**raw)


TEXT_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".xml")


def verify_agent_copy(spec: DatasetSpec, carve_out: CarveOut, kept_cases: list[RawCase]) -> None:
    """Read the agent's copy with the trusted reader of the layout, and search it for names of hidden files.

    Raises:
        DataError: a hidden case is still there, another case is missing, or the name of a hidden file occurs.
    """
    case_names = {case.name for case in spec.read(carve_out.agent_folder).cases}
    remaining_hidden = sorted(case_names & {case.name for case in carve_out.cases})
    lost_names = sorted({case.name for case in kept_cases} - case_names)
    if remaining_hidden or lost_names:
        raise DataError(
            f"The agent's copy of {spec.name} is wrong: it still has hidden cases {remaining_hidden[:3]}, and it lacks "
            f"{lost_names[:3]}."
        )
    leftover_places = find_leftovers(carve_out)
    if leftover_places:
        raise DataError(f"The agent's copy of {spec.name} still names hidden files: {', '.join(leftover_places[:5])}.")


def find_leftovers(carve_out: CarveOut) -> list[str]:
    """Return the places in the agent's copy where the name of a hidden file occurs, as a file or in a text file.

    Slices of a volume have the same names for all patients, so the name of their folder is searched instead.
    """
    names: set[str] = set()
    for case in carve_out.cases:
        names |= {str(Path(case.images[0]).parent)} if _has_numbered_slices(case) else {*case.images, case.mask} - {""}
    file_names = {Path(name).name.encode() for name in names}
    places = []
    for folder, _, files in os.walk(carve_out.agent_folder):
        for name in files:
            file = Path(folder, name)
            path = file.relative_to(carve_out.agent_folder).as_posix()
            if path in names or str(Path(path).parent) in names:
                places.append(path)
            elif name.lower().endswith(TEXT_SUFFIXES):
                words = set(re.split(rb'[",\n\r\t/\\]+', file.read_bytes()))
                places += [f"{word.decode()} in {path}" for word in sorted(words & file_names) if len(word) > 6]
    return places


def _has_numbered_slices(case: RawCase) -> bool:
    """Return whether the images are numbered slices of a volume, with the same names for all patients."""
    return len(case.images) > 1 and all(Path(path).stem.isdigit() for path in case.images)


CARVING_TIMEOUT_S = 3600.0
MIN_PATIENTS = 2


@dataclass(frozen=True)
class CarveRequest:
    """The data set to carve: its name, its folder, and the folder for the two copies. Arguments as of `carve`."""

    dataset: str
    source: Path
    part: Path
    share: float
    seed: int


@dataclass(frozen=True)
class CarveResult:
    """The hidden and the other cases, and the files of the source that belong into the agent's copy unchanged.

    The tables of the agent's copy are already written.
    """

    cases: tuple[RawCase, ...]
    kept_cases: tuple[RawCase, ...]
    files: tuple[str, ...]
    withheld: tuple[str, ...]


@dataclass(frozen=True)
class VerifyRequest:
    """The carve-out to verify, and the cases that the agent's copy must contain; as `verify_agent_copy`."""

    carve_out: CarveOut
    kept_cases: tuple[RawCase, ...]


CARVE_JOB = WorkerJob("m3b.bench.carve_out:run_carving", CarveRequest, CarveResult, CARVING_TIMEOUT_S)
VERIFY_JOB: WorkerJob[VerifyRequest, bool] = WorkerJob(
    "m3b.bench.carve_out:run_verification", VerifyRequest, bool, CARVING_TIMEOUT_S
)


def run_carving(request: CarveRequest) -> CarveResult:
    """Choose the hidden patients, and write the tables of the agent's copy. Runs in the reader; raises DataError."""
    spec = get_dataset(request.dataset)
    cases = spec.read(request.source).cases
    patients = choose_patients(cases, request.share, request.seed)
    hidden_cases = tuple(case for case in cases if case.patient in patients)
    kept_cases = tuple(case for case in cases if case.patient not in patients)
    removal = Removal.from_cases(hidden_cases, patients, PATIENT_LOOKUPS.get(spec.name, PatientLookup()))
    case_files = {path for case in cases for path in (*case.images, case.mask)}
    files, withheld = write_subset(request.source, request.part / AGENT_FOLDER, removal, keep=case_files)
    return CarveResult(hidden_cases, kept_cases, tuple(files), tuple(withheld))


def run_verification(request: VerifyRequest) -> bool:
    """Verify the agent's copy; return True. Runs in the reader process. Raises DataError if hidden data is left."""
    verify_agent_copy(get_dataset(request.carve_out.dataset), request.carve_out, list(request.kept_cases))
    return True


def choose_patients(cases: Iterable[RawCase], share: float, seed: int) -> set[str]:
    """Return the hidden patients: about `share` of the patients of every class and of every part of a given split.

    At least two patients are hidden, and at least `MIN_VERDICT_PATIENTS` if there are three times as many; of a class up to
    `MIN_CLASS_PATIENTS`, if these are no more than a third.

    Raises:
        DataError: there would be fewer than two hidden or two other patients.
    """
    strata: dict[tuple[str, str], list[str]] = defaultdict(list)
    seen_patients: set[str] = set()
    for case in cases:
        if case.patient not in seen_patients:
            seen_patients.add(case.patient)
            only_label = case.labels[0] if len(case.labels) == 1 else ""
            strata[case.split, only_label].append(case.patient)
    generator = random.Random(seed)
    hidden_patients: set[str] = set()
    remaining: list[str] = []
    for (_, label), patients in sorted(strata.items()):
        shuffled = sorted(patients)
        generator.shuffle(shuffled)
        least = min(len(shuffled) // 3, MIN_CLASS_PATIENTS if label else 1)
        count = min(len(shuffled) - 1, max(least, round(share * len(shuffled))))
        hidden_patients.update(shuffled[: max(count, 0)])
        remaining += shuffled[max(count, 0) :]
    generator.shuffle(remaining)
    min_hidden = MIN_VERDICT_PATIENTS if len(seen_patients) >= 3 * MIN_VERDICT_PATIENTS else MIN_PATIENTS
    while len(hidden_patients) < min_hidden and len(remaining) > MIN_PATIENTS:
        hidden_patients.add(remaining.pop())
    if len(hidden_patients) < MIN_PATIENTS or len(remaining) < MIN_PATIENTS:
        raise DataError(
            f"{len(seen_patients)} patients are too few to hide some of them; at least {2 * MIN_PATIENTS} are needed."
        )
    return hidden_patients


HIDDEN_TEST_SHARE = 0.2


def carve(
    spec: DatasetSpec,
    source: Path,
    folder: Path,
    *,
    share: float = HIDDEN_TEST_SHARE,
    seed: int = 0,
    stand_in: bool = False,
) -> CarveOut:
    """Make the two copies of `source` below `folder`, and verify the agent's copy.

    The confined reader process opens tables and headers; this process only links or copies whole files. Files are
    hard-linked if the file system allows it, otherwise copied; tables are rewritten without the rows of hidden
    patients.

    Raises:
        DataError: the data set cannot be read, or data of a hidden patient would remain.
    """
    if (folder / CARVE_OUT_FILE).is_file():
        return CarveOut.load(folder)
    source, folder = source.resolve(), folder.resolve()
    temporary_folder = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary_folder, ignore_errors=True)
    temporary_folder.mkdir(parents=True)
    with undo_on_error(shutil.rmtree, temporary_folder, True):
        with open_reader([source], writable=[temporary_folder]) as reader:
            result = reader.run_job(CARVE_JOB, CarveRequest(spec.name, source, temporary_folder, share, seed))
        for path in result.files:
            _copy_into(source, path, temporary_folder / AGENT_FOLDER)
        for path in sorted({path for case in result.cases for path in (*case.images, case.mask) if path}):
            _copy_into(source, path, temporary_folder / HIDDEN_FOLDER)
        carve_out = CarveOut(
            temporary_folder, spec.name, result.cases, len(result.kept_cases), result.withheld, stand_in, seed
        )
        with open_reader([temporary_folder]) as reader:
            reader.run_job(VERIFY_JOB, VerifyRequest(carve_out, result.kept_cases))
        carve_out.save()
        temporary_folder.rename(folder)
    return replace(carve_out, folder=folder)


def _copy_into(source: Path, path: str, target: Path) -> None:
    """Link or copy a file of the source into `target`. Raises DataError if its path leads out of the source.

    A correct reader process never returns such a path; one that was taken over by a malicious file might.
    """
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise DataError(
            f"{path!r} is not a path inside {source}; a file may have manipulated the reader. Check the data."
        )
    link_or_copy(source / path, target / path)
