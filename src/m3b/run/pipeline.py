"""`Pipeline`: one request in, one verified model out."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from m3b.display import make_html_table, shorten
from m3b.engines import LOCAL, EngineError, EngineName, EngineOptions
from m3b.errors import SandboxError, SettingError, UsageError
from m3b.isolation.sandbox import Sandbox, choose_sandbox
from m3b.llm import LLM, choose_default_spec, connect, describe_unused_keys
from m3b.llm.base import spec_of
from m3b.llm.offline import forbid_remote_models, is_offline
from m3b.run.extensions import UserCheck, UserTool, register_metrics, validate_extensions
from m3b.run.external_sources import parse_external_data
from m3b.run.folder import RunFolder, data_folders
from m3b.run.options import NamedOptions, Options, SandboxMode, ToolMode
from m3b.run.registry import register
from m3b.run.result import FINAL_STATUSES, Result
from m3b.run.training_overrides import TrainingOverrides
from m3b.workspace import Source, Workspace

if TYPE_CHECKING:
    from m3b.dataset.manifest.model import Manifest
    from m3b.dataset.manifest.overrides import Overrides
    from m3b.events import Event
    from m3b.run.dataset_preview import DatasetPreview
    from m3b.run.extensions import UserExtensions
    from m3b.run.external_sources import ExternalData
    from m3b.run.handle import RunHandle
    from m3b.run.overrides import OverrideArguments
    from m3b.run.stages import Stages, UserStages
    from m3b.run.state import RunState
    from m3b.tasks import Metric

    OnEvent = Callable[[Event], None]


ModelInput = str | LLM | Callable[..., Any]
ModelInputs = ModelInput | Mapping[str, ModelInput] | None


def parse_options(options: Options | None, named_options: dict[str, Any]) -> Options:
    """Return the options that were given, together or by name.

    Raises:
        UsageError: both were given, or an option does not exist.
    """
    unknown = sorted(set(named_options) - set(Options.__dataclass_fields__))
    if training_settings := [name for name in unknown if name in TrainingOverrides.__dataclass_fields__]:
        values = ", ".join(f"{name}={named_options[name]!r}" for name in training_settings)
        message = f"A setting of the training stands in an object of its own: training=TrainingOverrides({values})."
        raise SettingError(message, message, "setting_as_option")
    if unknown:
        known_options = ", ".join(Options.__dataclass_fields__)
        close_matches = difflib.get_close_matches(unknown[0], Options.__dataclass_fields__, 1)
        suggestion = f" Did you mean {close_matches[0]}?" if close_matches else ""
        raise UsageError(f"There is no option {', '.join(unknown)}.{suggestion} Options: {known_options}.")
    if options is not None and named_options:
        raise UsageError("Give either `options` or single options by name, not both.")
    return options or Options(**named_options)


CERTAIN_TASKS = ("segmentation", "report", "survival")
"""Tasks of which the words of a request leave no doubt, whatever the data shows."""
TASKS_OF_AN_IMAGE = ("diagnosis", "grading", "regression", "survival")
"""Tasks that tell something of an image as a whole: the labels in the data say which one a request means."""


def check_training_type(training: Any) -> TrainingOverrides:
    """Return the training overrides; those that fix nothing if there are none.

    Raises:
        UsageError: it is something else.
    """
    if training is None:
        return TrainingOverrides()
    if not isinstance(training, TrainingOverrides):
        raise UsageError(f"`training` takes m3b.TrainingOverrides(epochs=..., network=...); it is {training!r}.")
    return training


def resolve_engine(engine: EngineName | EngineOptions, training: TrainingOverrides) -> EngineOptions:
    """Return the engine with as many GPUs as the training is to have.

    Raises:
        UsageError: there is no such engine.
    """
    options = engine if isinstance(engine, EngineOptions) else EngineOptions(engine)
    if options.name == LOCAL.name:
        return options
    return replace(options, gpus=training.gpus or options.gpus or (1 if training.device == "cuda" else 0))


def change_engine(recorded: EngineOptions, engine: EngineName | EngineOptions | None) -> EngineOptions:
    """Return the engine of a resumed run: the recorded one, unless another is named."""
    if engine is None or engine == recorded.name:
        return recorded
    return engine if isinstance(engine, EngineOptions) else EngineOptions(engine)


def check_engine(options: EngineOptions) -> None:
    """Check that the engine answers and has a node for the jobs; nothing for this machine.

    Raises:
        EngineError: it does not answer.
        UsageError: no node has as much as a job asks for.
    """
    if options.name != LOCAL.name:
        from m3b.engines import open_engine, resolve_resources

        resolve_resources(options, open_engine(options.name).resources())


def replace_minutes(options: Options, minutes: Any) -> Options:
    """Return the options with the training minutes of a plan or request; unchanged if it states none."""
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    return replace(options, train_minutes=minutes) if is_number else options


def check_can_confirm(options: Options, ask_user: object) -> None:
    """Raise UsageError if the run has to ask before training and nobody can be asked."""
    if options.confirm is True and ask_user is None:
        raise UsageError(
            "m3b is to ask before it trains, and there is nobody to ask: run --confirm on a terminal, give `ask` with "
            "confirm=True, or leave confirm out."
        )


def parse_dataset_overrides(
    manifest: str | Path | Mapping[str, Any] | Manifest | None, overrides: OverrideArguments | None
) -> Overrides | None:
    """Return the user's dataset overrides; None, without importing anything, if there are none."""
    if manifest is None and not overrides:
        return None
    from m3b.run.overrides import parse_overrides

    return parse_overrides(manifest, overrides)


