"""`Pipeline`: one request in, one verified model out."""

from __future__ import annotations

import difflib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from m3b.errors import M3bError, WrongUse
from m3b.events import Event
from m3b.llm import LLM, connect
from m3b.progress import watcher
from m3b.run.extensions import OwnCheck, OwnTool, add_metrics, own
from m3b.run.folder import Run
from m3b.run.options import Options, SingleOptions, ToolMode
from m3b.run.result import FINAL, Result
from m3b.sandbox import Sandbox, choose
from m3b.workspace import Source, Workspace

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.data.spec.model import IndexSpec
    from m3b.run.context import RunContext
    from m3b.run.given import Reading
    from m3b.run.state import History
    from m3b.tasks import Metric

Model = str | LLM | Callable[..., Any]
Models = Model | Mapping[str, Model] | None


class Hooks(TypedDict, total=False):
    """What a resumed run has to be given again: see `Pipeline`."""

    ask: Callable[[str], str | None] | None
    approve: Callable[[str], bool] | None
    on_event: Callable[[Event], None] | None


class Pipeline:
    """Builds a model from a request.

    Args:
        llm: `provider:model`, `rules`, an `LLM`, any Python function, or a mapping of role to one of these with a
            `default`; None takes the first provider whose usual key variable is set, else `rules`.
        data: folders with raw data, JSON data cards, or `Card`s.
        workspace: instead of `data`, a whole workspace.
        out: the run folder; None makes a dated one below `runs/`.
        fallback: a model that takes over when the first one fails for good; the same as `first|second`.
        ask: takes a question of the agents and returns the answer, or None.
        approve: takes a shell command before it runs; False refuses it.
        on_event: called with every event, in the thread that runs; None shows a line of progress in a notebook.
        tools: functions that agents may call beside m3b's eight tools: typed, with a docstring. They run in this process,
            outside the sandbox. A text is the option of this name, see `Options`.
        checks: a role (`data_engineer` for instance) -> a function of what the role handed over and of the working
            directory, which is asked once m3b's own check has accepted it; what it returns has to be mended.
        metrics: `m3b.Metric` objects; they are known in this process from then on.
        templates: training projects of your own, as for `Workspace`.
        index: a reading of the data folder (`m3b.data.spec.model.IndexSpec`, its values, or a JSON file) that stands: m3b
            makes the index from it.
        reading: parts of one that narrow what m3b proposes: `labels`, `image_column`, `label_column`, `patient_column`,
            `masks`, `classes`, `split`; see `m3b.data.spec.given.Given`.
        options: see `Options`; single ones can be given by name instead, e.g. `train_minutes=20`.

    Raises:
        WrongUse: an option that does not exist or is out of range, an unknown provider.
        DataError: data that cannot be read as a folder or card.
    """

    def __init__(
        self,
        llm: Models = None,
        *,
        data: Iterable[Source] | Source = (),
        workspace: Workspace | None = None,
        out: str | Path | None = None,
        fallback: Model | None = None,
        ask: Callable[[str], str | None] | None = None,
        approve: Callable[[str], bool] | None = None,
        on_event: Callable[[Event], None] | None = None,
        tools: ToolMode | Sequence[OwnTool] = (),
        checks: Mapping[str, OwnCheck] | None = None,
        metrics: Iterable[Metric] = (),
        templates: str | Path | None = None,
        index: str | Path | Mapping[str, Any] | IndexSpec | None = None,
        reading: Reading | None = None,
        options: Options | None = None,
        **single_options: Unpack[SingleOptions],
    ) -> None:
        if workspace is not None and templates is not None:
            raise WrongUse("Give `templates` to the workspace, or none of your own: Workspace(templates=...).")
        self.workspace = workspace or Workspace(data=data, templates=templates)
        mode = {"tools": tools} if isinstance(tools, str) else {}
        self.options = _options(options, {**single_options, **mode})
        add_metrics(metrics)
        self.own = own(() if isinstance(tools, str) else tools, checks or {})
        self.llms = _connect(llm, self.options.tools, fallback)
        self.given = _given(index, reading)
        self.out = Path(out) if out is not None else None
        self.ask, self.approve, self.on_event = ask, approve, on_event
        self._cancel = threading.Event()

    def run(self, request: str) -> Result:
        """Work until there is a model, or a reason why there is none. Ctrl-C ends it as `cancelled`.

        Raises:
            WrongUse: the request is empty, asks for two tasks or for nothing that images hold; the run folder cannot be
                made, or lies inside the data. Nothing has been made then.
            SandboxError: this machine allows no sandbox and `sandbox="off"` was not asked for.
        """
        return self._start(request, self.on_event or watcher())

    def iter(self, request: str) -> Iterator[Event]:
        """The events of a run as they happen; the last is `run_ended`, whose data is the Result.

        Closing the iterator cancels the run.
        """
        events: queue.Queue[Event | BaseException | None] = queue.Queue()

        def work() -> None:
            try:
                self._start(request, events.put)
            except M3bError as error:
                events.put(error)
            finally:
                events.put(None)

        thread = threading.Thread(target=work, name="m3b-run")
        thread.start()
        try:
            while (item := events.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                if self.on_event:
                    self.on_event(item)
                yield item
        finally:
            self.cancel()
            thread.join()

    def cancel(self) -> None:
        """End the run soon, from any thread; its status becomes `cancelled`."""
        self._cancel.set()

    def as_tool(self) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
        """A JSON schema and a callable, for hosting m3b inside another agent system.

        The callable takes `request` and returns the Result as a plain dict.
        """
        schema = {
            "name": "build_medical_imaging_model",
            "description": "Build, test and deliver a medical-imaging model from a request in plain words. Takes minutes to hours.",
            "parameters": {
                "type": "object",
                "properties": {
                    "request": {"type": "string", "description": "what the model shall tell from which images"}
                },
                "required": ["request"],
                "additionalProperties": False,
            },
        }
        return schema, lambda request: self.run(request).to_json()

    def _start(self, request: str, on_event: Callable[[Event], None]) -> Result:
        from m3b.run.lifecycle import new_record
        from m3b.run.precheck import check_places, check_request

        cards = list(self.workspace.cards.values())
        check_request(request, cards)
        check_places(cards, self.out)
        self._cancel.clear()
        sandbox = choose(self.options.sandbox)
        if self.given is not None:
            from m3b.run.given import settled

            self.given, self.workspace.cards = settled(self.given, self.workspace.cards, sandbox)
        run = Run.create(self.out)
        record = new_record(run, request, self.options, self.llms, self.workspace, sandbox)
        record["given"] = self.given.model_dump(mode="json", exclude_defaults=True) if self.given is not None else {}
        return self._go(run, record, sandbox, on_event)

    def _go(self, run: Run, record: dict[str, Any], sandbox: Sandbox, on_event: Callable[[Event], None]) -> Result:
        # the agents, the tools and numpy: what a run needs and an import does not
        from m3b.run.context import Hooks, RunContext
        from m3b.run.lifecycle import execute

        hooks = Hooks(self.ask, self.approve, on_event)

        def opened(state: History) -> RunContext:
            return RunContext(
                run, record["request"], self.options, self.workspace, self.llms, sandbox, state, hooks, self.own,
                self._cancel, self.given,
            )  # fmt: skip

        run.lock()
        try:
            return execute(run, record, opened)
        finally:
            run.unlock()

    @classmethod
    def reopen(cls, run: Run, llm: Models = None, **hooks: Unpack[Hooks]) -> tuple[Pipeline, dict[str, Any]]:
        """The pipeline of an earlier run, from its run.json."""
        record = run.load()
        data = [dict(card) for card in record.get("data", [])]
        known = {k: v for k, v in record.get("options", {}).items() if k in Options.__dataclass_fields__}
        given: dict[str, Any] = dict(record.get("given") or {})
        pipeline = cls(
            llm or record["llm"], data=data, out=run.folder, options=Options(**known), index=given.pop("index", None),
            reading=cast("Reading", given), **hooks,
        )  # fmt: skip
        return pipeline, record

    def go_on(self, run: Run, record: dict[str, Any]) -> Result:
        """Take an earlier run up again; see `resume`."""
        self._cancel.clear()
        record["id"] = run.id  # it may have been moved
        return self._go(run, record, choose(self.options.sandbox), self.on_event or watcher())


def resume(run: str | Path, llm: Models = None, **hooks: Unpack[Hooks]) -> Result:
    """Go on with a run that was interrupted, from the last event that reached its journal.

    Accepted artifacts stay as they are and conversations are taken up where they stopped. A run that
    ended with a status of `FINAL` is returned as it is; one that failed, was cancelled or spent its budget goes on.

    Args:
        run: a run folder, an id, or `last`.
        llm: None takes what the run was started with. A run whose model was a Python object needs it given again.
        hooks: `ask`, `approve`, `on_event` as for `Pipeline`.

    Raises:
        WrongUse: there is no such run, or another process is at work on it.
    """
    folder = Run.open(run)
    record = folder.load()
    if record.get("status") in FINAL:
        return Result.from_json(record["result"])
    pipeline, record = Pipeline.reopen(folder, llm, **hooks)
    return pipeline.go_on(folder, record)


def _options(options: Options | None, single: dict[str, Any]) -> Options:
    unknown = sorted(set(single) - set(Options.__dataclass_fields__))
    if unknown:
        known = ", ".join(Options.__dataclass_fields__)
        close = difflib.get_close_matches(unknown[0], Options.__dataclass_fields__, 1)
        mean = f" Did you mean {close[0]}?" if close else ""
        raise WrongUse(f"There is no option {', '.join(unknown)}.{mean} Options: {known}.")
    if options is not None and single:
        raise WrongUse("Give either `options` or single options by name, not both.")
    return options or Options(**single)


def _given(index: str | Path | Mapping[str, Any] | IndexSpec | None, reading: Reading | None) -> Given | None:
    """What the user says of how the data is to be read; None, and nothing imported, where that is nothing."""
    if index is None and not reading:
        return None
    from m3b.run.given import given_from

    return given_from(index, reading)


def _connect(llm: Models, tools: ToolMode, fallback: Model | None = None) -> dict[str, LLM]:
    from m3b.agents.roles import STAGES

    if not isinstance(llm, Mapping):
        return {"default": connect(llm, tools=tools, fallback=fallback)}
    known = {"default", *(role.name for role in STAGES)}
    unknown = sorted(set(llm) - known)
    if unknown:
        raise WrongUse(f"`llm` names the roles {', '.join(unknown)}; known are {', '.join(sorted(known))}.")
    llms = {name: connect(model, tools=tools, fallback=fallback) for name, model in llm.items()}
    llms.setdefault("default", next(iter(llms.values())) if llms else connect(None, tools=tools, fallback=fallback))
    return llms
