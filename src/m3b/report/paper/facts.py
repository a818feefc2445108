"""The facts of a paper kit: every number of it, with the locked file of the run that it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel, TrainingModule, from_json, kind_of
from m3b.data.index import Index, read_index
from m3b.errors import M3bError, UsageError
from m3b.events import ArtifactAccepted, Event, IndexAudited, RunEnded, RunStarted
from m3b.isolation import untrusted
from m3b.journal import JournalError, read_journal
from m3b.markup.formatting import shorten
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.metrics.metric_tables import lower_is_better, metric_title
from m3b.models.model_card import remove_file_names
from m3b.report.paper.characteristics import CharacteristicRow, describe_characteristics
from m3b.tasks import get_family, names
from m3b.tasks.user_metric import BOOTSTRAP_DRAWS
from m3b.writing import to_one_line

JOURNAL, METRICS, PROVENANCE, MANIFEST = (
    "journal.jsonl", "model/metrics.json", "model/provenance.json", "manifest.json"
)  # fmt: skip
EARLIER_MANIFEST = "reading.json"
"""Name of the manifest in runs of an earlier version of m3b."""
INDEX_TRAIN, INDEX_TEST = "locked/Datapath/train.json", "locked/Datapath/test.json"
MAX_JSON_BYTES = 64 * 2**20
INTERVAL_PERCENT = 95
"""Confidence of all intervals of m3b (`m3b.metrics.bootstrap`)."""
MEASURED_STATUSES = ("completed", "below_range")
"""Statuses of runs that have measured an untouched model on locked test cases."""
MAX_LEAF_CHARS = 80
"""Longest value of a plan that is shown as a setting."""


@dataclass(frozen=True)
class PaperFact:
    """One number, name or sentence of a paper kit.

    Args:
        value: JSON value as the source holds it, or as it was counted from the source.
        text: the value as documents print it, on one line.
        source: file of the run folder and, after `#`, the place in it.
    """

    name: str
    value: Any
    text: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "text": self.text, "source": self.source}


@dataclass(frozen=True)
class MetricRow:
    """Names of the facts of one measured metric, for tables.

    Args:
        prefix: the facts are `{prefix}.value`, `{prefix}.interval`, `{prefix}.n` and `{prefix}.baseline`; and
            `{prefix}.group`, the class, subgroup or external set, if it is not for all test cases.
    """

    prefix: str
    title: str


@dataclass
class PaperFacts:
    """All facts of a run, and the rows of the tables that are made from them."""

    run_id: str
    facts: dict[str, PaperFact] = field(default_factory=dict)
    characteristics: tuple[CharacteristicRow, ...] = ()
    metric_rows: list[MetricRow] = field(default_factory=list)
    class_rows: list[MetricRow] = field(default_factory=list)
    subgroup_rows: list[MetricRow] = field(default_factory=list)
    external_rows: list[MetricRow] = field(default_factory=list)
    setting_names: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, source: str, text: str | None = None) -> None:
        """Add a fact; None and empty texts are left out."""
        if value is None or value == "" or value == []:
            return
        self.facts[name] = PaperFact(name, value, to_one_line(format_value(value) if text is None else text), source)

    def __contains__(self, name: str) -> bool:
        return name in self.facts

    def text_of(self, name: str) -> str:
        """Return the printed text of a fact.

        Raises:
            KeyError: the run has no such fact.
        """
        return self.facts[name].text

    def names_below(self, prefix: str) -> list[str]:
        """Return the names of the facts that begin with `prefix.`, in the order in which they were added."""
        return [name for name in self.facts if name.startswith(f"{prefix}.")]


def format_value(value: Any) -> str:
    """Return a JSON value as documents print it: 1,234, 0.05, `a, b` for lists."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value))
    return shorten(value, 2000)


