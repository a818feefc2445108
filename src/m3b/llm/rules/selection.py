"""Choosing a data set by the words that request and cards share."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from m3b.llm.rules.view import View
from m3b.llm.rules.words import STOP, anatomy, modality, of_images, other_task, words
from m3b.messages import ToolCall


@dataclass(frozen=True)
class Offer:
    """A card whose data is here, with its text and the preview of its folder."""

    name: str
    task: str
    text: str


def select(view: View) -> str | list[ToolCall]:
    """The closing JSON of the selection stage."""
    if view.rejected:
        return _json(None, f"The rules cannot mend this: {view.rejected[:300]}")
    request = view.request
    task = other_task(request)
    if task:
        return _json(None, f"The request asks for a {task} model; the rules build diagnosis models.")
    offers = _offers(view.briefing)
    fitting = [offer for offer in offers if _fits(request, offer, alone=len(offers) == 1)]
    if not fitting:
        here = ", ".join(offer.name for offer in offers) or "none"
        return _json(None, f"No data on this machine speaks of what the request asks for. Data here: {here}.")
    best = max(fitting, key=lambda offer: _score(request, offer))
    return _json(best.name, "Its card or folder shares most with the request.")


def _offers(briefing: str) -> list[Offer]:
    block = briefing.split("## Data on this machine", 1)[-1].split("## Other data cards", 1)[0]
    parts = re.split(r"^# (.+?) \(([^()]*); data at data/[\w-]+\)$", block, flags=re.MULTILINE)
    return [
        Offer(name, facts.split(",")[0].strip(), f"{name}\n{text}")
        for name, facts, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    ]


def _fits(request: str, offer: Offer, *, alone: bool) -> bool:
    """Whether a card serves: not of another task, organ or kind of image, and with something in common.

    Data that came without words may be in common with any request for a model on images, if there is no other.
    """
    if offer.task not in ("", "diagnosis", "no facts given"):
        return False
    for kinds in (anatomy, modality):
        asked, there = kinds(request), kinds(offer.text)
        if asked and there and not asked & there:
            return False
    return _score(request, offer) > 0 or (alone and of_images(request))


def _score(request: str, offer: Offer) -> float:
    asked = words(request) - STOP
    shared = asked & words(offer.text)
    same = len(anatomy(request) & anatomy(offer.text)) + 0.5 * len(modality(request) & modality(offer.text))
    return len(shared) / max(1, len(asked)) + same


def _json(card: str | None, reason: str) -> str:
    plan = (
        "Read the labels from the class folders, the table or the archive that the preview shows; take the patient from "
        "its column or folder; keep an own split; leave out what has no image, no label or does not open."
    )
    chosen: dict[str, object] = {
        "data_card": card,
        "task": "diagnosis",
        "metric": "auroc",
        "classes": [],
        "plan": plan,
        "reason": reason,
    }
    return json.dumps(chosen, ensure_ascii=False)