def check_models_offline(llm: ModelInputs, fallback: ModelInput | None, offline: bool, label_with: str = "") -> None:
    """Check that models are local if remote ones are forbidden, and that the segmenter folder exists; opens nothing.

    Raises:
        UsageError: a model is remote, or the segmenter folder does not exist.
    """
    if label_with and not Path(label_with).is_dir():
        raise UsageError(
            f"There is no segmenter folder {label_with} (label_with, --label-with). Train one with `m3b interactive train`, or "
            "fetch SAM."
        )
    if is_offline(offline):
        forbid_remote_models([*(llm.values() if isinstance(llm, Mapping) else [llm]), fallback])


def check_logger_names(options: Options) -> None:
    """Check that the loggers of a run can be used; imports nothing if there are none.

    Raises:
        UsageError: see `m3b.loggers.check_loggers`.
    """
    if options.log:
        from m3b.loggers import check_loggers

        check_loggers(options.log, is_offline=is_offline(options.offline))


def connect_models(
    llm: ModelInputs,
    tools: ToolMode,
    fallback: ModelInput | None,
    offline: bool,
    role_names: Sequence[str],
) -> dict[str, LLM]:
    """Return role -> language model, with `default` for the other roles.

    Args:
        role_names: the roles of the run.

    Raises:
        UsageError: a role or a provider does not exist.
    """
    if not isinstance(llm, Mapping):
        return {"default": connect(llm, tools=tools, fallback=fallback, local_only=offline)}
    known_roles = {"default", *role_names}
    unknown = sorted(set(llm) - known_roles)
    if unknown:
        raise UsageError(f"`llm` names the roles {', '.join(unknown)}; known are {', '.join(sorted(known_roles))}.")
    open_model = partial(connect, tools=tools, fallback=fallback, local_only=offline)
    llms = {name: open_model(model) for name, model in llm.items()}
    llms.setdefault("default", next(iter(llms.values())) if llms else open_model(None))
    return llms


def resolve_stages(user_stages: UserStages | None) -> Stages:
    """Return the user's stages after validation; empty, without importing anything, if there are none.

    Raises:
        UsageError: see `m3b.run.stages.validate_stages`.
    """
    if user_stages is None:
        return ()
    from m3b.run.stages import validate_stages

    return validate_stages(user_stages)


def role_names_of(user_stages: Stages) -> tuple[str, ...]:
    """Return the role names of the user's stages; m3b's own if there are none."""
    from m3b.agents.roles import ROLE_NAMES  # needed to construct a pipeline, not to import it

    return tuple(stage.role.name for stage in user_stages) if user_stages else ROLE_NAMES


def check_agents_ready(
    user_stages: Stages, workspace: Workspace, llms: Mapping[str, LLM], extensions: UserExtensions
) -> None:
    """Check that every agent has a prompt, tools that exist, and a model that can play its role.

    Raises:
        DataError: a prompt file of the workspace belongs to no role.
        UsageError: something else is missing.
    """
    workspace.check_prompts(role_names_of(user_stages))
    if user_stages:
        from m3b.run.stages import check_agents

        check_agents(user_stages, workspace, llms, extensions)


