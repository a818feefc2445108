"""What each role is told when its stage begins: a text whose first line names the stage, and the same as data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType

from m3b.agents.artifacts import DataIndex, Selection, TrainingModule
from m3b.agents.examples import example_files
from m3b.agents.offers import card_offer, task_offers
from m3b.briefs import Brief, IndexBrief, ModelBrief, ModuleBrief, ProposedReading, SelectionBrief
from m3b.data.cards import Card, own_notes
from m3b.data.spec.places import SPEC
from m3b.data.spec.proposals import ENOUGH
from m3b.summaries import AuditSummary, ProjectSummary
from m3b.tasks import families, family
from m3b.tasks.templates import serving
from m3b.tools import ToolResult
from m3b.tools.phi import scrub
from m3b.writing import inert, one_line

Look = Callable[[str, Mapping[str, object]], ToolResult]
"""Calls a preview tool on m3b's own account: looking costs the agents no action."""


@dataclass(frozen=True)
class Briefing:
    """What a role is told: the text that a model reads, and its data for those that plan by it."""

    text: str
    facts: Brief | None = None


TABLES = (".csv", ".tsv", ".json", ".jsonl", ".npz")
INDEXING = "templates/indexing"
ONE_FILE = 4000
"""Characters that the preview of one of several long files may take."""
FEW_CARDS = 2
"""So many data sets are shown to the Task Manager with their tables and an image; of more, the folders alone."""


def selection_briefing(request: str, cards: Sequence[Card], look: Look) -> Briefing:
    """For the Task Manager: the request, the cards, and a first look at the data that is here."""
    here = [card for card in cards if card.path]
    others = [card for card in cards if not card.path]
    parts = ["Stage: selection", f"Request of the user:\n{request.strip()}", "## Data on this machine"]
    offers = []
    for card in here:
        few = len(here) <= FEW_CARDS
        notes, folder = _notes(card) if few else "", look("preview_dirs", {"path": f"data/{card.root}"})
        looks = _first_looks(card, card.task, look) if few else []
        parts += [_about(card, notes), folder.text, *(one.text for one in looks)]
        offers.append(card_offer(card, notes, folder, looks))
    if others:
        parts.append("## Other data cards (their data is not on this machine)")
        parts.append("\n".join(f"- {card.line()}".replace("; data not on this machine", "") for card in others))
    if more := [f"- `{one.name}`: {one.about}" for one in families() if one.about]:
        parts.append("\n".join(["## Further tasks", *more]))
    parts.append("Choose, and reply with the JSON object.")
    facts = SelectionBrief(request=request.strip(), cards=tuple(offers), tasks=task_offers(request))
    return Briefing("\n\n".join(parts), facts)


def index_briefing(
    request: str,
    selection: Selection,
    card: Card,
    look: Look,
    resources: Path,
    readings: Sequence[ProposedReading] = (),
    insufficient: str = "",
    unusable: str = "",
) -> Briefing:
    """For the Data Engineer: the selection, the card, the folder with its tables, proposed readings, the indexing script.

    Of masks one is shown with its image, of reports in files one file: looked at on m3b's own account.

    Args:
        readings: proposed from a survey of the folder, best first.
        insufficient: why the best may not be taken as it is, or why there is none.
        unusable: what is wrong with the data itself.
    """
    text = "\n\n".join(
        [
            "Stage: index",
            f"Request of the user:\n{request.strip()}",
            f"## Selection\n{_json(asdict(selection))}",
            f"## Data card\n{_about(card, _notes(card))}",
            f"## Preview of data/{card.root}\n{look('preview_dirs', {'path': f'data/{card.root}'}).text}",
            *(one.text for one in _first_looks(card, selection.task, look)),
            *_readings(readings),
            f"## Records of a {selection.task} index\n{family(selection.task).guide}",
            f"## The indexing script\n{indexing_guide(resources, selection.task)}",
            "Write the index files.",
        ]
    )
    facts = IndexBrief(
        request=request.strip(),
        task=selection.task,
        metric=selection.metric,
        classes=selection.classes,
        plan=selection.plan,
        data=f"data/{card.root}",
        place=SPEC,
        readings=tuple(readings),
        insufficient=insufficient,
        unusable=unusable,
    )
    return Briefing(text, facts)


