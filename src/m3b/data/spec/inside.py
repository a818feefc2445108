"""What runs in the reader process: a survey with proposed readings, and the execution of one, as a job and its answer.

The folder is untrusted: decoders may crash, hang or be lied to, which then costs one file, and that process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3b.data.spec.proposals import Proposal
    from m3b.data.spec.readers import Readers
    from m3b.data.survey.relations import Survey

ABOUT = ("task", "boxes")
"""Of what is asked, what an overview answers for several values of."""
MAX_READINGS = 3
"""Proposed readings."""
MAX_COMPARED = 40
"""Readings that a script's index is compared with."""


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job on the data folder `root`; `place` is a folder that it may write to. `{"error": ...}` says what is wrong."""
    from m3b.data.spec.opened import NothingOpens, TooFewCases
    from m3b.errors import DataError

    try:
        return DOERS[job["do"]](job, Path(job["place"]))
    except DataError as error:
        return {"error": str(error), "hopeless": isinstance(error, NothingOpens | TooFewCases)}
    except OSError as error:
        return {"error": f"{error.filename or 'The data'} cannot be read: {error.strerror or error}."}
    except MemoryError:
        return {"error": "Reading the data takes more memory than there is for it."}


def _overview(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A folder in some ten lines, and what would be proposed for each of the tasks that are named."""
    from m3b.data.spec.readers import Readers
    from m3b.data.survey.ten_lines import ten_lines

    found = _surveyed(job, folder)
    asked = [{**job, **dict(zip(ABOUT, one, strict=True))} for one in job["asked"]]
    readers = Readers(Path(job["root"]))
    return {"lines": ten_lines(found), "proposed": [_offered(one, found, readers) for one in asked]}


def _propose(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    from m3b.data.spec.readers import Readers

    return _offered(job, _surveyed(job, folder), Readers(Path(job["root"])))


def _surveyed(job: dict[str, Any], folder: Path) -> Survey:
    """The survey of the folder, made once a run."""
    from m3b.data.survey import cached_survey
    from m3b.data.survey.facts import SurveyLimits

    return cached_survey(Path(job["root"]), folder, limits=SurveyLimits(seconds=float(job["seconds"])), keep_late=True)


def _offered(job: dict[str, Any], found: Survey, readers: Readers) -> dict[str, Any]:
    """Readings for what a job asks, and why the best may not be taken as it is."""
    from m3b.data.spec.card_patients import with_patients
    from m3b.data.spec.composite_keys import with_composite_keys
    from m3b.data.spec.contested import weighed
    from m3b.data.spec.proposals import Ask, rival, sufficient
    from m3b.data.spec.proposals.lacking import lacking
    from m3b.data.spec.proposals.single import one_class

    root = Path(job["root"])
    proposals = weighed(with_composite_keys(_proposals(job, found, MAX_READINGS), root, readers), root, readers)
    proposals = with_patients(proposals, job.get("patient_key", ""), root, readers)
    readings = [
        {
            "spec": one.spec.model_dump(mode="json", exclude_defaults=True),
            "title": one.title,
            "score": round(one.score, 2),
            "evidence": list(one.evidence),
            "doubts": list(one.doubts),
            "unclear": one.unclear,
        }
        for one in proposals
    ]
    if beside := rival(proposals):
        readings[0]["doubts"] = [beside, *list(proposals[0].doubts)]
    ask = Ask(job["task"], job["request"])
    insufficient = sufficient(proposals) if proposals else lacking(found, ask)
    return {
        "readings": readings,
        "insufficient": insufficient,
        "rival": beside,
        "unusable": one_class(found, ask) if insufficient else "",
    }


def _count(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What an index would hold by each of some specs."""
    from m3b.data.spec.expected import expected
    from m3b.data.spec.given import spec_of
    from m3b.data.spec.readers import Readers

    root = Path(job["root"])
    readers = Readers(root)
    files = readers.files()
    counted = [expected(spec_of(one), root, readers, files) for one in job["specs"]]
    return {"expected": [one.text for one in counted], "training": [one.training for one in counted]}


def _execute(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    from m3b.data.spec.execute import execute, write
    from m3b.data.spec.given import spec_of

    spec = spec_of(job["spec"])
    if spec.task != job["task"]:
        return {"error": f"The reading is for {spec.task}; the task is {job['task']}."}
    work = Path(job["work"])
    made = execute(spec, Path(job["root"]), name=job["name"], work=work)
    write(made, work)
    return {**made.to_json(), "train": len(made.train), "test": len(made.test)}


def _check(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Whether what a person gave fits the folder."""
    from m3b.data.spec.checking import check
    from m3b.data.spec.given import Given, check_names

    given, root = Given.model_validate(job["given"]), Path(job["root"])
    check_names(given, root)
    if given.index is not None:
        check(given.index, root)
    return {}


def _compare(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The index that a script made, against the archive; the survey of the proposals is taken where there is one."""
    from m3b.data import kinds
    from m3b.data.spec.against import compare

    found = _surveyed(job, folder)
    records = [kinds.parse(one, job["task"]) for one in job["records"]]
    proposals = _proposals(job, found, MAX_COMPARED)
    made = compare(proposals, Path(job["root"]), job["name"], records, job["values"], Path(job["base"]))
    return made.to_json()


def _proposals(job: dict[str, Any], found: Survey, most: int) -> list[Proposal]:
    """The readings that are proposed for what a job asks, within what a person has given."""
    from m3b.data.spec.given import Given
    from m3b.data.spec.proposals import Ask, propose
    from m3b.data.spec.proposals.croissant import propose_croissant
    from m3b.data.spec.proposals.narrowed import propose_given

    ask = Ask(job["task"], job["request"], tuple(job["classes"]), job["notes"], job["boxes"])
    given = Given.model_validate(job.get("given") or {})
    root = Path(job["root"])
    if given.narrows:
        return propose_given(found, ask, given, root, most)
    own = list(propose_croissant(found, ask, root))
    others = [one for one in propose(found, ask, most) if one.spec not in [mine.spec for mine in own]]
    return sorted([*own, *others], key=lambda one: one.place)[:most]


DOERS: dict[str, Callable[[dict[str, Any], Path], dict[str, Any]]] = {
    "overview": _overview,
    "propose": _propose,
    "count": _count,
    "execute": _execute,
    "check": _check,
    "compare": _compare,
}
"""What a job may ask for."""