def make_tool_schema() -> dict[str, Any]:
    """Return the JSON schema of a pipeline as a tool of another agent."""
    request = {"type": "string", "description": "what the model shall tell from which images"}
    return {
        "name": "build_medical_imaging_model",
        "description": "Build, test and deliver a medical-imaging model from a request in plain words. Takes minutes to hours.",
        "parameters": {
            "type": "object",
            "properties": {"request": request},
            "required": ["request"],
            "additionalProperties": False,
        },
    }


@dataclass(frozen=True)
class TrainingAddition:
    """What the user asks for with `Pipeline.train_more`: see there."""

    minutes: float | None
    discard: bool


class Callbacks(TypedDict, total=False):
    """The callbacks that a resumed run needs again: see `Pipeline`."""

    ask: Callable[[str], str | None] | None
    approve: Callable[[str], bool] | None
    on_event: Callable[[Event], None] | None


class Pipeline:
    """Builds a model from a request.

    Args:
        llm: `provider:model`, `rules`, an `LLM`, any Python function, or a mapping of role to one of these with a
            `default`; None takes the model in the user's configuration (`m3b config llm`), else `rules`.
        data: folders with raw data, addresses of remote ones (`s3://`, `gs://`, `ssh://`), JSON data cards, `Card` objects,
            or what `m3b.mirror` returned.
        workspace: a whole workspace, instead of `data`.
        out: the run folder; None makes a dated one below `runs/`.
        fallback: a model that takes over when the first one fails for good; the same as `first|second`.
        ask: takes a question (of an agent, or before training: option `confirm`) and returns the answer, or None.
        approve: takes a shell command before it runs; False refuses it.
        on_event: called with every event, in the thread of the run; None shows a line of progress in a notebook.
        tools: functions that agents may call in addition to m3b's eight tools: typed, with a docstring. They run in
            this process, outside the sandbox. A string is the option of this name, see `Options`.
        checks: role (for instance `data_engineer`) -> a function of the artifact and the working directory. It is
            called after m3b's own check has accepted the artifact; the problems that it returns have to be fixed.
        stages: all stages in their order: names of m3b's own roles, and `m3b.Stage` objects; None for m3b's four.
        metrics: `m3b.Metric` objects; they are registered in this process.
        templates: additional training projects, as for `Workspace`.
        manifest: a manifest of the data folder (`Manifest`, its values, or a JSON file), from which m3b makes the
            index.
        overrides: parts of a manifest that limit m3b's proposals: `labels`, `image_column`, `label_column`,
            `patient_column`, `masks`, `classes`, `split`; see `m3b.dataset.manifest.overrides.Overrides`.
        training: metric, machine and training that the user fixes: see `TrainingOverrides`. Wishes in the request that
            such a setting serves ("for 100 epochs") set what it leaves open.
        engine: where the scripts of training run: `local`, or jobs of a cluster, `slurm`, `ray` or an `EngineOptions`
            with cores, memory and partition. The run folder is on storage that the nodes see under the same path.
        external: name -> folder of an external test set, or (folder, its manifest): see `Result.external`.
        register: whether to add runs to the user's list of runs, where `m3b runs`, ids and `last` find them. If the
            list cannot be written, the run has a note on it.
        options: see `Options`; single options can be given by name instead, e.g. `train_minutes=20`.

    Raises:
        UsageError: an option does not exist or is out of range, a provider is unknown, stages do not fit together.
        UsageError: a remote folder cannot be mirrored.
        DataError: data cannot be read as a folder or card, or a prompt belongs to no role.
    """

    def __init__(
        self,
        llm: ModelInputs = None,
        *,
        data: Iterable[Source] | Source = (),
        workspace: Workspace | None = None,
        out: str | Path | None = None,
        fallback: ModelInput | None = None,
        ask: Callable[[str], str | None] | None = None,
        approve: Callable[[str], bool] | None = None,
        on_event: Callable[[Event], None] | None = None,
        tools: ToolMode | Sequence[UserTool] = (),
        checks: Mapping[str, UserCheck] | None = None,
        metrics: Iterable[Metric] = (),
        stages: UserStages | None = None,
        templates: str | Path | None = None,
        manifest: str | Path | Mapping[str, Any] | Manifest | None = None,
        overrides: OverrideArguments | None = None,
        training: TrainingOverrides | None = None,
        engine: EngineName | EngineOptions = "local",
        external: ExternalData | None = None,
        register: bool = True,
        options: Options | None = None,
        **single_options: Unpack[NamedOptions],
    ) -> None:
        self._key_note = ""
        if workspace is not None and templates is not None:
            raise UsageError("`templates` does not go with `workspace`; use Workspace(templates=...) instead.")
        tool_mode = {"tools": tools} if isinstance(tools, str) else {}
        self.options = parse_options(options, {**single_options, **tool_mode})
        check_models_offline(
            llm, fallback, self.options.offline, self.options.label_with
        )  # before any data is looked at
        check_logger_names(self.options)
        self.workspace = workspace or Workspace(data=data, templates=templates, offline=self.options.offline)
        metrics = tuple(metrics)
        register_metrics(metrics)
        self.stages = resolve_stages(stages)
        self.extensions = validate_extensions(
            () if isinstance(tools, str) else tools, checks or {}, metrics, role_names_of(self.stages)
        )
        if llm is None and not is_offline(self.options.offline):
            llm = choose_default_spec(card.path for card in self.workspace.cards.values() if card.own and card.path)
            self._key_note = describe_unused_keys(llm)
        self.llms = connect_models(llm, self.options.tools, fallback, self.options.offline, role_names_of(self.stages))
        check_agents_ready(self.stages, self.workspace, self.llms, self.extensions)
        self.overrides, self.external_sources = (
            parse_dataset_overrides(manifest, overrides),
            parse_external_data(external),
        )
        self.training = check_training_type(training)
        self.engine = resolve_engine(engine, self.training)
        if self.engine.name != LOCAL.name:
            self.training = replace(self.training, gpus_of_jobs=self.engine.gpus)
        self.out = Path(out) if out is not None else None
        self.register = register
        self.ask, self.approve, self.on_event = ask, approve, on_event
        self._lock, self._is_cancelled, self._call_count = threading.Lock(), False, 0
        self._active_handles: set[RunHandle] = set()

    def __repr__(self) -> str:
        facts = "; ".join(f"{name}: {value}" for name, value in self._describe_settings() if value)
        return f"<Pipeline {shorten(facts, 200)}>"

    def _repr_html_(self) -> str:
        return make_html_table("Pipeline", self._describe_settings())

    def _describe_settings(self) -> list[tuple[str, str]]:
        """Return the language models, the data, and the options that differ from their defaults."""
        models = {name: spec_of(llm) for name, llm in self.llms.items()}
        default_model = models.pop("default", "")
        cards = [card for card in self.workspace.cards.values() if card.own]
        options, defaults = self.options.to_json(), Options().to_json()
        return [
            ("language model", default_model), *((f"language model of {name}", spec) for name, spec in models.items()),
            ("data", ", ".join(str(card.path or card.name) for card in cards)), ("run folder", str(self.out or "")),
            *((name, str(value)) for name, value in options.items() if value != defaults.get(name)),
            ("training", "; ".join(self.training.describe())),
            ("engine", "" if self.engine == LOCAL else self.engine.name),
        ]  # fmt: skip

    def run(self, request: str, *, out: str | Path | None = None) -> Result:
        """Run until there is a model, or a reason why there is none. Ctrl-C ends the run as `cancelled`.

        Args:
            request: what the model should predict from which images, in plain words.
            out: the folder of this run, instead of the pipeline's.

        Raises:
            UsageError: the request is empty, asks for two tasks or for something that images do not show; the run
                folder cannot be created, or lies inside the data. Nothing has been created then.
            SandboxError: this machine has no sandbox and `sandbox="off"` was not set.
        """
        return self._new_run(request, out, self.on_event or _make_progress_callback()).run_to_end()

    def start(self, request: str, *, out: str | Path | None = None) -> RunHandle:
        """Start a run in a thread of its own and return at once. One pipeline may run many requests in parallel.

        Args:
            request: as for `run`.
            out: the folder of this run, instead of the pipeline's.

        Raises:
            UsageError, SandboxError: as for `run`.
        """
        handle = self._new_run(request, out, self.on_event)
        handle.start_thread()
        return handle

    def plan(self, request: str, *, with_examples: bool = False) -> DatasetPreview:
        """Return how the data would be read for a request, with open questions; nothing is trained or stored.

        Args:
            with_examples: whether example images are drawn, for `DatasetPreview.render_page()`; they show patients.

        Raises:
            UsageError: the data is not one folder.
            DataError: the folder cannot be surveyed.
        """
        from m3b.run.dataset_preview import preview_single_folder

        return preview_single_folder(
            list(self.workspace.cards.values()), request, self.overrides, with_examples=with_examples
        )

    def iter(self, request: str, *, out: str | Path | None = None) -> Iterator[Event]:
        """Yield the events of a run as they happen; the last is `RunEnded`, whose data is the Result.

        Closing the iterator cancels the run.
        """
        handle = self.start(request, out=out)
        try:
            yield from handle.events()
        finally:
            handle.cancel()
            handle.result()

    async def arun(self, request: str, *, out: str | Path | None = None) -> Result:
        """Run in asyncio, as `run`. Cancelling the task cancels the run.

        Raises:
            UsageError, SandboxError: as for `run`.
        """
        return await self.start(request, out=out).wait()

    def cancel(self) -> None:
        """End every run of this pipeline, including runs that are started later; a `RunHandle` ends a single one."""
        with self._lock:
            self._is_cancelled = True
            for handle in self._active_handles:
                handle.cancel()

    @classmethod
    def resume(
        cls,
        run: str | Path,
        llm: ModelInputs = None,
        *,
        workspace: Workspace | None = None,
        tools: Sequence[UserTool] = (),
        checks: Mapping[str, UserCheck] | None = None,
        metrics: Iterable[Metric] = (),
        stages: UserStages | None = None,
        offline: bool = False,
        log: str | None = None,
        sandbox: SandboxMode | None = None,
        engine: EngineName | EngineOptions | None = None,
        **hooks: Unpack[Callbacks],
    ) -> Result:
        """Resume an interrupted run, from the last event in its journal.

        Accepted artifacts are kept, and conversations continue where they stopped. The result of a run that ended with
        a status of `FINAL_STATUSES` is returned unchanged; one that failed, was cancelled or spent its budget
        continues. Data, options, workspace and models with a name are taken from the run's record unless they are
        given.

        Args:
            run: a run folder, the id of one of the user's registered runs, or `last`.
            llm: None takes the models that the run was started with. Models that are Python objects must be given
                again, like the user's tools, checks, metrics and stages.
            workspace: needed if the workspace of the run does not exist any more.
            offline: as the option, for a run that was started without it.
            log: other loggers than the run had; None goes on in the same ones.
            sandbox: another mode than the run had; it may confine less. None never confines less than the sandbox in
                the user's list of runs (for an unlisted run: than what `auto` finds), whatever run.json says.
            engine: where scripts of training run from now on; None is where they did. Jobs of another engine that still
                run are not found again.
            hooks: `ask`, `approve`, `on_event` as for `Pipeline`.

        Raises:
            UsageError: there is no such run, it lies inside a data folder, another process is working on it, its
                journal is damaged, or something has to be given again. Nothing has been changed then.
            SandboxError: this machine has no sandbox that confines as much.
        """
        run_folder = RunFolder.open(run)
        record = run_folder.load_record()
        if record.get("status") in FINAL_STATUSES:
            return Result.from_json(record["result"])
        pipeline = cls._reopen(
            run_folder, record, llm or record["llm"], workspace=workspace, tools=tools, checks=checks, metrics=metrics,
            stages=stages, offline=offline, log=log, sandbox=sandbox, engine=engine, **hooks,
        )  # fmt: skip
        return pipeline._resume_run(run_folder, record, sandbox).run_to_end()

    @classmethod
    def train_more(
        cls,
        run: str | Path,
        minutes: float | None = None,
        llm: ModelInputs = None,
        *,
        workspace: Workspace | None = None,
        tools: Sequence[UserTool] = (),
        checks: Mapping[str, UserCheck] | None = None,
        metrics: Iterable[Metric] = (),
        stages: UserStages | None = None,
        log: str | None = None,
        sandbox: SandboxMode | None = None,
        discard: bool = False,
        **hooks: Unpack[Callbacks],
    ) -> Result:
        """Train the model of a finished run for longer: same index, split, settings and locked test cases.

        Each network goes on from its delivered weights, with a new schedule for the minutes. The new model passes the
        checks of a run and is compared with the delivered one on validation cases. If it is better, it is scored on the
        locked test cases and delivered, and the earlier model is kept as `model-1/`; `Result.test_looks` counts these
        scorings. Otherwise the earlier model stays and its test cases are not scored again. `resume` or the same call
        goes on with an added training that was interrupted.

        Args:
            run: as for `resume`.
            minutes: of the added training; None goes on with an interrupted one.
            llm: for the user's own stages that need a model; no model is asked here.
            workspace, tools, checks, metrics, stages, log, sandbox, hooks: as for `resume`.
            discard: drop an added training that was interrupted, instead of training.

        Raises:
            UsageError: there is no such run, it has delivered no model, or its project, weights or data are not there
                any more or were changed. Nothing has been changed then.
            SandboxError: as for `resume`.
        """
        from m3b.llm.specs import RULES
        from m3b.run.added_training import open_run_to_train

        run_folder = open_run_to_train(run)
        record = run_folder.load_record()
        pipeline = cls._reopen(
            run_folder, record, llm or RULES, workspace=workspace, tools=tools, checks=checks, metrics=metrics, stages=stages,
            offline=False, log=log, sandbox=sandbox, **hooks,
        )  # fmt: skip
        addition = TrainingAddition(minutes, discard)
        return pipeline._resume_run(run_folder, record, sandbox, addition).run_to_end()

    @classmethod
    def _reopen(
        cls,
        run: RunFolder,
        record: dict[str, Any],
        llm: ModelInputs,
        *,
        workspace: Workspace | None,
        tools: Sequence[UserTool],
        checks: Mapping[str, UserCheck] | None,
        metrics: Iterable[Metric],
        stages: UserStages | None,
        offline: bool,
        log: str | None,
        sandbox: SandboxMode | None,
        engine: EngineName | EngineOptions | None = None,
        **hooks: Unpack[Callbacks],
    ) -> Pipeline:
        """Return the pipeline that a run was started with; see `resume` for arguments and errors."""
        from m3b.run.record import (
            check_extensions_given,
            check_same_stages,
            read_recorded_options,
            restore_mirrors,
            restore_workspace,
        )

        metrics, stage_list = tuple(metrics), resolve_stages(stages)
        check_same_stages(record, role_names_of(stage_list))
        check_extensions_given(record, validate_extensions(tools, checks or {}, metrics, role_names_of(stage_list)))
        options = read_recorded_options(run, record, offline, sandbox, log)
        check_models_offline(llm, None, options.offline)
        recorded_overrides: dict[str, Any] = dict(record.get("given") or {})
        recorded_manifest = recorded_overrides.pop("manifest", None) or recorded_overrides.pop("index", None)
        if workspace is None:
            restore_mirrors(record, options.offline)
        return cls(
            llm, workspace=workspace or restore_workspace(record), out=run.path, tools=tools,
            checks=checks, metrics=metrics, stages=stages, options=options,
            manifest=recorded_manifest, overrides=cast("OverrideArguments", recorded_overrides),
            training=TrainingOverrides.from_json(record.get("training")), external=record.get("external"),
            engine=change_engine(EngineOptions.from_json(record.get("engine")), engine), **hooks,
        )  # fmt: skip

    def as_tool(self) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
        """Return a JSON schema and a callable, for use as a tool of another agent system.

        The callable takes `request` and returns the Result as a plain dict. It may be called repeatedly and from
        several threads; if `out` is set, later runs get numbered folders next to it.
        """
        return (
            make_tool_schema(),
            lambda request: self._new_run(request, self._next_out_folder(), self.on_event).run_to_end().to_json(),
        )

    def _next_out_folder(self) -> Path | None:
        """Return the pipeline's folder, or for later calls a numbered one next to it."""
        if self.out is None:
            return None
        with self._lock:
            self._call_count += 1
            number = self._call_count
        return self.out if number == 1 else self.out.with_name(f"{self.out.name}-{number}")

    # --- runs ----------------------------------------------------------------------------------------------------

    def _new_run(self, request: str, out: str | Path | None, on_event: OnEvent | None) -> RunHandle:
        from m3b.run.precheck import check_data_is_there, check_locations, check_request
        from m3b.run.record import make_record, record_file_lists

        check_can_confirm(self.options, self.ask)
        run_path = Path(out) if out is not None else self.out
        cards = list(self.workspace.cards.values())
        check_request(request)
        check_locations(cards, run_path, self.external_sources)
        check_data_is_there(cards)
        if self.options.send_images:
            from m3b.run.image_viewing import check_viewing

            check_viewing(self.options, self.llms)
        training, options, wish_notes = self._resolve_training(request)
        check_engine(self.engine)
        if options.hours is not None:
            from m3b.run.plan_candidates import check_search_possible, describe_searched_steps

            check_search_possible(training)
            if training.steps is not None:
                wish_notes.append(describe_searched_steps(training.steps))
        sandbox, overrides, workspace = choose_sandbox(options.sandbox), self.overrides, self.workspace
        if overrides is not None:
            from m3b.run.overrides import resolve_overrides

            overrides, resolved_cards = resolve_overrides(overrides, workspace.cards, sandbox)
            workspace = workspace.with_cards(resolved_cards)
        run = RunFolder.create(run_path)
        record = make_record(run, request, options, self.llms, workspace, sandbox, self.extensions, overrides,
                            training, role_names_of(self.stages), self.external_sources, self.engine)  # fmt: skip
        run.lock()
        record_file_lists(run, workspace.cards.values())
        notes = [*workspace.data_notes, *wish_notes, *self._register(run, record, sandbox)]
        return self._make_handle(
            run, record, None, options, training, workspace, sandbox, overrides, on_event, notes
        )  # fmt: skip

    def _resolve_training(self, request: str) -> tuple[TrainingOverrides, Options, list[str]]:
        """Return the training overrides and options with the wishes of a request, and notes on what is set.

        Raises:
            SettingError: an override cannot be served; nothing has been created then.
        """
        from m3b.run.request_wishes import parse_wishes
        from m3b.run.training_overrides import check_overrides_of_any, merge_overrides

        task = self._find_certain_task(request)
        check_overrides_of_any(self.training, [task] if task else self._list_possible_tasks(request))
        wishes = parse_wishes(request, task)
        training, options = merge_overrides(self.training, wishes.overrides), self.options
        notes = [f"Set: {', '.join(training.describe())}."] if training else []
        if options.train_minutes is None and isinstance(training.plan, Mapping):
            options = replace_minutes(options, training.plan.get("minutes"))
        elif options.train_minutes is None and wishes.train_minutes is not None:
            options = replace_minutes(options, wishes.train_minutes)
            notes.append(f"Set: {wishes.train_minutes:g} min of training (from the request).")
        return training, options, [*notes, *wishes.unserved, *self._list_model_notes()]

    def _list_model_notes(self) -> list[str]:
        """Return notes on a key that is not used, and on the limit of what the models may cost."""
        notes = [self._key_note] if self._key_note else []
        paid_names = sorted({llm.name for llm in self.llms.values() if llm.facts.price_in})
        if paid_names and self.options.max_cost is not None:
            notes.append(f"{', '.join(paid_names)} may cost at most {self.options.max_cost:g} USD (max_cost).")
        return notes

    def _find_certain_task(self, request: str) -> str:
        """Return the task, if manifest, plan, data card or request leave no doubt about it; else ''."""
        from m3b.tasks import find_requested_task

        if self.overrides is not None and self.overrides.manifest is not None:
            return str(self.overrides.manifest.task)
        own_cards = [card for card in self.workspace.cards.values() if card.own]
        if len(own_cards) == 1 and own_cards[0].task:
            return own_cards[0].task
        requested_task = find_requested_task(request)
        return requested_task if requested_task in CERTAIN_TASKS else ""

    def _list_possible_tasks(self, request: str) -> Sequence[str]:
        """Return the tasks among which the data decides, the requested one first; empty if the words of the request leave all open."""
        from m3b.run.precheck import find_ordered_tasks
        from m3b.tasks import find_requested_task

        requested_task = find_requested_task(request)
        task_names = {requested_task, *find_ordered_tasks(request)} - {""}
        possible_tasks = TASKS_OF_AN_IMAGE if task_names and task_names <= set(TASKS_OF_AN_IMAGE) else ()
        return sorted(possible_tasks, key=lambda task: task != requested_task)

    def _resume_run(
        self,
        run: RunFolder,
        record: dict[str, Any],
        mode: SandboxMode | None,
        addition: TrainingAddition | None = None,
    ) -> RunHandle:
        """Return the handle of a resumed run.

        Args:
            mode: the sandbox mode that the user asks for now.
            addition: more training of a finished run.
        """
        from m3b.run.confinement import choose_for_resume, describe_change, used_sandboxes
        from m3b.run.stages import check_resumed_state
        from m3b.run.state import RunState

        run.lock()
        try:
            state = RunState.from_events(run.read_events())
            check_resumed_state(self.stages, state)
            sandbox = choose_for_resume(run, self.options.sandbox, mode, state.sandboxes)
            check_engine(self.engine)
            added_minutes = self._resolve_addition(run, record, state, addition)
            if state.index is None or not state.index.confirmed:
                check_can_confirm(self.options, self.ask)
        except (UsageError, SandboxError, EngineError):
            run.unlock()
            raise
        record["id"], record["engine"] = run.id, self.engine.to_json()  # the folder may have been renamed
        record["options"] = {**record.get("options", {}), "sandbox": self.options.sandbox, "log": self.options.log}
        record.update(used_sandboxes(state.sandboxes, sandbox))
        change = describe_change(state.sandboxes, sandbox)
        notes = [*([change] if change else []), *self._register(run, record, sandbox)]
        return self._make_handle(
            run,
            record,
            state,
            self.options,
            self.training,
            self.workspace,
            sandbox,
            self.overrides,
            self.on_event or _make_progress_callback(),
            notes,
            added_minutes,
            discards_training=addition is not None and addition.discard,
        )

    def _resolve_addition(
        self, run: RunFolder, record: dict[str, Any], state: RunState, addition: TrainingAddition | None
    ) -> float:
        """Return the minutes of an added training, new or interrupted; 0 if there is none.

        Raises:
            UsageError: no training can be added or discarded.
        """
        if addition is None or addition.discard:
            if addition is not None and state.added_training is None:
                raise UsageError(f"The run {run.display_name} has no interrupted training that could be discarded.")
            return state.added_training.minutes if state.added_training is not None else 0.0
        from m3b.run.added_training import resolve_added_minutes

        card = self.workspace.cards.get(state.selection.card) if state.selection is not None else None
        return resolve_added_minutes(run, record, state, card, addition.minutes)

    def _describe_loggers(self, run: RunFolder) -> list[str]:
        """Return where the loggers of a run write."""
        if not self.options.log:
            return []
        from m3b.loggers import describe_loggers

        return describe_loggers(self.options.log, run.path)

    def _register(self, run: RunFolder, record: Mapping[str, Any], sandbox: Sandbox) -> list[str]:
        """Add a run to the user's list; return the warning if that fails."""
        if not self.register:
            return []
        warning = register(run.path, sandbox.name, data_folders(record))
        return [warning] if warning else []

    def _make_handle(
        self,
        run: RunFolder,
        record: dict[str, Any],
        state: RunState | None,
        options: Options,
        training: TrainingOverrides,
        workspace: Workspace,
        sandbox: Sandbox,
        overrides: Overrides | None,
        on_event: OnEvent | None,
        notes: Sequence[str],
        added_minutes: float = 0.0,
        *,
        discards_training: bool = False,
    ) -> RunHandle:
        from m3b.run.handle import RunHandle
        from m3b.run.setup import RunSetup

        setup = RunSetup(
            run,
            record,
            state,
            options,
            workspace,
            self.llms,
            sandbox,
            self.extensions,
            overrides,
            training,
            self.engine,
            self.external_sources,
            self.ask,
            self.approve,
            on_event,
            (*notes, *self._describe_loggers(run)),
            added_minutes,
            discards_training,
        )
        handle = RunHandle(setup, self.stages, self._forget_handle)
        with self._lock:
            self._active_handles.add(handle)
            if self._is_cancelled:
                handle.cancel()
        return handle

    def _forget_handle(self, handle: RunHandle) -> None:
        with self._lock:
            self._active_handles.discard(handle)


def _make_progress_callback() -> OnEvent:
    from m3b.progress import make_progress_watcher  # imports the events, which `import m3b` does not need

    return make_progress_watcher()


def resume(
    run: str | Path,
    llm: ModelInputs = None,
    *,
    offline: bool = False,
    log: str | None = None,
    sandbox: SandboxMode | None = None,
    engine: EngineName | EngineOptions | None = None,
    **hooks: Unpack[Callbacks],
) -> Result:
    """Resume a run with a model and callbacks: see `Pipeline.resume`."""
    return Pipeline.resume(run, llm, offline=offline, log=log, sandbox=sandbox, engine=engine, **hooks)


def train_more(
    run: str | Path,
    minutes: float | None = None,
    *,
    log: str | None = None,
    sandbox: SandboxMode | None = None,
    discard: bool = False,
    **hooks: Unpack[Callbacks],
) -> Result:
    """Train the model of a finished run for longer: see `Pipeline.train_more`."""
    return Pipeline.train_more(run, minutes, log=log, sandbox=sandbox, discard=discard, **hooks)
