"""Choosing a data set by the words that request and cards share, and the task by both."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from m3b.llm.rules.asked import BOX_METRICS, METRICS, TASKS, asked_task, wants_found
from m3b.llm.rules.boxes import has_boxes
from m3b.llm.rules.preview import patterns
from m3b.llm.rules.reports import has_reports
from m3b.llm.rules.view import View
from m3b.llm.rules.words import BEYOND, STOP, anatomy, modality, of_images, plain, words
from m3b.messages import ToolCall

PLANS = {
    "diagnosis": "Read the labels from the class folders, the table or the archive that the preview shows; take the patient "
    "from its column or folder; keep an own split; leave out what has no image, no label or does not open.",
    "segmentation": "Pair images and masks by their names as the preview shows them; name the values in the masks after the "
    "list of labels or the card; take the patient from the name; leave out images without a mask.",
    "detection": "Take what is marked from the masks or the file of boxes that the preview shows; name the classes after "
    "the list of labels or the card; take the patient from its field or the name; keep an own split.",
    "report": "Read findings and impression from the table or the files that the preview shows; put the views of a study "
    "together; take the patient from its column or the name; keep an own split; leave out what has no text.",
}


@dataclass(frozen=True)
class Offer:
    """A card whose data is here, with its text and the preview of its folder."""

    name: str
    task: str
    text: str

    @property
    def masks(self) -> bool:
        """Whether the preview shows files that are called like masks beside others that are not."""
        pictures = [one for one in patterns(self.text) if one.is_picture]
        return any(one.is_mask for one in pictures) and not all(one.is_mask for one in pictures)

    @property
    def boxes(self) -> bool:
        return has_boxes(self.text, patterns(self.text))


def select(view: View) -> str | list[ToolCall]:
    """The closing JSON of the selection stage."""
    if view.rejected:
        return _declined(f"The rules cannot fix this: {view.rejected[:300]}")
    request = view.request
    offers = _offers(view.briefing)
    if view.answer:
        return _as_told(view, offers)
    fitting = [offer for offer in offers if _fits(request, offer, alone=len(offers) == 1)]
    if not fitting:
        here = ", ".join(offer.name for offer in offers) or "none"
        asked = asked_task(request)
        what = f"what a {asked} model needs" if asked else "what the request asks for"
        return _declined(f"No data on this machine speaks of {what}. Data here: {here}.")
    best = max(fitting, key=lambda offer: _score(request, offer))
    task = task_for(request, best, alone=len(offers) == 1)
    return _chosen(best, task, "Its card or folder shares most with the request.")


def _as_told(view: View, offers: list[Offer]) -> str:
    """The data set that the user's answer names, whatever its words have in common with the request."""
    said = _apart(view.answer)
    named = [one for one in offers if _apart(one.name) in said]
    if not named:
        here = ", ".join(offer.name for offer in offers) or "none"
        return _declined(f"The rules find no data set in the answer {view.answer[:100]!r}. Data here: {here}.")
    best = max(named, key=lambda offer: len(offer.name))
    task = task_for(view.request, best, alone=len(offers) == 1)
    if not task:
        asked = asked_task(view.request) or best.task
        return _declined(f"{best.name} does not show what a {asked} model needs.")
    return _chosen(best, task, "The user named it.")


def _apart(text: str) -> str:
    """The words of a text with a blank around each."""
    words_ = " ".join(re.findall(r"[^\W_]+", plain(text)))
    return f" {words_} "


def _chosen(best: Offer, task: str, reason: str) -> str:
    chosen: dict[str, object] = {
        "data_card": best.name,
        "task": task,
        "metric": _metric(task, best),
        "classes": [],
        "plan": PLANS[task],
        "reason": reason,
    }
    return json.dumps(chosen, ensure_ascii=False)


def _declined(reason: str) -> str:
    return json.dumps({"data_card": None, "reason": reason}, ensure_ascii=False)


def _offers(briefing: str) -> list[Offer]:
    block = briefing.split("## Data on this machine", 1)[-1].split("## Other data cards", 1)[0]
    parts = re.split(r"^# (.+?) \(([^()]*); data at data/[\w-]+\)$", block, flags=re.MULTILINE)
    return [
        Offer(name, facts.split(",")[0].strip(), f"{name}\n{text}")
        for name, facts, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    ]


def task_for(request: str, offer: Offer, *, alone: bool = False) -> str:
    """The task for which a request may use a data set; empty where the two do not go together.

    A card's own task decides between segmentation and detection, since "outline the tumour" may be either; of several
    folders without a card one must show masks, boxes or reports for these tasks. Where there is one alone, the survey of
    all its files tells in the next stage whether they are there.
    """
    asked, own = asked_task(request), offer.task if offer.task in TASKS else ""
    if own:
        if not asked and own != "diagnosis":  # "detect" alone asks for places only where the data shows places
            return own if offer.masks or offer.boxes else ""
        alike = asked in ("segmentation", "detection") and own in ("segmentation", "detection")
        return own if not asked or asked == own or alike else ""
    if asked == "report":
        return asked if alone or has_reports(offer.text) else ""
    if asked == "segmentation":
        return asked if alone or offer.masks else ""
    if asked == "detection":
        return asked if alone or offer.masks or offer.boxes else ""
    return "detection" if wants_found(request) and _only_marked(offer) else "diagnosis"


def _only_marked(offer: Offer) -> bool:
    """Whether a folder without a card holds masks beside as many images, and nothing that looks like classes."""
    pictures = [one for one in patterns(offer.text) if one.is_picture]
    masks = [one for one in pictures if one.is_mask]
    places = {one.folder for one in pictures if not one.is_mask and not one.by_case}
    return (
        bool(masks) and len(places) <= 1 and 2 * sum(one.count for one in masks) >= max(one.count for one in pictures)
    )


def _metric(task: str, offer: Offer) -> str:
    """The card's metric if the task knows it; of boxes one that boxes can be measured by."""
    found = re.search(r"^Usual metric: (\w+)", offer.text, re.MULTILINE)
    known = METRICS[task]
    if task == "detection" and not offer.masks:
        known = BOX_METRICS
    return found.group(1) if found and found.group(1) in known else known[0]


def _fits(request: str, offer: Offer, *, alone: bool) -> bool:
    """Whether a card serves: not of another task, organ or kind of image, and with something in common.

    Data that came without words may be in common with any request for a model on images, if there is no other.
    """
    if not task_for(request, offer, alone=alone) or beyond(request, offer.text):
        return False
    for kinds in (anatomy, modality):
        asked, there = kinds(request), kinds(offer.text)
        if asked and there and not asked & there:
            return False
    return _score(request, offer) > 0 or (alone and of_images(request))


def beyond(request: str, card: str) -> bool:
    """Whether a request asks from other signals than images, or for the future, and the card knows nothing of that."""
    asked, there = plain(request), plain(card)
    return any(re.search(kind, asked) and not re.search(kind, there) for kind in BEYOND)


def _score(request: str, offer: Offer) -> float:
    asked = words(request) - STOP
    shared = asked & words(offer.text)
    same = len(anatomy(request) & anatomy(offer.text)) + 0.5 * len(modality(request) & modality(offer.text))
    return len(shared) / max(1, len(asked)) + same
