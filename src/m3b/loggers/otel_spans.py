"""OpenTelemetry spans of a run by the GenAI conventions: workflow, agents, requests to models, tools, with token counts.

Exporters, their address and headers come from the standard `OTEL_*` variables; `OTEL_TRACES_EXPORTER` names an exporter
of an installed package, and `otlp` (OTLP over HTTP) is the default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from m3b.events import (
    Event,
    MessageSent,
    PromptSent,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from m3b.loggers import semantic_names as names
from m3b.loggers.base import LoggedRun

WORKFLOW = "m3b"
FAILED_STATUSES = ("failed", "rejected", "out_of_budget")
CAPTURING_VALUES = ("true", "1", "span_only", "span_and_event")


def make_exporters() -> list[SpanExporter]:
    """Return the exporters that the environment names.

    Raises:
        ValueError: no installed package has an exporter of this name.
    """
    points = {point.name: point for point in entry_points(group="opentelemetry_traces_exporter")}
    exporters = []
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        key = {"otlp": "otlp_proto_http"}.get(name.strip(), name.strip())
        if key in ("", "none"):
            continue
        if key not in points:
            raise ValueError(f"OTEL_TRACES_EXPORTER names {key}; installed are {', '.join(sorted(points))}")
        exporters.append(points[key].load()())
    return exporters


class SpanRecorder:
    """Makes spans of the events of a run.

    Args:
        exporters: None takes those of the environment.
    """

    progress: dict[str, Any]

    def __init__(self, run: LoggedRun, exporters: Iterable[SpanExporter] | None = None) -> None:
        resource = Resource.create({} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: WORKFLOW})
        self._provider = TracerProvider(resource=resource)
        for exporter in make_exporters() if exporters is None else exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("m3b")
        self.key, self.progress, self._run_id = run.key, {}, run.id
        self._workflow: Span | None = None
        self._agent: Span | None = None
        self._tools: dict[str, Span] = {}
        self._model: dict[str, str] = {}
        self._last_at = 0.0
        self._captures_content = os.environ.get(names.CAPTURE_CONTENT_VARIABLE, "").lower() in CAPTURING_VALUES
        self._pending_texts: list[str] = []
        self._system = ""

    def record_event(self, event: Event) -> None:
        if not event.is_journaled:
            return
        match event:
            case RunStarted():
                self._start_workflow(event.at)
            case RoleStarted():
                self._start_agent(event)
            case PromptSent() | MessageSent():
                self._system = event.system if isinstance(event, PromptSent) else self._system
                self._pending_texts.append(event.text)
            case ReplyReceived():
                self._record_chat(event)
            case ToolCalled():
                self._start_tool(event)
            case ToolReturned():
                self._end_tool(event)
            case RoleEnded():
                self._end_agent(event.at, "" if event.status == "done" else event.status)
            case RunEnded(result=result):
                self._end_workflow(event.at, str(result.get("status", "")))
        self._last_at = event.at

    def close(self) -> None:
        self._end_workflow(self._last_at, "")
        self._provider.shutdown()

    def _start_workflow(self, at: float) -> None:
        """Start the span of this process; that of a resumed run belongs to the trace of the first process."""
        attributes = {names.OPERATION: names.INVOKE_WORKFLOW, names.WORKFLOW_NAME: WORKFLOW}
        parent = TraceContextTextMapPropagator().extract({"traceparent": self.key}) if self.key else None
        self._workflow = self._start(f"{names.INVOKE_WORKFLOW} {WORKFLOW}", at, attributes, context=parent)
        if not self.key:
            carrier: dict[str, str] = {}
            TraceContextTextMapPropagator().inject(carrier, set_span_in_context(self._workflow))
            self.key = carrier.get("traceparent", "")

    def _start_agent(self, event: RoleStarted) -> None:
        provider, _, model = event.llm.partition(":")
        self._model = {
            names.PROVIDER: names.PROVIDER_NAMES.get(provider, provider),
            names.REQUEST_MODEL: model.partition("@")[0] or provider,
        }
        attributes = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: event.role, **self._model}
        self._agent = self._start(f"{names.INVOKE_AGENT} {event.role}", event.at, attributes, parent=self._workflow)

    def _record_chat(self, event: ReplyReceived) -> None:
        usage = event.usage
        attributes: dict[str, Any] = {
            names.OPERATION: names.CHAT,
            **self._model,
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.CACHED_TOKENS: usage.cached_tokens,
            names.REASONING_TOKENS: usage.reasoning_tokens,
            names.FINISH_REASONS: [event.stop] if event.stop else [],
        }
        if self._captures_content:
            attributes[names.INPUT_MESSAGES] = _format_messages("user", self._pending_texts)
            attributes[names.OUTPUT_MESSAGES] = _format_messages("assistant", [event.text])
            if self._system:
                attributes[names.SYSTEM_INSTRUCTIONS] = json.dumps([{"type": "text", "content": self._system}])
        self._pending_texts = []
        name = f"{names.CHAT} {self._model.get(names.REQUEST_MODEL, '')}"
        span = self._start(name, self._last_at, attributes, parent=self._agent, kind=SpanKind.CLIENT)
        _end_span(span, event.at)

    def _start_tool(self, event: ToolCalled) -> None:
        attributes: dict[str, Any] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: event.name,
            names.TOOL_CALL_ID: event.id,
            names.TOOL_TYPE: "function",
        }
        if self._captures_content:
            attributes[names.TOOL_ARGUMENTS] = json.dumps(event.arguments, default=str)
        name = f"{names.EXECUTE_TOOL} {event.name}"
        self._tools[event.id] = self._start(name, event.at, attributes, parent=self._agent)

    def _end_tool(self, event: ToolReturned) -> None:
        self._pending_texts.append(event.text)
        span = self._tools.pop(event.id, None)
        if span is not None:
            if self._captures_content:
                span.set_attribute(names.TOOL_RESULT, event.text)
            _end_span(span, event.at, "tool_error" if event.is_error else "")

    def _end_agent(self, at: float, error: str) -> None:
        for span in self._tools.values():
            _end_span(span, at, error)
        if self._agent is not None:
            _end_span(self._agent, at, error)
        self._tools, self._agent = {}, None

    def _end_workflow(self, at: float, status: str) -> None:
        self._end_agent(at, status)
        if self._workflow is not None:
            self._workflow.set_attribute(names.RUN_STATUS, status)
            _end_span(self._workflow, at, status if status in FAILED_STATUSES else "")
        self._workflow = None

    def _start(
        self, name: str, at: float, attributes: Mapping[str, Any], *, parent: Span | None = None,
        context: Any = None, kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:  # fmt: skip
        context = set_span_in_context(parent) if parent is not None else context
        attributes = {**attributes, names.CONVERSATION_ID: self._run_id}
        return self._tracer.start_span(name, context, kind, attributes, start_time=_to_ns(at))


def _end_span(span: Span, at: float, error: str = "") -> None:
    if error:
        span.set_attribute(names.ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR))
    span.end(_to_ns(at))


def _to_ns(at: float) -> int:
    return int(at * 1e9)


def _format_messages(role: str, texts: Iterable[str]) -> str:
    """Return messages in the JSON form of the conventions."""
    messages = [{"role": role, "parts": [{"type": "text", "content": text}]} for text in texts if text]
    return json.dumps(messages, ensure_ascii=False)
