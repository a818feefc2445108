"""Text in briefings on how m3b reads a folder: ten lines before the selection, then the manifest proposals."""

from __future__ import annotations

import json
from collections.abc import Sequence

from m3b.data.cards import Card
from m3b.data.phi import scrub
from m3b.dataset.jobs import MANIFEST_PATH
from m3b.facts import ManifestProposal, SurveySummary, TaskProposal
from m3b.markup.formatting import cut_at_word
from m3b.writing import escape_control_codes, to_one_line

MAX_PROPOSED_TASKS, MAX_LINE_CHARS = 3, 260
"""Number of tasks whose best manifest is described, and maximum length of its title, and of the question that is open."""

PROPOSALS_HEADING = "## Proposed manifests"
PROPOSAL_INSTRUCTIONS = (
    "`score` (0 to 1) is how likely every part of a manifest is right; `sufficient` marks the one that may be taken as it is; "
    "`expected` is what the index would hold, before copies and images that do not open are left out. What later manifests "
    "share with the first is not repeated. m3b itself keeps copies, and series of nearly the same picture, on one side.\n"
    f"To take one: copy its file to {MANIFEST_PATH}; m3b then makes the index from it (labels from the data, split, accounting "
    "of every file), and no script is needed. If it is nearly right, write an edited one there: the tool's result says at "
    "once what it gives, what it leaves out, and how it differs from the proposal."
)
MAX_MANIFEST_CHARS = 2500
"""Maximum length of a manifest that is shown; a longer one (with a hundred classes) is only in its file."""
MANIFEST_GUIDE = "indexes/manifest.md"
SCRIPT_FALLBACK_NOTE = (
    f"resources/{MANIFEST_GUIDE} explains every key of a manifest. If no manifest can describe the data, write the index files "
    "with a short script; resources/indexes/README.md has their form."
)


USER_MANIFEST_NOTE = (
    "The user gave this manifest, and it stands: m3b makes the index from it, whatever else is written. Look at what it may "
    "have overlooked if you like, and reply with a sentence."
)


def format_survey_lines(survey: SurveySummary) -> list[str]:
    """Return lines on the files of a folder and the tasks that it could serve; personal data is masked."""
    best_by_task: dict[str, TaskProposal] = {}
    for entry in survey.readings:
        if entry.title:
            best_by_task.setdefault(entry.task, entry)
    # scores are not shown, since scores of different tasks cannot be compared
    task_lines = [f"as {_format_task_proposal(entry)}" for entry in list(best_by_task.values())[:MAX_PROPOSED_TASKS]]
    if survey.lines and not task_lines:
        missing = survey.chosen.insufficient if survey.chosen is not None else "no manifest follows from this"
        task_lines = [scrub(cut_at_word(missing, MAX_LINE_CHARS))]
    return [to_one_line(entry) for entry in (*survey.lines, *task_lines)]


def _format_task_proposal(proposal: TaskProposal) -> str:
    caveat = f"; open: {cut_at_word(proposal.insufficient, MAX_LINE_CHARS)}" if proposal.insufficient else ""
    return scrub(f"{proposal.task}: {cut_at_word(proposal.title, MAX_LINE_CHARS)}{caveat}")


def describe_survey(card: Card, survey: SurveySummary) -> list[str]:
    """Return the text on a survey of all files, about ten lines."""
    lines = format_survey_lines(survey)
    return (
        ["\n".join([f"m3b read in all files of data/{card.root}:", *(f"- {line}" for line in lines)])] if lines else []
    )


def _drop_repetition(proposal: ManifestProposal, best_proposal: ManifestProposal | None) -> ManifestProposal:
    """Return a proposal without what it shares with the best."""
    if best_proposal is None:
        return proposal
    evidence = tuple(sentence for sentence in proposal.evidence if sentence not in best_proposal.evidence)
    doubts = tuple(sentence for sentence in proposal.doubts if sentence not in best_proposal.doubts)
    return proposal.model_copy(update={"evidence": evidence, "doubts": doubts})


def describe_proposals(proposals: Sequence[ManifestProposal], open_question: str = "") -> list[str]:
    """Return the text on the manifest proposals, the best with its manifest; file names are masked as in previews."""
    question = [f"Open: {escape_control_codes(scrub(open_question))}"] if open_question else []
    if not proposals:
        return question
    excluded_keys = {"manifest", "given"}
    shortened = [_drop_repetition(item, None if rank == 0 else proposals[0]) for rank, item in enumerate(proposals)]
    payload = [
        {key: value for key, value in item.model_dump(mode="json", exclude=excluded_keys).items() if value}
        for item in shortened
    ]
    # the exclusions are in its file, and m3b reports them in any case
    manifest = json.dumps(
        {key: item for key, item in proposals[0].manifest.items() if key != "exclude"}, ensure_ascii=False
    )
    manifest_text = (
        f"Manifest {proposals[0].file}: {escape_control_codes(scrub(manifest))}\n"
        if len(manifest) <= MAX_MANIFEST_CHARS
        else ""
    )
    instructions = USER_MANIFEST_NOTE if any(item.given for item in proposals) else PROPOSAL_INSTRUCTIONS
    return [
        f"{PROPOSALS_HEADING}\n{escape_control_codes(scrub(json.dumps(payload, ensure_ascii=False, indent=1)))}\n"
        f"{manifest_text}{instructions}",
        *question,
    ]
