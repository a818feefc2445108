"""How the index of a run is made: by executing the manifest that the Data Engineer hands over, or by a script of its.

Manifests are executed in the confined reader (`m3b.dataset.jobs`), without a network, with the data folder read-only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import Selection, find_json_object
from m3b.agents.check_result import CheckResult, Issue, reject
from m3b.agents.checks.index import CLASS_NAMES_KEY
from m3b.data.phi import scrub
from m3b.dataset.jobs import MANIFEST_PATH, PROPOSALS_FOLDER
from m3b.errors import DataError, DataRejected
from m3b.events import NoteAdded, StepStarted
from m3b.isolation.untrusted import UnsafePathError, is_file, read_bytes, read_json, write_atomic
from m3b.run.decision import make_decision_job
from m3b.run.folder import RunFolder
from m3b.writing import escape_control_codes, list_counts, write_text_atomically

if TYPE_CHECKING:
    from m3b.dataset.manifest.model import Manifest
    from m3b.dataset.manifest.overrides import Overrides
    from m3b.run.services import RunServices


ORIGIN_PROPOSED, ORIGIN_EDITED, ORIGIN_GIVEN, ORIGIN_SCRIPT = "proposed", "edited", "given", "script"
ORIGIN_SENTENCES = {
    ORIGIN_PROPOSED: "The index was made by m3b from a manifest that it proposed.",
    ORIGIN_EDITED: "The index was made by m3b from a manifest that the Data Engineer wrote.",
    ORIGIN_GIVEN: "The index was made by m3b from the manifest that the user gave.",
    ORIGIN_SCRIPT: "The index was made by a script of the Data Engineer's.",
}
"""Kind of origin -> sentence for people."""


@dataclass(frozen=True)
class IndexOrigin:
    """How an index was made.

    Args:
        kind: one of the `ORIGIN` constants.
        facts: `accounting` and more, from the execution of the manifest, or from the comparison with the archive.
    """

    kind: str
    facts: Mapping[str, Any]

    @property
    def manifest(self) -> Any:
        """The values of the manifest that was executed; None if a script made the index."""
        return self.facts.get("manifest")


EDIT_HINT = f"Edit {MANIFEST_PATH} (or copy another of {PROPOSALS_FOLDER}/), or remove it and write the index files with a script."


def execute_manifest(
    services: RunServices, selection: Selection, overrides: Overrides | None, closing_text: str = ""
) -> IndexOrigin | CheckResult:
    """Write the index files by the manifest that was handed over, if any; return a rejection if that fails.

    Args:
        closing_text: of the agent; it may rename the classes of the manifest.
        overrides: what the user fixed of the manifest; a whole manifest is executed whatever an agent wrote.
    """
    work, card = services.folder.work, services.card_of(selection)
    user_manifest = overrides.manifest if overrides is not None else None
    if user_manifest is not None:
        write_atomic(work, MANIFEST_PATH, manifest_to_json(user_manifest).encode())
    if card.path is None or not is_file(work, MANIFEST_PATH):
        return IndexOrigin(ORIGIN_SCRIPT, {})
    try:
        manifest = json.loads(read_bytes(work, MANIFEST_PATH, 2**20))
    except (OSError, UnsafePathError, ValueError) as error:
        return reject(
            Issue(
                f"{MANIFEST_PATH} is no JSON object: {error}. {EDIT_HINT}",
                "The manifest of the data cannot be used.",
                "manifest_unreadable",
            )
        )
    if user_manifest is None and (names := find_json_object(closing_text, CLASS_NAMES_KEY)):
        try:
            manifest = rename_classes(manifest, names[CLASS_NAMES_KEY])
        except ValueError as error:
            agent_message = f"{CLASS_NAMES_KEY} cannot be used: {error}. Correct it, or edit {MANIFEST_PATH}."
            return reject(Issue(agent_message, "The classes of the manifest were not renamed.", "class_names_unusable"))
        write_atomic(work, MANIFEST_PATH, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
    job = {"do": "execute", "task": selection.task, "name": card.root, "work": str(work), "manifest": manifest}
    answer = ask_reader(services, job, card.path)
    if answer.get("hopeless"):
        return reject(str(answer["error"]), end_error=DataRejected, is_fatal=True)
    if "error" in answer and user_manifest is not None:
        return reject(
            f"The manifest that you gave cannot be executed: {answer['error']}", end_error=DataRejected, is_fatal=True
        )
    if "error" in answer:
        user_message = f"The data cannot be read in the way that was proposed: {answer['error']}"
        agent_message = f"{MANIFEST_PATH} cannot be executed: {answer['error'].rstrip('.')}. {EDIT_HINT}"
        return reject(Issue(agent_message, user_message, "manifest_not_executable"))
    if user_manifest is not None:
        return IndexOrigin(ORIGIN_GIVEN, answer)
    is_proposed = manifest in load_survey_file(services.folder, PROPOSALS_FILE, [])
    return IndexOrigin(ORIGIN_PROPOSED if is_proposed else ORIGIN_EDITED, answer)


CLASS_KEYS = {"labels": ("classes", "columns"), "masks": ("classes", "per_file", "layers"), "boxes": ("classes",)}
"""Part of a manifest -> its objects whose keys are names of classes."""
MAX_CLASS_NAME_CHARS = 200


def rename_classes(manifest: Any, names: Any) -> Any:
    """Return a manifest (JSON values) whose classes have other names; unchanged if they have these names already.

    Args:
        names: name in the manifest -> new name, for each class.

    Raises:
        ValueError: the names are not those of the classes of the manifest, or no two new ones may be told apart.
    """
    if not isinstance(manifest, dict) or not isinstance(names, dict):
        raise ValueError("it must be an object: name in the manifest -> new name")
    is_text = all(isinstance(name, str) and 0 < len(name.strip()) <= MAX_CLASS_NAME_CHARS for name in names.values())
    if not is_text or len({str(name).strip().casefold() for name in names.values()}) < len(names):
        raise ValueError("each new name must be a text, and another one than those of the other classes")
    new_names = {old: new.strip() for old, new in names.items()}
    parts = {name: part for name in CLASS_KEYS if isinstance(part := manifest.get(name), dict)}
    classes = {name: _list_class_names(name, part) for name, part in parts.items()}
    renamed = [name for name, available in classes.items() if set(available) == set(new_names)]
    if not renamed and any(set(available) == set(new_names.values()) for available in classes.values()):
        return manifest
    if not renamed:
        known = next((available for available in classes.values() if available), [])
        raise ValueError(
            f"the classes of the manifest are {', '.join(known) or 'not named in it'}; name each of them once"
        )
    return {**manifest, **{name: _rename_keys(name, parts[name], new_names) for name in renamed}}


def _list_class_names(name: str, part: Mapping[str, Any]) -> list[str]:
    sources = [part.get(key) for key in (("columns", "classes") if name == "labels" else ("classes",))]
    return next((list(source) for source in sources if isinstance(source, dict) and source), [])


def _rename_keys(name: str, part: Mapping[str, Any], new_names: Mapping[str, str]) -> dict[str, Any]:
    """Return a part of a manifest whose classes have other names; a class that stands for its own text in the data keeps that text."""
    by_file = any(part.get(key) for key in ("per_file", "layers")) or part.get("above") is not None
    needs_no_codes = name == "masks" and by_file
    changed = dict(part)
    for key in CLASS_KEYS[name]:
        if isinstance(values := part.get(key), dict):
            changed[key] = {
                new_names.get(old, old): value if value or key != "classes" or needs_no_codes else [old]
                for old, value in values.items()
            }
    return changed


def explain_manifest(services: RunServices, selection: Selection, content: bytes) -> str:
    """Return lines for an agent on a manifest that it wrote: problems or counts, exclusions, difference to the proposal."""
    card = services.card_of(selection)
    try:
        manifest = json.loads(content)
    except ValueError as error:
        return f"{MANIFEST_PATH} is no JSON object: {error}."
    proposals = load_survey_file(services.folder, PROPOSALS_FILE, [])
    if manifest in proposals:
        return f"{MANIFEST_PATH} equals proposal {proposals.index(manifest) + 1}."
    if card.path is None or not isinstance(manifest, dict):
        return ""
    job = {"do": "count", "manifest": manifest, "proposal": proposals[0] if proposals else None}
    answer = ask_reader(services, job, card.path)
    if "error" in answer:
        return f"{MANIFEST_PATH} is not valid: {answer['error']}"
    lines = [f"{MANIFEST_PATH} gives:", *answer["lines"]]
    if answer["difference"]:
        lines += ["Difference to proposal 1:", *answer["difference"]]
    return escape_control_codes(scrub("\n".join(lines)))


LABELS_FROM_KEY, LEFT_OUT_KEY = "labels_from", "left_out"
"""Keys of the closing text under which a Data Engineer gives reasons."""
MAX_REASON_CHARS = 300


def compare_with_archive(
    services: RunServices, selection: Selection, root: Path, origin: IndexOrigin, closing_text: str
) -> IndexOrigin | CheckResult:
    """Compare an index without a proposed or given manifest with the archive.

    Returns the origin with the facts of the comparison, or a rejection if index and archive differ and the closing text
    gives no reason.

    Args:
        root: folder of the index, from which its paths count, out of the agents' reach.
    """
    card = services.card_of(selection)
    if card.path is None or not card.path.is_dir() or origin.kind not in (ORIGIN_SCRIPT, ORIGIN_EDITED):
        return origin
    stored_job = load_survey_file(services.folder, JOB_FILE, {})
    default = make_decision_job(services.request, card, None, tasks=[selection.task], classes=selection.classes)
    comparison_job = {
        "do": "compare",
        "task": selection.task,
        "name": card.root,
        "base": str(root),
        "manifest": origin.facts.get("manifest"),
    }
    services.emit(StepStarted("comparing the index with the data folder"))
    answer = ask_reader(services, {**default, **stored_job, **comparison_job}, card.path)
    if "error" in answer:
        services.emit(NoteAdded(f"The index could not be compared with the data folder: {answer['error']}"))
        return origin
    return find_objection(answer, closing_text) or replace(origin, facts={**answer, **origin.facts})


def find_objection(comparison: Mapping[str, Any], closing_text: str) -> CheckResult | None:
    """Return the rejection of an index that contradicts the archive or excludes cases without a reason; else None."""
    issues = []
    if comparison["expected"] and not comparison["fits"] and not extract_reason(closing_text, LABELS_FROM_KEY):
        differ, targets = comparison["compared"] - comparison["agreeing"], comparison["targets"]
        user_message = (f"{differ:,} of {comparison['compared']:,} cases of the index have other {targets} than "
                        f"{comparison['source']}, e.g. "
                f"{'; '.join(comparison['differing'])}.")  # fmt: skip
        issues.append(
            Issue(
                f"{user_message} Take the {targets} from there. {_ask_for_reason(LABELS_FROM_KEY, 'where they come from, and why')}",
                user_message,
                "other_targets",
            )
        )
    if comparison["leaves_out"] and not extract_reason(closing_text, LEFT_OUT_KEY):
        user_message = (f"{comparison['missing']:,} of {comparison['usable']:,} cases that can be used are not in "
                        f"the index, though their "
                f"images open and are no copies, e.g. {', '.join(comparison['absent'])}.")  # fmt: skip
        issues.append(
            Issue(
                f"{user_message} Add them. {_ask_for_reason(LEFT_OUT_KEY, 'why they are left out')}",
                user_message,
                "cases_left_out",
            )
        )
    return reject(*issues) if issues else None


def _ask_for_reason(key: str, placeholder: str) -> str:
    return f'Only where that is right as it is, reply with {{"{key}": "<{placeholder}>"}}; people will read it.'


def extract_reason(closing_text: str, key: str) -> str:
    """Return the reason that the Data Engineer gives in the closing text under a key; '' if there is none."""
    reply_object = find_json_object(closing_text, key)
    return " ".join(str(reply_object[key] or "").split())[:MAX_REASON_CHARS] if reply_object else ""


def keep_reasons(services: RunServices, closing_text: str) -> str:
    """Return a closing text with the reasons that earlier ones of this process gave and it does not repeat."""
    missing = []
    for key in (LABELS_FROM_KEY, LEFT_OUT_KEY):
        if reason := extract_reason(closing_text, key):
            services.index_reasons[key] = reason
        elif key in services.index_reasons:
            missing.append(json.dumps({key: services.index_reasons[key]}))
    return "\n".join([closing_text, *missing])


def describe_index_origin(run: RunFolder, origin: IndexOrigin, closing_text: str) -> tuple[str, ...]:
    """Return sentences for people on origin, agreement with the archive, reasons, what was used, and the exclusions."""
    facts, lines = origin.facts, [ORIGIN_SENTENCES[origin.kind]]
    targets_word = str(facts.get("targets", "labels"))
    if facts.get("compared") and origin.kind == ORIGIN_SCRIPT:
        qualifier = "" if facts["fits"] else "only "
        lines.append(
            f"Its {targets_word} agree with {facts['source']} in {qualifier}{facts['agreeing']:,} of "
            f"{facts['compared']:,} cases."
        )
    elif origin.kind == ORIGIN_SCRIPT:
        lines.append(f"Its {targets_word} were not compared with the archive: nothing there could be joined with it.")
    if facts.get("missing"):
        lines.append(f"{facts['missing']:,} of {facts['usable']:,} cases that could be used are not in it.")
    for key, heading in (
        (LABELS_FROM_KEY, f"{targets_word.capitalize()} are not those of the archive"),
        (LEFT_OUT_KEY, "Cases are left out"),
    ):
        if given_reason := extract_reason(closing_text, key):
            lines.append(f"{heading}, by the Data Engineer's word: {given_reason}")
    return (*lines, *(describe_accounting(facts) if facts else ()))


def describe_accounting(answer: Mapping[str, Any]) -> list[str]:
    """Return sentences for people on the files that were used and the exclusions."""
    accounting = answer["accounting"]
    used = sum(accounting["used"].values())
    uses = f": {list_counts(accounting['used'])}" if used else ""
    lines = [f"{used:,} of {accounting['files']:,} files of the data folder are used{uses}."]
    for exclusion in accounting["left_out"][:6]:
        files = "1 file is" if exclusion["files"] == 1 else f"{exclusion['files']:,} files are"
        lines.append(f"{files} left out: {exclusion['reason']}.")
    if answer.get("crossing"):
        lines.append(f"{answer['crossing']} patients or copies lay on both sides of the data set's own split.")
    if answer.get("named_but_absent"):
        lines.append(f"{answer['named_but_absent']:,} that the table names are not in the folder.")
    return [*lines, *(f"{note[:1].upper()}{note[1:]}." for note in answer["notes"])]


def summarize_accounting(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of files by use and by reason of exclusion, without file names; empty if it is not known."""
    if "accounting" not in answer:
        return {}
    accounting = answer["accounting"]
    exclusions = [{key: item[key] for key in ("reason", "files")} for item in accounting["left_out"]]
    counts = {key: answer.get(key, 0) for key in ("crossing", "named_but_absent")}
    return {"files": accounting["files"], "used": accounting["used"], "left_out": exclusions, **counts}