def collect_facts(run_dir: Path) -> PaperFacts:
    """Return the facts of a finished run.

    Raises:
        UsageError: the run has no accepted measurement, or one of its locked files cannot be read.
    """
    run_id = run_dir.absolute().name
    events = _read_events(run_dir)
    result = _find_result(events, run_id)
    artifacts = {event.artifact: event.value for event in events if isinstance(event, ArtifactAccepted)}
    facts = PaperFacts(run_id)
    try:
        selection = from_json(Selection, artifacts[kind_of(Selection)])
        data = from_json(DataIndex, artifacts[kind_of(DataIndex)])
        model = from_json(TrainedModel, artifacts[kind_of(TrainedModel)])
        if selection.task not in names():
            raise UsageError(f"The task {selection.task!r} of the run {run_id} is unknown. Install its plug-in.")
        index = read_index(run_dir / "locked", selection.task)
        metrics = _read_json(run_dir, METRICS)
        provenance = _read_json(run_dir, PROVENANCE)
    except (KeyError, TypeError, ValueError, OSError, M3bError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"The paper kit of the run {run_id} cannot be written: {error}. `m3b verify` says which files were changed."
        ) from error
    started = next(event for event in events if isinstance(event, RunStarted))
    facts.add("run.id", started.id, f"{JOURNAL}#run_started/id")
    _add_run(facts, result, selection, provenance)
    _add_data(facts, data, index, events)
    _add_manifest(facts, run_dir)
    _add_training(facts, artifacts, model)
    _add_metrics(facts, metrics)
    _add_external(facts, result)
    facts.characteristics = describe_characteristics(index, data)
    for row in facts.characteristics:
        for column, cell in row.cells.items():
            facts.add(f"{row.name}.{column}", cell.value, _index_source(column, row.source), cell.text)
    return facts


# --- reading -------------------------------------------------------------------------------------------------------


def _read_events(run_dir: Path) -> list[Event]:
    file = run_dir / JOURNAL
    try:
        events = list(read_journal(file))
        if not any(isinstance(event, RunStarted) for event in events):
            raise JournalError("it holds no run")
        return events
    except (JournalError, OSError) as error:
        raise UsageError(f"The journal {file} cannot be read: {error}. `m3b verify` says what was changed.") from error


def _find_result(events: Sequence[Event], run_id: str) -> dict[str, Any]:
    """Return the result at the end of the journal, if a model was measured and accepted as untouched.

    Raises:
        UsageError: the run has not ended, or it ended without such a measurement; the message gives its reason.
    """
    results = [event.result for event in events if isinstance(event, RunEnded)]
    if not results or not isinstance(events[-1], RunEnded):
        raise UsageError(f"The run {run_id} has not ended, so there is nothing to report yet. `m3b resume` goes on.")
    result = results[-1]
    if result.get("status") not in MEASURED_STATUSES or not as_dict(result.get("primary")):
        raise UsageError(
            f"There is no paper kit of the run {run_id}: it ended as {result.get('status', 'unknown')} without a measured "
            f"model. {to_one_line(str(result.get('reason') or ''))}".rstrip()
        )
    return result


def _read_json(run_dir: Path, name: str) -> dict[str, Any]:
    return as_dict(json.loads(untrusted.read_text(run_dir, name, MAX_JSON_BYTES)))


# --- parts of the run ----------------------------------------------------------------------------------------------


def _add_run(facts: PaperFacts, result: Mapping[str, Any], selection: Selection, provenance: Mapping[str, Any]) -> None:
    facts.add("run.request", result.get("request"), f"{JOURNAL}#run_ended/request")
    facts.add("run.status", result.get("status"), f"{JOURNAL}#run_ended/status")
    facts.add("run.verdict", result.get("reason"), f"{JOURNAL}#run_ended/reason")
    if int(result.get("test_looks") or 0) > 1:
        facts.add("run.test_looks", result["test_looks"], f"{JOURNAL}#run_ended/test_looks")
    facts.add("run.integrity", result.get("integrity"), f"{JOURNAL}#run_ended/integrity")
    facts.add("run.date", str(provenance.get("made_at", ""))[:10], f"{PROVENANCE}#made_at")
    facts.add("run.seed", as_dict(provenance.get("options")).get("seed"), f"{PROVENANCE}#options/seed")
    facts.add("run.llm", ", ".join(sorted(set(map(str, as_dict(provenance.get("llm")).values())))), f"{PROVENANCE}#llm")
    for package, version in as_dict(provenance.get("versions")).items():
        facts.add(f"version.{package}", str(version), f"{PROVENANCE}#versions/{package}")
    facts.add("selection.task", selection.task, f"{JOURNAL}#selection/task")
    facts.add("selection.data", selection.card, f"{JOURNAL}#selection/card")
    facts.add("selection.metric", selection.metric, f"{JOURNAL}#selection/metric", metric_title(selection.metric))
    facts.add("statistics.interval", INTERVAL_PERCENT, "m3b.metrics.bootstrap")
    facts.add("statistics.draws", BOOTSTRAP_DRAWS, "m3b.tasks.user_metric.BOOTSTRAP_DRAWS")