READINGS = "## Proposed readings"
EXAMPLE = (
    '`"patient": {"kind": "table", "file": "cases.csv", "row": "{filename}", "image": "{name}", "column": "subject"}` (`row`: '
    "the cell that names the file, `image`: what of the file it names)"
)
TAKE = (
    "`score` (0 to 1) is how well what was measured in the folder and the words of the request bear a reading out; "
    f"`sufficient` marks the one that may be taken as it is: {ENOUGH:g} or more, nothing unclear, and no other reading with "
    "other classes as near.\n"
    f"To take one: copy its file to {SPEC}; m3b then makes the index from it (labels from the data, split, accounting of "
    "every file), and no script is needed. Read the file and write an edited copy where it is nearly right, e.g. with the "
    f"patient from a table's column: {EXAMPLE}. Where none fits, write no such file and use the indexing script."
)


STANDS = (
    "The user gave this reading, and it stands: m3b makes the index from it, whatever else is written. Look at what it may "
    "have overlooked if you like, and reply with a sentence."
)


def _readings(readings: Sequence[ProposedReading]) -> list[str]:
    """What a survey of the whole folder proposes; titles and evidence may name files, and are masked like previews."""
    if not readings:
        return []
    hidden = {"spec", "given"}
    shown = [
        {key: value for key, value in one.model_dump(mode="json", exclude=hidden).items() if value} for one in readings
    ]
    told = STANDS if any(one.given for one in readings) else TAKE
    return [f"{READINGS}\n{inert(scrub(json.dumps(shown, ensure_ascii=False, indent=1)))}\n{told}"]


def _about(card: Card, notes: str) -> str:
    """The card, and what the folder says of itself.

    Both may be of the user's own writing: addresses and telephone numbers are masked as they are in previews.
    """
    return scrub(f"{card.text()}\n{notes}" if notes else card.text())


def _notes(card: Card) -> str:
    """What the folder says of itself, where the card does not tell that already."""
    own = own_notes(card.path) if card.path else ""
    return "" if own in card.description else own


def _first_looks(card: Card, task: str, look: Look) -> list[ToolResult]:
    """The tables, and an image with its mask or a report: what one would open first. Of no task what any one needs."""
    own = [family(task)] if task else families()
    masks, texts = any(one.shows_masks for one in own), any(one.shows_texts for one in own)
    examples = example_files(card.path, masks=masks, texts=texts) if card.path else []
    files = (_tables(card), [f"data/{card.root}/{name}" for name in examples])
    return [_shown(paths, look) for paths in files if paths]


def _shown(paths: list[str], look: Look) -> ToolResult:
    """Previews of files together; each by itself, and cut at its end, where together they are too long to be whole."""
    whole = look("preview_files", {"paths": paths})
    if "full" not in whole.data:
        return whole
    parts = [look("preview_files", {"paths": [path]}).text for path in paths]
    cut = [one if len(one) <= ONE_FILE else one[: one.rfind("\n", 0, ONE_FILE)] + "\n  ..." for one in parts]
    return replace(whole, text="\n\n".join(cut))


def indexing_guide(resources: Path, task: str) -> str:
    """The indexing script's README without what serves other tasks only."""
    text = (resources / INDEXING / "README.md").read_text(encoding="utf-8").strip()
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join(part for part in parts if _serves(part.split("\n", 1)[0], task)).strip()


def _serves(heading: str, task: str) -> bool:
    """Whether a part is for a task: its heading names tasks in brackets, or none."""
    named = re.search(r"^## .*\((.+)\)$", heading)
    return named is None or task in named.group(1).split(", ")


AFRESH = (
    "The working directory starts afresh: Datapath/train.json and Datapath/label_dict.json are in it, and data/ holds the "
    "files of training cases alone. m3b measures on the test cases itself."
)