def find_review_reason(run: RunFolder, origin: IndexOrigin) -> str:
    """Return why a person should review the index before training; '' if its evidence suffices."""
    if origin.kind == ORIGIN_SCRIPT and not (origin.facts.get("compared") and origin.facts.get("fits")):
        return f"A script made the index, and nothing in the data folder confirms its {origin.facts.get('targets', 'labels')}."
    if origin.kind == ORIGIN_GIVEN:
        return ""
    return str(load_survey_file(run, DOUBT_FILE, ""))


def list_assumptions(run: RunFolder, origin: IndexOrigin) -> tuple[str, ...]:
    """Return what the request says and nothing in the folder confirms; nothing if the user gave the manifest."""
    return () if origin.kind == ORIGIN_GIVEN else tuple(load_survey_file(run, ASSUMPTIONS_FILE, []))


def list_displayed_proposals(run: RunFolder, manifest: Any) -> list[dict[str, Any]]:
    """Return the accepted manifest, then the proposals that were not taken, for people.

    Args:
        manifest: the values of the accepted manifest; None if a script made the index.
    """
    proposals = load_survey_file(run, EVIDENCE_FILE, [])
    accepted = [proposal for proposal in proposals if manifest is not None and proposal.get("manifest") == manifest]
    unproposed = {
        "title": "an index that the agent made" if manifest is None else "a manifest that was edited",
        "manifest": manifest,
    }
    return [*(accepted or [unproposed]), *(proposal for proposal in proposals if proposal not in accepted)]