def _add_data(facts: PaperFacts, data: DataIndex, index: Index, events: Sequence[Event]) -> None:
    source = f"{JOURNAL}#index"
    for split in ("train", "test"):
        facts.add(f"cases.{split}", data.cases.get(split), f"{source}/cases/{split}")
        unit = "patients" if data.patients_known else "groups"
        facts.add(f"{unit}.{split}", data.patients.get(split), f"{source}/patients/{split}")
    facts.add("cases.all", sum(data.cases.values()), f"{source}/cases")
    facts.add(
        "patients.all" if data.patients_known else "groups.all", sum(data.patients.values()), f"{source}/patients"
    )
    facts.add("data.grouped_by", data.grouped_by, f"{source}/grouped_by")
    facts.add("data.classes", list(data.classes), f"{source}/classes")
    title = get_family(data.task).format_title(data.classes)
    facts.add("model.title", title, f"{source}/classes", f"{title[:1].lower()}{title[1:]}")
    facts.add("data.classes.count", len(data.classes) or None, f"{source}/classes")
    if index.channels:
        facts.add("data.channels", list(index.channels), INDEX_TRAIN)
    if index.covariates:
        facts.add("data.covariates", list(index.covariates), INDEX_TRAIN)
    accounting = data.accounting
    facts.add("files.all", accounting.get("files"), f"{source}/accounting/files")
    if accounting:
        used = sum(as_dict(accounting.get("used")).values())
        facts.add("files.used", used, f"{source}/accounting/used")
        facts.add("files.excluded", accounting["files"] - used, f"{source}/accounting/left_out")
    for position, exclusion in enumerate(as_list(accounting.get("left_out"))):
        place = f"{source}/accounting/left_out/{position}"
        facts.add(f"exclusions.{position}.files", exclusion["files"], f"{place}/files")
        facts.add(f"exclusions.{position}.reason", remove_file_names(exclusion["reason"]), f"{place}/reason")
    facts.add("files.absent", accounting.get("named_but_absent") or None, f"{source}/accounting/named_but_absent")
    facts.add("groups.moved", accounting.get("crossing") or None, f"{source}/accounting/crossing")
    if not accounting:
        for position, sentence in enumerate(data.read):
            facts.add(f"reading.{position}", remove_file_names(sentence), f"{source}/read/{position}")
    for event in events:
        if isinstance(event, IndexAudited):
            audit = as_dict(event.facts)
            facts.add("audit.opened", audit.get("opened"), f"{JOURNAL}#audit/opened")
            shapes = as_dict(audit.get("shapes"))
            if shapes:
                facts.add("audit.shape", next(iter(shapes)), f"{JOURNAL}#audit/shapes")
                facts.add("audit.shapes", len(shapes), f"{JOURNAL}#audit/shapes")
            for name in facts.names_below("finding"):
                del facts.facts[name]  # of an earlier audit
            for position, finding in enumerate(event.findings):
                message = remove_file_names(str(as_dict(finding).get("message") or ""))
                facts.add(f"finding.{position}", message, f"{JOURNAL}#audit/findings/{position}")


def _add_manifest(facts: PaperFacts, run_dir: Path) -> None:
    """Add where targets come from and how the split was made; nothing if a script made the index."""
    name = next((name for name in (MANIFEST, EARLIER_MANIFEST) if (run_dir / name).is_file()), "")
    if not name:
        return
    try:
        manifest = _read_json(run_dir, name)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{run_dir / name} cannot be read: {error}. `m3b verify` says what was changed.") from error
    for target in ("labels", "value", "survival", "states", "report", "masks", "boxes"):
        if target not in manifest:
            continue
        columns = list(dict.fromkeys(_iter_columns(manifest[target], as_dict(manifest.get("tables")))))
        facts.add("reference.kind", target, name, _REFERENCE_KINDS[target])
        facts.add("reference.columns", columns, f"{name}#{target}", " and ".join(columns))
        break
    values = as_dict(manifest.get("split"))
    if values.get("value"):
        facts.add("split.source", values["value"], f"{name}#split/value", "the data set's own split")
    else:
        from m3b.dataset.manifest.model import Split

        split = Split.model_validate(values)
        facts.add("split.share", split.share, f"{name}#split/share", f"{100 * split.share:g}%")
        facts.add("split.seed", split.seed, f"{name}#split/seed")


_REFERENCE_KINDS = {
    "labels": "class labels", "value": "a number for each case", "survival": "a time and an event for each case",
    "states": "whether each image is abnormal", "report": "written reports", "masks": "masks", "boxes": "boxes",
}  # fmt: skip


