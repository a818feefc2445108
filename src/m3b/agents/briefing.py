"""Briefings: what each role is told at the start of its stage, as text (its first line names the stage) and data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainingModule
from m3b.agents.example_files import find_example_files
from m3b.agents.proposal_text import SCRIPT_FALLBACK_NOTE, describe_proposals, describe_survey
from m3b.agents.search_table import describe_next_step, describe_search
from m3b.data.cards import Card, absent_told, own_notes
from m3b.data.phi import scrub
from m3b.dataset.jobs import MANIFEST_PATH
from m3b.dataset.manifest.reference import short_page
from m3b.dataset.manifest.resolve import TARGETS
from m3b.dataset.tables import ROW_SUFFIXES, WORKBOOK_SUFFIXES
from m3b.facts import (
    AuditSummary,
    Brief,
    DatasetOption,
    FolderSummary,
    IndexBrief,
    ManifestProposal,
    ModelBrief,
    ModuleBrief,
    Previews,
    ProjectSummary,
    SearchSummary,
    SelectionBrief,
    SurveySummary,
    TaskOption,
)
from m3b.markup.formatting import cut_at_word
from m3b.request_words import fold_accents
from m3b.tasks import find_requested_task, get_family, list_families
from m3b.tasks.templates import list_templates_for
from m3b.tools import ToolResult
from m3b.writing import to_one_line

EMPTY_SURVEY = SurveySummary()


def build_task_options(request: str) -> tuple[TaskOption, ...]:
    """Return every task family with what a request says about it."""
    requested_task, text = find_requested_task(request), fold_accents(request)
    return tuple(
        TaskOption(
            name=task_family.name,
            asked=task_family.name == requested_task,
            hinted=task_family.is_hinted_at(text),
            needs=task_family.required_targets,
            kin=task_family.related_tasks,
            metrics=tuple(dict.fromkeys((task_family.metrics.default_metric, *task_family.metrics.names))),
            box_metrics=task_family.list_metrics_of("boxes"),
            state_metrics=task_family.list_metrics_of("states"),
            plan=task_family.default_plan,
        )
        for task_family in list_families()
    )


def build_card_option(
    card: Card,
    notes: str,
    folder_preview: ToolResult,
    previews: Sequence[ToolResult],
    survey: SurveySummary = EMPTY_SURVEY,
) -> DatasetOption:
    """Return a data set with the results of m3b's own previews; a failed preview adds nothing.

    Args:
        notes: text of the notes in the data folder.
        survey: result of the survey of all files.
    """
    files = [
        file for preview in previews if not preview.is_error for file in Previews.model_validate(preview.data).files
    ]
    return DatasetOption(
        name=card.name,
        task=card.task,
        metric=card.metric,
        modality=card.modality,
        anatomy=card.anatomy,
        dimension=card.dimension,
        classes=card.classes,
        patient_key=card.patient_key,
        description=scrub(card.description),
        notes=scrub(notes),
        folder=FolderSummary() if folder_preview.is_error else FolderSummary.model_validate(folder_preview.data),
        files=tuple(files),
        read=survey,
        named=card.own,
    )


SETTINGS_HEADING = "## Settings of plan.json"
INDEX_HEADING = "## What it expects"
"""Section of a template's README on index files; it is left out, because m3b has written them by then."""


def read_template_guide(resources: Path, template: str) -> str:
    """Return the README of a training template, without the section on index files."""
    readme = (resources / template / "README.md").read_text(encoding="utf-8")
    parts = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    return "".join(part for part in parts if not part.startswith(INDEX_HEADING)).strip()