def module_briefing(
    selection: Selection,
    data: DataIndex,
    audit: str,
    minutes: float,
    device: str,
    resources: Path,
    closing: Mapping[str, str] = MappingProxyType({}),
    audited: AuditSummary | None = None,
) -> Briefing:
    """For the Module Architect: what the data is, how long training may take, and the template's own guide.

    `audit` is what the audit said in words, `audited` the same as data; `closing` what the roles before it said when they
    handed over, by title.
    """
    first, *others = serving(resources / "templates", family(selection.task))
    template = f"templates/{first}"
    guide = (resources / template / "README.md").read_text(encoding="utf-8").strip()
    text = "\n\n".join(
        [
            "Stage: module",
            f"Task: {selection.task}; metric: {selection.metric}; classes: {_classes(data)}.",
            f"Plan of the Task Manager: {selection.plan}",
            f"Data: {audit}",
            *_said(closing),
            f"Training time: {minutes:g} minutes on {device}.",
            f"## Template resources/{template}\n{guide}",
            *(
                [f"Other templates for this task: {', '.join(f'resources/templates/{one}' for one in others)}."]
                if others
                else []
            ),
            AFRESH,
            "Set the project up in the working directory.",
        ]
    )
    facts = ModuleBrief(
        task=selection.task,
        metric=selection.metric,
        plan=selection.plan,
        classes=data.values or {name: at for at, name in enumerate(data.classes)},
        audit=audited or AuditSummary(),
        template=f"resources/{template}",
        minutes=minutes,
        said=dict(closing),
    )
    return Briefing(text, facts)


def model_briefing(
    selection: Selection,
    data: DataIndex,
    module: TrainingModule,
    minutes: float,
    closing: Mapping[str, str] = MappingProxyType({}),
) -> Briefing:
    """For the Model Trainer: what is in place and what counts. `closing` as in `module_briefing`."""
    before, after = module.overfit
    shape = " x ".join(map(str, module.batch_shape))
    text = "\n\n".join(
        [
            "Stage: model",
            f"Task: {selection.task}; metric: {selection.metric}; classes: {one_line(', '.join(data.classes)) or 'none'}.",
            f"The project is in place: plan.json, plan.py, train.py, export.py. The check tried a batch of "
            f"{shape}, whatever the plan's; the model has "
            f"{module.parameters:,} parameters; on one batch its loss fell from {before:.3f} to {after:.3f}.{_plan(module)}",
            f"Cases: {data.cases['train']} for training (the project holds a validation part out of them). "
            f"One training takes {minutes:g} minutes and stops by itself.",
            *_said(closing),
            "Train, export, and hand over.",
        ]
    )
    project = ProjectSummary(
        batch_shape=tuple(size for size in module.batch_shape if isinstance(size, int)),
        parameters=module.parameters,
        loss_before=before,
        loss_after=after,
        plan=module.plan,
    )
    facts = ModelBrief(
        task=selection.task,
        metric=selection.metric,
        classes=data.classes,
        project=project,
        cases=data.cases["train"],
        minutes=minutes,
        said=dict(closing),
    )
    return Briefing(text, facts)


CLOSING = 900
"""Characters of a role's closing words that the later ones are shown."""


def _said(closing: Mapping[str, str]) -> list[str]:
    """A paragraph a role with what it said at its end."""
    return [f"The {title} said: {shorten(text, CLOSING, placeholder=' ...')}" for title, text in closing.items()]


PLANNED = ("engine", "target", "network", "size", "spacing", "patch", "intensity", "batch", "lr", "folds", "minutes")
"""What of plan.json the Model Trainer is told, where the plan has it."""


def _plan(module: TrainingModule) -> str:
    told = [f"{key} {_short(module.plan[key])}" for key in PLANNED if module.plan.get(key) is not None]
    return f" The plan: {', '.join(told)}." if told else ""


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _classes(data: DataIndex) -> str:
    """The classes, with the values that stand for them in masks."""
    if data.values and min(data.values.values()) > 0:
        return one_line(", ".join(f"{name} (value {value})" for name, value in data.values.items()))
    return (one_line(", ".join(data.classes)) or "none") + (" (several may apply)" if data.multi_label else "")


def _tables(card: Card) -> list[str]:
    """The few tables and archives at the top of the data folder, labels most likely among them."""
    if card.path is None:
        return []
    found: list[str] = []
    for place, folders, files in os.walk(card.path):
        depth = len(Path(place).relative_to(card.path).parts)
        folders[:] = [] if depth >= 2 else sorted(name for name in folders if not name.startswith("."))
        names = [name for name in sorted(files) if name.lower().endswith(TABLES) and not name.startswith(".")]
        if len(names) <= 6:  # more of them are cases, not tables
            found += [Path(place, name).relative_to(card.path).as_posix() for name in names]
    return [f"data/{card.root}/{name}" for name in _first(found, 4)]


def _first(names: Iterable[str], count: int) -> list[str]:
    return sorted(names, key=lambda name: (name.count("/"), name))[:count]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
