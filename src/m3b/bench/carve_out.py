"""The carve-out: hidden test cases are taken away, by patient, before an agent sees the data.

`carve` turns a copy of a data set into two: `agent/`, in the same layout without anything of the hidden patients (files,
table rows, JSON records), and `hidden/` with their files alone and a manifest in m3b's own index format.
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
from m3b.metrics.verdict import MIN_VERDICT_PATIENTS
from m3b.reader import WorkerJob
from m3b.reader.inprocess import open_reader


def link_or_copy(source: Path, target: Path, link: Callable[[Path, Path], None] = os.link) -> None:
    """`source` at `target`: linked, or copied where that is refused."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        link(source, target)
    except OSError:
        shutil.copy2(source, target)


AGENT_FOLDER, HIDDEN_FOLDER, CARVE_OUT_FILE = "agent", "hidden", "hidden.json"


@dataclass(frozen=True)
class CarveOut:
    """A carve-out on disk.

    Args:
        folder: holds `agent/`, `hidden/` and the manifest.
        cases: the hidden ones, as the trusted reader reads them; paths count from `hidden/`.
        kept: how many cases the agent's copy holds.
        withheld: files that were left out because they could hold anything, archives for instance.
        stand_in: whether the data was drawn by a program, so that the stand-in's range holds.
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
        """Write the manifest; the last step, so that its presence says that the carve-out is whole."""
        from m3b.writing import write_text_atomically

        raw = {**asdict(self), "folder": "."}
        write_text_atomically(self.folder / CARVE_OUT_FILE, json.dumps(raw, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, folder: Path) -> CarveOut:
        """A carve-out that was made before.

        Raises:
            DataError: there is none, or its manifest is broken.
        """
        file = folder / CARVE_OUT_FILE
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            cases = tuple(_case_from_json(raw_case) for raw_case in raw.pop("cases"))
            return cls(**{**raw, "folder": folder, "cases": cases, "withheld": tuple(raw["withheld"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is no manifest of hidden cases: {error}. Carve the data out again.") from error


def _case_from_json(raw: dict[str, Any]) -> RawCase:
    raw = {**raw, "images": tuple(raw["images"]), "labels": tuple(raw["labels"])}
    raw["boxes"] = tuple(PixelBox(**box) for box in raw["boxes"])
    raw["rescale"] = tuple(raw["rescale"]) if raw["rescale"] else None
    return RawCase(**raw)


TEXT_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".xml")


def verify_agent_copy(spec: DatasetSpec, carve_out: CarveOut, kept_cases: list[RawCase]) -> None:
    """Read the agent's copy with the trusted reader and look for any name of a hidden file.

    Raises:
        DataError: a hidden case is still there, another one has gone, or a hidden name is left somewhere.
    """
    case_names = {case.name for case in spec.read(carve_out.agent_folder).cases}
    remaining_hidden = sorted(case_names & {case.name for case in carve_out.cases})
    lost_names = sorted({case.name for case in kept_cases} - case_names)
    if remaining_hidden or lost_names:
        raise DataError(
            f"The agent's copy of {spec.name} is wrong: hidden cases left {remaining_hidden[:3]}, others lost {lost_names[:3]}."
        )
    leftover_places = find_leftovers(carve_out)
    if leftover_places:
        raise DataError(f"The agent's copy of {spec.name} still names hidden files: {', '.join(leftover_places[:5])}.")


def find_leftovers(carve_out: CarveOut) -> list[str]:
    """Places in the agent's copy where the name of a hidden file occurs: as a file, or inside a text.

    The slices of a volume are called alike for everybody; their folder counts instead.
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
    """Whether the images are numbered slices of a volume, called alike for everybody."""
    return len(case.images) > 1 and all(Path(path).stem.isdigit() for path in case.images)


CARVING_TIMEOUT_S = 3600.0
MIN_PATIENTS = 2


@dataclass(frozen=True)
class CarveRequest:
    """A set by name, the folder that it lies in, and where the two copies go; as `m3b.bench.carve_out.carve`."""

    dataset: str
    source: Path
    part: Path
    share: float
    seed: int


@dataclass(frozen=True)
class CarveResult:
    """The hidden cases, and which files of the source go into the agent's copy as they are.

    The tables of the agent's copy are written already.
    """

    cases: tuple[RawCase, ...]
    kept_cases: tuple[RawCase, ...]
    files: tuple[str, ...]
    withheld: tuple[str, ...]


@dataclass(frozen=True)
class VerifyRequest:
    """The two copies, and the cases that the agent's must still hold; as `verify_agent_copy`."""

    carve_out: CarveOut
    kept_cases: tuple[RawCase, ...]


CARVE_JOB = WorkerJob("m3b.bench.carve_out:run_carving", CarveRequest, CarveResult, CARVING_TIMEOUT_S)
VERIFY_JOB: WorkerJob[VerifyRequest, bool] = WorkerJob(
    "m3b.bench.carve_out:run_verification", VerifyRequest, bool, CARVING_TIMEOUT_S
)


def run_carving(request: CarveRequest) -> CarveResult:
    """Inside the reader: choose the patients, and write the tables of the agent's copy. Raises DataError."""
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
    """Inside the reader: True. Raises DataError where something of a hidden case is left."""
    verify_agent_copy(get_dataset(request.carve_out.dataset), request.carve_out, list(request.kept_cases))
    return True


def choose_patients(cases: Iterable[RawCase], share: float, seed: int) -> set[str]:
    """About `share` of the patients of every class and of every part of a given split; at least two in all, and of three
    times as many patients as a verdict needs, as many as it needs.

    Raises:
        DataError: fewer than two patients would be left on one side.
    """
    strata: dict[tuple[str, str], list[str]] = defaultdict(list)
    seen_patients: set[str] = set()
    for case in cases:
        if case.patient not in seen_patients:
            seen_patients.add(case.patient)
            label = case.labels[0] if len(case.labels) == 1 else ""
            strata[case.split, label].append(case.patient)
    generator = random.Random(seed)
    hidden_patients: set[str] = set()
    remaining: list[str] = []
    for _, patients in sorted(strata.items()):
        shuffled = sorted(patients)
        generator.shuffle(shuffled)
        count = min(len(shuffled) - 1, max(1 if len(shuffled) >= 3 else 0, round(share * len(shuffled))))
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
    """Make the two copies of `source` below `folder`, and check the agent's with the trusted reader of its layout.

    m3b's confined reader process opens the tables and headers; this one links or copies whole files.

    Files are hard-linked where the file system allows it, else copied; tables are written anew without the rows.

    Raises:
        DataError: the set cannot be read, or something of a hidden patient would remain.
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
    """A file of the source below a copy of it. Raises DataError where its name leads out, which no reader gives."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise DataError(f"{path!r} does not lie inside {source}; m3b's reader was led astray. Look at the data.")
    link_or_copy(source / path, target / path)