def read_settings_guide(resources: Path | None, task: str) -> list[str]:
    """Return the section of the template's README on the settings of plan.json."""
    if resources is None:
        return []
    readme = resources / "templates" / list_templates_for(resources / "templates", get_family(task))[0] / "README.md"
    parts = re.split(r"^(?=## )", readme.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [part.strip() for part in parts if part.startswith(SETTINGS_HEADING)]


PreviewTool = Callable[[str, Mapping[str, object]], ToolResult]
"""Calls a preview tool for m3b itself, without costing the agents an action."""


@dataclass(frozen=True)
class Briefing:
    """The briefing of a role: the text for a language model, and the same facts as data."""

    text: str
    facts: Brief | None = None


TABLE_SUFFIXES = (*ROW_SUFFIXES, *WORKBOOK_SUFFIXES, ".json", ".jsonl", ".npz", ".parquet")
MAX_PREVIEW_CHARS = 4000
"""Maximum length of the preview of one file, if several previews are long."""
MAX_PREVIEWED_CARDS = 2
"""Maximum number of data sets that the Task Manager sees with tables and an image; otherwise only their folders."""


def build_selection_briefing(
    request: str,
    cards: Sequence[Card],
    preview_tool: PreviewTool,
    survey_card: Callable[[Card], SurveySummary] | None = None,
    metric: str = "",
) -> Briefing:
    """Return the briefing of the Task Manager: request, cards, and previews of the data on this machine.

    Args:
        metric: the metric that the user fixed, if any.
        survey_card: surveys all files of a data set; called only if there are few data sets.
    """
    available_cards = [card for card in cards if card.path]
    parts = ["Stage: selection", f"Request of the user:\n{request.strip()}", "## Data on this machine"]
    card_options = []
    for card in available_cards:
        show_details = len(available_cards) <= MAX_PREVIEWED_CARDS
        notes, folder_preview = (
            _read_folder_notes(card) if show_details else "",
            preview_tool("preview_dirs", {"path": f"data/{card.root}"}),
        )
        previews = _preview_examples(card, card.task, preview_tool) if show_details else []
        survey = survey_card(card) if show_details and survey_card is not None else EMPTY_SURVEY
        parts += [
            _describe_card(card, notes),
            *describe_survey(card, survey),
            folder_preview.text,
            *(item.text for item in previews),
        ]
        card_options.append(build_card_option(card, notes, folder_preview, previews, survey))
    if missing_data_note := absent_told(cards):
        parts.append(missing_data_note)
    if further_tasks := [f"- `{item.name}`: {item.when_to_choose}" for item in list_families() if item.when_to_choose]:
        parts.append("\n".join(["## Further tasks", *further_tasks]))
    if metric:
        parts.append(f"The user fixed the metric: {metric}. m3b takes it, whatever you name.")
    parts.append("Choose, and reply with the JSON object.")
    facts = SelectionBrief(request=request.strip(), cards=tuple(card_options), tasks=build_task_options(request))
    return Briefing("\n\n".join(parts), facts)


def build_index_briefing(
    request: str,
    selection: Selection,
    card: Card,
    preview_tool: PreviewTool,
    proposals: Sequence[ManifestProposal] = (),
    open_question: str = "",
    data_problem: str = "",
    extra_instructions: str = "",
    can_ask: bool = False,
) -> Briefing:
    """Return the briefing of the Data Engineer: selection, card, previews, manifest proposals, the form of a manifest.

    The previews include one mask with its image, and one report file, depending on the task.

    Args:
        proposals: manifest proposals from a survey of the folder, best first.
        open_question: why the best may not be taken without asking, or why there is none.
        data_problem: what is missing in the data.
        extra_instructions: instructions on additional tools.
        can_ask: whether a person is asked before training about what is open.
    """
    text = "\n\n".join(
        [
            "Stage: index",
            f"Request of the user:\n{request.strip()}",
            f"## Selection\n{_describe_selection(selection)}",
            f"## Data card\n{_describe_card(card, _read_folder_notes(card))}",
            f"## Preview of data/{card.root}\n{preview_tool('preview_dirs', {'path': f'data/{card.root}'}).text}",
            *(preview.text for preview in _preview_examples(card, selection.task, preview_tool)),
            *describe_proposals(proposals, open_question),
            *([extra_instructions] if extra_instructions else []),
            *_index_instructions(selection.task, proposals),
        ]
    )
    facts = IndexBrief(
        request=request.strip(),
        task=selection.task,
        metric=selection.metric,
        classes=selection.classes,
        plan=selection.plan,
        data=f"data/{card.root}",
        place=MANIFEST_PATH,
        readings=tuple(proposals),
        insufficient=open_question,
        unusable=data_problem,
        can_ask=can_ask,
    )
    return Briefing(text, facts)


def _index_instructions(task: str, proposals: Sequence[ManifestProposal]) -> list[str]:
    """Return how an index is made."""
    if any(proposal.given for proposal in proposals):
        return ["Look, and say so."]
    records = f"## Records of a {task} index\n{get_family(task).index_guide}"
    if task not in TARGETS:  # of a plug-in: manifests cannot say its targets
        return [records, "Write a script that writes the index files."]
    form = re.sub("^# Manifest$", "## The form of a manifest", short_page(task), flags=re.MULTILINE)
    if proposals:
        return [form, SCRIPT_FALLBACK_NOTE, "Choose or write a manifest."]
    return [form, SCRIPT_FALLBACK_NOTE, records, f"Write {MANIFEST_PATH} or the index files."]


def _describe_selection(selection: Selection) -> str:
    family = get_family(selection.task)
    classes = ", ".join(selection.classes) or ("" if "texts" in family.required_targets else "all of the data set")
    class_part = f"; classes: {classes}" if classes and family.predicts_classes() else ""
    return f"Task: {selection.task}; metric: {selection.metric}{class_part}.\nPlan: {selection.plan}"


def _describe_card(card: Card, notes: str) -> str:
    """Return the card and the notes of the folder.

    Users may have written both, so addresses and telephone numbers are masked as in previews.
    """
    return scrub(f"{card.text()}\n{notes}" if notes else card.text())


def _read_folder_notes(card: Card) -> str:
    """Return the notes in the folder, unless the card contains them already."""
    notes = own_notes(card.path) if card.path else ""
    return "" if notes in card.description else notes


def _preview_examples(card: Card, task: str, preview_tool: PreviewTool) -> list[ToolResult]:
    """Preview the tables, and an image with its mask or a report. Without a task, show what any task needs."""
    task_families = [get_family(task)] if task else list_families()
    targets = {target for task_family in task_families for target in task_family.required_targets}
    texts = bool(targets & {"texts", "boxes"})  # boxes may stand in a text file an image
    examples = find_example_files(card.path, masks="masks" in targets, texts=texts) if card.path else []
    path_groups = (_find_tables(card), [f"data/{card.root}/{name}" for name in examples])
    return [_preview_files(paths, preview_tool) for paths in path_groups if paths]


def _preview_files(paths: list[str], preview_tool: PreviewTool) -> ToolResult:
    """Return a joint preview of files; if that would be too long, single previews that are cut at their ends."""
    combined = preview_tool("preview_files", {"paths": paths})
    if "full" not in combined.data:
        return combined
    texts = [preview_tool("preview_files", {"paths": [path]}).text for path in paths]
    excerpts = [
        text if len(text) <= MAX_PREVIEW_CHARS else text[: text.rfind("\n", 0, MAX_PREVIEW_CHARS)] + "\n  ..."
        for text in texts
    ]
    return replace(combined, text="\n\n".join(excerpts))


FRESH_WORKDIR_NOTE = (
    "The working directory starts afresh: Datapath/train.json and Datapath/label_dict.json are in it, and data/ holds the "
    "files of training cases alone. m3b measures on the test cases itself."
)


def build_module_briefing(
    selection: Selection,
    index: DataIndex,
    audit_text: str,
    minutes: float,
    device: str,
    resources: Path,
    closing_remarks: Mapping[str, str] = MappingProxyType({}),
    audit_summary: AuditSummary | None = None,
    request: str = "",
    plan_command: str = "",
    given_plan: Mapping[str, Any] = MappingProxyType({}),
    searched: Sequence[str] = (),
) -> Briefing:
    """Return the briefing of the Module Architect: the data, the training time, and the guide of the template.

    The Task Manager's plan is meant for the Data Engineer and is not in the text; the closing remarks tell what became
    of it.

    Args:
        audit_text: summary of the audit; `audit_summary` is the same as data.
        closing_remarks: role title -> closing remark of the earlier roles.
        request: the user's request.
        plan_command: the command that makes the plan, if the user fixed parts of it.
        given_plan: a whole plan.json of the user.
        searched: settings of plan.json that a search over plans varies after this stage; empty without a search.
    """
    default_template, *other_templates = list_templates_for(resources / "templates", get_family(selection.task))
    template = f"templates/{default_template}"
    guide = read_template_guide(resources, template)
    text = "\n\n".join(
        [
            "Stage: module",
            f"Task: {selection.task}; metric: {selection.metric}; classes: {_describe_classes(index)}.",
            *([f"Request of the user: {cut_at_word(request, MAX_REMARK_CHARS)}"] if request else []),
            f"Data: {audit_text}{_describe_left_out(index)}",
            *_quote_remarks(closing_remarks),
            f"Training time: {minutes:g} min on {device}.",
            *_describe_fixed_plan(plan_command, given_plan),
            *_describe_searched_settings(searched),
            f"## Template resources/{template}\n{guide}",
            *(
                [
                    f"Other templates for this task: "
                    f"{', '.join(f'resources/templates/{other_template}' for other_template in other_templates)}."
                ]
                if other_templates
                else []
            ),
            FRESH_WORKDIR_NOTE,
            "Set the project up in the working directory.",
        ]
    )
    facts = ModuleBrief(
        task=selection.task,
        metric=selection.metric,
        plan=selection.plan,
        classes=index.values or {name: value for value, name in enumerate(index.classes)},
        audit=audit_summary or AuditSummary(),
        template=f"resources/{template}",
        minutes=minutes,
        plan_command=plan_command,
        given_plan=dict(given_plan),
        searched=tuple(searched),
        said=dict(closing_remarks),
    )
    return Briefing(text, facts)


def _describe_searched_settings(searched: Sequence[str]) -> list[str]:
    """Return the sentence on a search that follows, for the agent; nothing without one."""
    if not searched:
        return []
    return [
        "A search over plans follows: your plan is its start, and it compares other values of "
        f"{', '.join(f'`{key}`' for key in searched)} with it, as far as the plan has them; leave these as plan.py makes them, "
        "unless they are wrong for this data."
    ]


def _describe_fixed_plan(plan_command: str, given_plan: Mapping[str, Any]) -> list[str]:
    """Return what the user fixed of the plan, for the agent; nothing if that is nothing."""
    if not plan_command:
        return []
    if given_plan:
        given = json.dumps(given_plan, ensure_ascii=False)
        return [
            f"## The user's plan\nWrite exactly this into plan.json, then run `{plan_command}`. m3b compares plan.json with "
            f"it and rejects changes.\n{given}"
        ]
    return [
        f"## Fixed by the user\nMake the plan with `{plan_command}`. What this command sets is the user's decision: m3b "
        "compares plan.json with it and rejects changes. All other settings are yours."
    ]


def build_model_briefing(
    selection: Selection,
    index: DataIndex,
    module: TrainingModule,
    minutes: float,
    closing_remarks: Mapping[str, str] = MappingProxyType({}),
    resources: Path | None = None,
    search: SearchSummary | None = None,
) -> Briefing:
    """Return the briefing of the Model Trainer: the project, its settings, and the metric.

    Args:
        closing_remarks: as in `build_module_briefing`.
        resources: folder with the template whose settings are explained, unless a search has left nothing to change.
        search: the search over plans, if there was one; `module` has the plan that it selected.
    """
    before, after = module.overfit
    text = "\n\n".join(
        [
            "Stage: model",
            f"Task: {selection.task}; metric: {selection.metric}; classes: {to_one_line(', '.join(index.classes)) or 'none'}.",
            f"The project is in place: plan.json, plan.py, train.py, export.py.{_describe_check(module, search)}"
            f"{_describe_plan(module, ' that the search selected' if search else '')}",
            f"Cases: {index.cases['train']} for training ({_describe_held_out(module.plan)}). "
            f"One training takes {minutes:g} min and stops by itself.",
            *([] if search and not search.proposals_left else read_settings_guide(resources, selection.task)),
            *_quote_remarks(closing_remarks, ", before the search" if search else ""),
            *_describe_search_result(search),
            "Propose candidates, or train, export, and hand over."
            if search and search.proposals_left
            else "Train, export, and hand over.",
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
        classes=index.classes,
        project=project,
        cases=index.cases["train"],
        minutes=minutes,
        said=dict(closing_remarks),
        search=search,
    )
    return Briefing(text, facts)


def _describe_held_out(plan: Mapping[str, Any]) -> str:
    """Return how the project holds validation cases out: in one part, or in folds."""
    folds = plan.get("folds")
    if not isinstance(folds, int) or folds < 2 or not plan.get("cross_validation", True):
        return "the project holds a validation part out of them"
    return (
        f"each of {folds} networks holds another part of them out, so that a fold validates on fewer cases than the figures of all "
        "folds together"
    )


def _describe_check(module: TrainingModule, search: SearchSummary | None) -> str:
    """Return what the check of the project measured; the network may be another after a search."""
    before, after = module.overfit
    shape = " x ".join(map(str, module.batch_shape))
    subject = "The model has" if search is None else "Before the search over plans, the model had"
    return (
        f" {subject} {module.parameters:,} parameters; the check trained it on one batch of {shape} (its own batch size, not the "
        f"plan's), and the loss fell from {before:.3f} to {after:.3f}."
    )


def _describe_search_result(search: SearchSummary | None) -> list[str]:
    """Return the table of a search and what the agent may do about it; nothing without a search."""
    if search is None:
        return []
    return [f"## Search over plans\n{describe_search(search)}", describe_next_step(search)]


MAX_REMARK_CHARS = 900
"""Maximum length of a role's closing remark as later roles see it."""


def _quote_remarks(closing_remarks: Mapping[str, str], when: str = "") -> list[str]:
    """Return a paragraph for each role with its closing remark, and when it was made if that needs words."""
    return [f"The {title} said{when}: {cut_at_word(text, MAX_REMARK_CHARS)}" for title, text in closing_remarks.items()]


SHOWN_PLAN_KEYS = (
    "engine",
    "target",
    "network",
    "size",
    "spacing",
    "patch",
    "intensity",
    "batch",
    "lr",
    "folds",
    "refit",
    "minutes",
)
"""Keys of plan.json that the Model Trainer is shown, if the plan has them."""


def _describe_plan(module: TrainingModule, origin: str = "") -> str:
    settings = [
        f"{key} {json.dumps(module.plan[key], ensure_ascii=False, separators=(',', ':'))}"
        for key in SHOWN_PLAN_KEYS
        if module.plan.get(key) not in (None, False)
    ]
    return f" The plan{origin}: {', '.join(settings)}." if settings else ""


def _describe_left_out(index: DataIndex) -> str:
    """Return what separates these counts from those of a manifest: files that were left out since (copies, damaged images)."""
    exclusions = index.accounting.get("left_out", ())[:4]
    reasons = [f"{item['files']:,} file{'s' * (item['files'] != 1)} ({item['reason']})" for item in exclusions]
    return f" Files that are not in these counts, and why: {'; '.join(reasons)}." if reasons else ""


def _describe_classes(index: DataIndex) -> str:
    """Return the classes, with their values in masks."""
    if index.values and min(index.values.values()) > 0:
        return to_one_line(", ".join(f"{name} (value {value})" for name, value in index.values.items()))
    return (to_one_line(", ".join(index.classes)) or "none") + (" (several may apply)" if index.multi_label else "")


def _find_tables(card: Card) -> list[str]:
    """Return the few tables and archives at the top of the data folder, which probably include the labels."""
    if card.path is None:
        return []
    paths: list[str] = []
    for folder, folders, files in os.walk(card.path):
        depth = len(Path(folder).relative_to(card.path).parts)
        folders[:] = [] if depth >= 2 else sorted(name for name in folders if not name.startswith("."))
        names = [name for name in sorted(files) if name.lower().endswith(TABLE_SUFFIXES) and not name.startswith(".")]
        if len(names) <= 6:  # a larger number means that they are cases, not tables
            paths += [Path(folder, name).relative_to(card.path).as_posix() for name in names]
    paths.sort(key=lambda path: (path.count("/"), path))
    return [f"data/{card.root}/{path}" for path in paths[:4]]
