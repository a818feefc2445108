"""A look at a data folder before a run: the readings that are proposed for a request, and what the best one gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.cards import Card, card_for_folder
from m3b.errors import DataError, WrongUse
from m3b.reader import Reader
from m3b.run.given import below, outside, try_out
from m3b.run.origin import as_reading
from m3b.run.proposal_choice import choose_proposal, proposal_job, task_for_card
from m3b.run.readings import account
from m3b.sandbox import Mounts, choose
from m3b.untrusted import TemporaryFolder

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.models.opened import Example, Examples


@dataclass(frozen=True)
class FolderLook:
    """What was found.

    Args:
        readings: best first: `spec`, `title`, `score`, `evidence`, `doubts`, `unclear`.
        insufficient: why the best may not be taken without asking; empty where it may.
        counted: of the best reading, executed: cases a part, the accounting, whether patients are known.
        request: the user's words.
        examples: cases of the best reading as pictures; they show patients.
        legend: each class and the colour in which its masks or boxes are drawn.
    """

    task: str
    readings: tuple[dict[str, Any], ...]
    insufficient: str
    counted: Mapping[str, Any] = field(default_factory=dict)
    request: str = ""
    examples: tuple[Example, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        """The reading that a run would take; None where none may be taken without asking."""
        return self.readings[0] if self.readings and not self.insufficient else None

    @property
    def questions(self) -> tuple[str, ...]:
        """What a person should decide before a run."""
        return (self.insufficient,) if self.insufficient else ()

    def page(self) -> str:
        """All of it as one HTML page with pictures, which is patient data."""
        from m3b.models.opened import Examples
        from m3b.report.plan_page import plan_page

        return plan_page(self.request, self.to_json(), Examples(self.examples, self.legend))

    def lines(self) -> list[str]:
        """For people, some ten lines."""
        if not self.readings:
            return [self.insufficient]
        best, *others = self.readings
        told = [
            f"{self.task}: {best['title']} (score {best['score']:.2f})",
            *(f"  + {one}" for one in best["evidence"]),
        ]
        told += [f"  ? {one}" for one in best["doubts"]]
        if self.counted:
            patients = "patients known" if self.counted["patients"] == "known" else "patients unknown"
            told.append(
                f"  = {self.counted['train']:,} cases for training, {self.counted['test']:,} for testing; {patients}"
            )
            told += [f"    {line}" for line in account(self.counted)]
        told += [f"not taken: {one['title']} (score {one['score']:.2f})" for one in others]
        return [*told, *([self.insufficient] if self.insufficient else [])]

    def spec_text(self) -> str:
        """The best reading as JSON to edit."""
        return json.dumps(self.readings[0]["spec"], indent=1, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"task": self.task, "readings": list(self.readings), "insufficient": self.insufficient,
                "counted": dict(self.counted)}  # fmt: skip


def look(
    folder: Path,
    request: str,
    place: Path,
    *,
    task: str = "",
    given: Given | None = None,
    draw: bool = False,
    card: Card | None = None,
) -> FolderLook:
    """Survey a folder in the sandbox, and execute the best reading for a request.

    Args:
        place: an empty folder for the job; nothing else is written.
        given: what a person said of the reading; a whole one is executed as it is.
        draw: whether examples are drawn.
        card: what the user says of the folder; None for a folder that came without a card.

    Raises:
        DataError: the folder cannot be surveyed, or no reading keeps to what was given.
        WrongUse: no task is named, and the request's words leave it open.
    """
    sandbox = choose()
    if given is not None:
        given = below(given, folder)
        try_out(given, folder, sandbox)
    with Reader(sandbox, Mounts(read=(folder,), write=(place,))) as reader:
        return _looked(card or card_for_folder(folder), request, place, reader, (task, given, draw))


def _looked(
    card: Card, request: str, place: Path, reader: Reader, asked_for: tuple[str, Given | None, bool]
) -> FolderLook:
    assert card.path is not None
    folder = card.path
    task, given, draw = asked_for
    if given is not None and given.index is not None:
        asked, insufficient = str(given.index.task), ""
        readings: tuple[dict[str, Any], ...] = (as_reading(given.index),)
        if task and task != asked:
            raise WrongUse(f"The reading that was given is for {asked}; --task says {task}.")
    else:
        parts = given.model_dump(mode="json", exclude_defaults=True) if given is not None else {}
        job = proposal_job(request, card, parts)
        chosen = choose_proposal(
            request,
            lambda name, boxes: outside({**job, "task": name, "boxes": boxes}, folder, place, reader),
            task=task,
        )
        if "error" in chosen.answer:
            raise DataError(str(chosen.answer["error"]))
        asked = chosen.task
        readings, insufficient = tuple(chosen.answer["readings"]), str(chosen.answer["insufficient"])
    if not readings:
        return FolderLook(asked, (), insufficient, request=request)
    work = place / "work"
    (work / "Datapath").mkdir(parents=True)
    job = {"do": "execute", "task": asked, "name": "data", "work": str(work), "spec": readings[0]["spec"]}
    try:
        counted = outside(job, folder, place, reader)
    except DataError as error:
        return FolderLook(asked, readings, insufficient or f"The best reading cannot be executed: {error}",
                    request=request)  # fmt: skip
    drawn = _drawn(reader, folder, work, asked) if draw else None
    shown = (drawn.cases, drawn.legend) if drawn else ()
    return FolderLook(asked, readings, insufficient, counted, request, *shown)


def _drawn(reader: Reader, folder: Path, work: Path, task: str) -> Examples | None:
    """Examples of the index in `work`, drawn in the reader; none where that fails, since nothing rests on them."""
    from m3b.models.opened import DRAW, ToDraw

    (work / "data").mkdir(exist_ok=True)
    (work / "data" / "data").symlink_to(folder, target_is_directory=True)
    try:
        return reader.ask(DRAW, ToDraw(work, task))
    except DataError:
        return None


def planned(cards: Sequence[Card], request: str, given: Given | None, *, draw: bool) -> FolderLook:
    """`look` at the one data folder among the cards; nothing is kept of it.

    Raises:
        WrongUse: there is none, or several.
        DataError: it cannot be surveyed.
    """
    mine = [card for card in cards if card.own and card.path and card.path.is_dir()]
    if len(mine) != 1 or mine[0].path is None:
        raise WrongUse(f"A plan is of one data folder; there are {len(mine)}.")
    with TemporaryFolder("plan") as place:
        task = task_for_card(request, mine[0].task)
        return look(mine[0].path, request, place, task=task, given=given, draw=draw, card=mine[0])
