"""Spans of a run: as many as the journal has requests and calls, in one trace, with their tokens and without content."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import StatusCode

from m3b.errors import OfflineError
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
from m3b.loggers import LoggedRun, check_loggers, open_loggers, semantic_names
from m3b.loggers.otel_spans import SpanRecorder
from m3b.messages import ToolCall, Usage

ROLE = "model_trainer"
SECRET = "anna schmidt"
EVENTS: tuple[Event, ...] = (
    RunStarted(f"Tell {SECRET}", "run-1", {"name": "off", "level": "off"}, at=1.0),
    RoleStarted("Model Trainer", "gemini:a-1@http://10.0.0.7/v1", role=ROLE, at=2.0),
    PromptSent(f"system {SECRET}", f"prompt {SECRET}", role=ROLE, at=3.0),
    ReplyReceived(
        f"text {SECRET}", (ToolCall("c1", "run_script", {"command": SECRET}),), Usage(100, 40, 20, reasoning_tokens=5),
        "tool_calls", role=ROLE, at=5.0,
    ),
    ToolCalled("c1", "run_script", {"command": SECRET}, role=ROLE, at=5.5),
    ToolReturned("c1", "run_script", f"result {SECRET}", True, role=ROLE, at=8.0),
    ReplyReceived("done", (), Usage(200, 0, 10), "end", role=ROLE, at=9.0),
    MessageSent(f"rejected: {SECRET}", "rejected", role=ROLE, at=9.5),
    RoleEnded("failed", role=ROLE, at=10.0),
    RunEnded({"status": "failed", "reason": SECRET}, at=11.0),
)  # fmt: skip


def record(events: Sequence[Event], folder: Path, key: str = "") -> tuple[list[ReadableSpan], str]:
    """Return the spans of the events, and the key for another process."""
    exporter = InMemorySpanExporter()
    recorder = SpanRecorder(LoggedRun("run-1", folder, folder / "otel", key), [exporter])
    for event in events:
        recorder.record_event(event)
    recorder.close()
    return list(exporter.get_finished_spans()), recorder.key


def test_spans_have_the_times_tokens_and_parents_of_the_events(tmp_path: Path) -> None:
    spans, _ = record(EVENTS, tmp_path)
    table = {span.name: span for span in spans if span.end_time != 9_000_000_000}
    assert [(span.name, span.start_time / 1e9, span.end_time / 1e9) for span in spans] == [
        ("chat a-1", 3.0, 5.0), ("execute_tool run_script", 5.5, 8.0), ("chat a-1", 8.0, 9.0),
        (f"invoke_agent {ROLE}", 2.0, 10.0), ("invoke_workflow m3b", 1.0, 11.0),
    ]  # fmt: skip
    chat = table["chat a-1"].attributes
    assert [chat[f"gen_ai.usage.{name}"] for name in ("input_tokens", "output_tokens", "cache_read.input_tokens")] == [
        100, 20, 40
    ]  # fmt: skip
    assert (chat["gen_ai.provider.name"], chat["gen_ai.request.model"]) == ("gcp.gemini", "a-1")
    agent, workflow = table[f"invoke_agent {ROLE}"], table["invoke_workflow m3b"]
    assert {span.parent.span_id for span in spans[:3]} == {agent.context.span_id}
    assert agent.parent.span_id == workflow.context.span_id
    assert workflow.parent is None
    assert table["execute_tool run_script"].attributes["error.type"] == "tool_error"
    assert [span.status.status_code for span in (agent, workflow)] == [StatusCode.ERROR, StatusCode.ERROR]
    assert {span.attributes["gen_ai.conversation.id"] for span in spans} == {"run-1"}


def test_content_is_recorded_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(semantic_names.CAPTURE_CONTENT_VARIABLE, raising=False)
    assert SECRET not in str([span.to_json() for span in record(EVENTS, tmp_path)[0]])
    monkeypatch.setenv(semantic_names.CAPTURE_CONTENT_VARIABLE, "true")
    first, tool, second, *_ = (span.attributes for span in record(EVENTS, tmp_path)[0])
    assert json.loads(first["gen_ai.input.messages"])[0]["parts"][0]["content"] == f"prompt {SECRET}"
    assert json.loads(first["gen_ai.output.messages"])[0]["parts"][0]["content"] == f"text {SECRET}"
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"command": SECRET}
    assert json.loads(second["gen_ai.input.messages"])[0]["parts"][0]["content"] == f"result {SECRET}"


def test_resumed_run_goes_on_in_the_same_trace(tmp_path: Path) -> None:
    first, key = record(EVENTS[:4], tmp_path)  # the process is killed: what is open ends with its last event
    assert [span.name for span in first] == ["chat a-1", f"invoke_agent {ROLE}", "invoke_workflow m3b"]
    second, second_key = record((EVENTS[0], EVENTS[-1]), tmp_path, key)
    assert second_key == key
    assert second[-1].parent.span_id == first[-1].context.span_id
    assert {span.context.trace_id for span in (*first, *second)} == {first[0].context.trace_id}


def test_names_are_those_of_the_conventions() -> None:
    convention_values = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    values = {value for name, value in vars(semantic_names).items() if name.isupper() and isinstance(value, str)}
    assert {value for value in values if value.startswith("gen_ai.")} <= convention_values
    operations = {item.value for item in gen_ai_attributes.GenAiOperationNameValues}
    assert {semantic_names.INVOKE_WORKFLOW, semantic_names.INVOKE_AGENT, semantic_names.CHAT} <= operations
    assert semantic_names.EXECUTE_TOOL in operations
    assert set(semantic_names.PROVIDER_NAMES.values()) <= {x.value for x in gen_ai_attributes.GenAiProviderNameValues}


def test_spans_are_sent_by_otlp_to_the_address_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    check_loggers("otel", is_offline=True)  # loopback is this machine
    loggers = open_loggers("otel", "run-1", tmp_path)
    for event in EVENTS:
        loggers.record_event(event)
    loggers.close()
    server.shutdown()
    server.server_close()
    spans, resources = [], set()
    for body in bodies:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resources |= {item.value.string_value for item in group.resource.attributes if item.key == "service.name"}
            spans += [span.name for scope in group.scope_spans for span in scope.spans]
    assert sorted(spans) == sorted(span.name for span in record(EVENTS, tmp_path)[0])
    assert resources == {"m3b"}
    assert json.loads((tmp_path / "loggers/otel.json").read_text())["key"].startswith("00-")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example.org")
    with pytest.raises(OfflineError):
        check_loggers("otel", is_offline=True)