def manifest_to_json(manifest: Manifest) -> str:
    """Return a manifest as JSON text for people to edit."""
    return json.dumps(manifest.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=False) + "\n"


SURVEY_FOLDER = "survey"
"""Folder of the run with the survey, its job and the proposals, out of the agents' reach."""
JOB_FILE, PROPOSALS_FILE, EVIDENCE_FILE = "asked.json", "offered.json", "evidence.json"
"""Files with the job of the survey, the proposed manifests, and the same with titles and evidence."""
DOUBT_FILE, ASSUMPTIONS_FILE = "doubt.json", "assumptions.json"
"""Files with the open question (why the best proposal may not be taken without asking), and with what the request says and
nothing in the folder confirms."""


def store_survey_file(run: RunFolder, name: str, value: object) -> None:
    """Store a value out of the agents' reach, for this run and a resumed one."""
    folder = run.get_path(SURVEY_FOLDER)
    folder.mkdir(exist_ok=True)
    write_text_atomically(folder / name, json.dumps(value, ensure_ascii=False))


def load_survey_file(run: RunFolder, name: str, default: Any) -> Any:
    """Return what `store_survey_file` stored; `default` if there is nothing to read."""
    try:
        return read_json(run.get_path(SURVEY_FOLDER), name)
    except (OSError, ValueError):
        return default


def ask_reader(services: RunServices, job: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return the answer of the confined reader to a job of `m3b.dataset.jobs`; `error` in it is why there is none.

    Args:
        root: the data folder.
    """
    folder = services.folder.get_path(SURVEY_FOLDER)
    folder.mkdir(exist_ok=True)
    try:
        return services.executor.run_job({**job, "root": str(root), "place": str(folder)}, root)
    except DataError as error:
        return {"error": f"Reading it failed: {error}"}