def _iter_columns(part: Any, tables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of tables that a part of a manifest takes its values from, in words."""
    if isinstance(part, str):
        for name, column in re.findall(r"\{([^{}.]+)\.([^{}]+)\}", part):
            files = as_dict(tables.get(name)).get("files")
            if files:
                yield f"the column {column} of {files if isinstance(files, str) else ', '.join(map(str, files))}"
    elif isinstance(part, Mapping | list | tuple):
        for item in part.values() if isinstance(part, Mapping) else part:
            yield from _iter_columns(item, tables)


def _add_training(facts: PaperFacts, artifacts: Mapping[str, Any], model: TrainedModel) -> None:
    if kind_of(TrainingModule) in artifacts:
        module = from_json(TrainingModule, artifacts[kind_of(TrainingModule)])
        facts.add("model.parameters", module.parameters, f"{JOURNAL}#module/parameters")
        for path, value in _iter_leaves(module.plan):
            facts.add(f"plan.{path}", value, f"{JOURNAL}#module/plan/{path.replace('.', '/')}")
            facts.setting_names.append(f"plan.{path}")
        facts.setting_names = [name for name in facts.setting_names if name in facts]
        augmentations = sorted(
            key for key, value in as_dict(module.plan.get("augment")).items() if value and key != "often"
        )
        facts.add("model.augmentations", augmentations, f"{JOURNAL}#module/plan/augment")
    facts.add("model.refit", model.refit or None, f"{JOURNAL}#model/refit")
    if to_finite_number(model.validation.get("value")) is not None:
        _add_measure(facts, "validation", model.validation, f"{JOURNAL}#model/validation")


def _iter_leaves(part: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of the settings of a plan; long lists and texts are left out."""
    for key, value in part.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _iter_leaves(value, f"{path}.")
        elif value is not None and value != [] and len(json.dumps(value)) <= MAX_LEAF_CHARS:
            yield path, value


# --- measurements --------------------------------------------------------------------------------------------------


def _add_measure(facts: PaperFacts, prefix: str, measure: Mapping[str, Any], source: str) -> bool:
    """Add value, interval, number of cases and baseline of a measure; return whether it is defined."""
    value, low, high = (to_finite_number(measure.get(key)) for key in ("value", "low", "high"))
    if value is None:
        return False
    facts.add(f"{prefix}.metric", measure.get("name"), f"{source}/name", metric_title(str(measure.get("name"))))
    facts.add(f"{prefix}.value", value, f"{source}/value", f"{value:.3f}")
    if low is not None and high is not None:
        facts.add(f"{prefix}.interval", [low, high], f"{source}/low,high", f"{low:.3f} to {high:.3f}")
    facts.add(f"{prefix}.n", measure.get("n"), f"{source}/n")
    facts.add(f"{prefix}.patients", measure.get("patients"), f"{source}/patients")
    baseline = to_finite_number(measure.get("baseline"))
    if baseline is not None:
        facts.add(f"{prefix}.baseline", baseline, f"{source}/baseline", f"{baseline:.3f}")
    return True


def _format_metric_title(name: str) -> str:
    return f"{metric_title(name)} (lower is better)" if lower_is_better(name) else metric_title(name)


def _add_metrics(facts: PaperFacts, metrics: Mapping[str, Any]) -> None:
    _add_measure(facts, "primary", as_dict(metrics.get("primary")), f"{METRICS}#primary")
    for name, measure in as_dict(metrics.get("metrics")).items():
        if _add_measure(facts, f"metric.{name}", as_dict(measure), f"{METRICS}#metrics/{name}"):
            facts.metric_rows.append(MetricRow(f"metric.{name}", _format_metric_title(name)))
    for position, entry in enumerate(as_list(metrics.get("per_class"))):
        prefix, source = f"class.{position}", f"{METRICS}#per_class/{position}"
        if _add_measure(facts, prefix, as_dict(entry.get("auroc")), f"{source}/auroc"):
            facts.add(f"{prefix}.group", str(entry.get("name")), f"{source}/name", shorten(str(entry.get("name")), 60))
            facts.class_rows.append(MetricRow(prefix, "AUROC against the rest"))
    for position, entry in enumerate(as_list(metrics.get("per_label"))):
        for name, measure in as_dict(entry.get("metrics")).items():
            prefix, source = f"label.{position}.{name}", f"{METRICS}#per_label/{position}"
            if _add_measure(facts, prefix, as_dict(measure), f"{source}/metrics/{name}"):
                label = str(entry.get("name"))
                facts.add(f"{prefix}.group", label, f"{source}/name", shorten(label, 60))
                facts.class_rows.append(MetricRow(prefix, _format_metric_title(name)))
    confusion = [] if metrics.get("multi_label") else as_list(metrics.get("confusion"))  # else counts of each finding
    for row_number, row in enumerate(confusion):
        for column_number, count in enumerate(as_list(row)):
            place = f"{row_number}/{column_number}"
            facts.add(f"confusion.{row_number}.{column_number}", count, f"{METRICS}#confusion/{place}")
    details = as_dict(metrics.get("details"))
    for attribute, groups in as_dict(details.get("subgroups")).items():
        for position, entry in enumerate(as_list(groups)):
            prefix, source = f"subgroup.{attribute}.{position}", f"{METRICS}#details/subgroups/{attribute}/{position}"
            if _add_measure(facts, prefix, as_dict(entry.get("measure")), f"{source}/measure"):
                title = _format_metric_title(str(as_dict(entry["measure"]).get("name")))
                group = f"{attribute}: {entry.get('group')}"
                facts.add(f"{prefix}.group", group, f"{source}/group", shorten(group, 60))
                facts.subgroup_rows.append(MetricRow(prefix, title))
    _add_details(facts, details)


def _add_details(facts: PaperFacts, details: Mapping[str, Any]) -> None:
    """Add the checks of robustness and uncertainty, and the details of numbers and times."""
    source = f"{METRICS}#details"
    for alteration, control in as_dict(details.get("control")).items():
        facts.add(f"control.{alteration}.n", control.get("n"), f"{source}/control/{alteration}/n")
        change = to_finite_number(control.get("change"))
        if change is not None:
            text = f"{change:.3f}"
            facts.add(f"control.{alteration}.change", change, f"{source}/control/{alteration}/change", text)
    familiarity = as_dict(details.get("out_of_distribution"))
    for key in ("flagged", "n"):
        facts.add(f"ood.{key}", familiarity.get(key), f"{source}/out_of_distribution/{key}")
    sets = as_dict(details.get("prediction_sets"))
    for key in ("promised", "held", "mean_size", "abstained"):
        facts.add(f"sets.{key}", sets.get(key), f"{source}/prediction_sets/{key}")
    for key in ("missed", "invented"):
        for label, count in as_dict(details.get(key)).items():
            facts.add(f"{key}.{shorten(label, 60)}", count, f"{source}/{key}/{label}")
    for key in ("bias", "limits_of_agreement"):
        value = details.get(key)
        if value is not None:
            numbers = [number for item in (value if isinstance(value, list) else [value])
                       if (number := to_finite_number(item)) is not None]  # fmt: skip
            facts.add(f"agreement.{key}", value, f"{source}/{key}", " to ".join(f"{number:.3f}" for number in numbers))
    facts.add("results.quantity", details.get("quantity"), f"{source}/quantity")
    facts.add("results.distance_unit", details.get("distance_unit"), f"{source}/distance_unit")
    for key in ("events", "censored", "comparable_pairs"):
        facts.add(f"survival.{key}", details.get(key), f"{source}/{key}")


def _add_external(facts: PaperFacts, result: Mapping[str, Any]) -> None:
    for position, (name, external) in enumerate(as_dict(result.get("external")).items()):
        prefix, source = f"external.{position}", f"{JOURNAL}#run_ended/external/{name}"
        facts.add(f"{prefix}.name", name, source, shorten(name, 60))
        if not external.get("primary"):
            facts.add(f"{prefix}.reason", remove_file_names(str(external.get("reason") or "")), f"{source}/reason")
            continue
        facts.add(f"{prefix}.cases", external.get("cases"), f"{source}/cases")
        facts.add(f"{prefix}.patients", external.get("patients"), f"{source}/patients")
        for metric, measure in as_dict(external.get("metrics")).items():
            if _add_measure(facts, f"{prefix}.{metric}", as_dict(measure), f"{source}/metrics/{metric}"):
                facts.add(f"{prefix}.{metric}.group", name, source, shorten(name, 60))
                facts.external_rows.append(MetricRow(f"{prefix}.{metric}", _format_metric_title(metric)))


def _index_source(column: str, note: str) -> str:
    """Return the source of a cell of Table 1."""
    file = {"train": INDEX_TRAIN, "test": INDEX_TEST}.get(column, "locked/Datapath")
    return f"{file}, {note}"
