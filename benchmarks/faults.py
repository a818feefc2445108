"""Run m3b against providers that fail: one request in five fails, and the Result must be the same as without failures.

Every run is a real `Pipeline` with its own journal and ledger. Its model is a script behind a loopback HTTP
server, reached through the real adapters (OpenAI's two protocols and Anthropic's, in turn); waiting takes no time. Most
runs end after the first role, with `no_dataset`, which takes half a second; `--whole` of them go through all four roles
to a measured model. One run in 25 meets a permanent failure, must end with a typed status and a reason, and is then
resumed with a healthy provider to the same Result.

The server checks the conversation: earlier messages must be repeated unchanged, every delivered reply
must be there once, and every call must be answered once. Every byte that a run wrote is searched for the key.

    python benchmarks/faults.py                  1,000 runs and 4 whole ones; about ten minutes on two cores
    python benchmarks/faults.py --runs 50 --whole 0 --seed 7
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pipeline"))

from pipeline_kit import REQUEST, choice, make_spots, place, play

from m3b import Pipeline, resume
from m3b.llm import LLM, Retry, registry
from m3b.llm.keys import Key
from m3b.llm.presets import PROVIDERS
from m3b.messages import Message, Reply
from m3b.run.result import STATUSES, Result
from m3b.testing.conformance import CANARY, DIALECTS, Clock, Dialect, ReceivedRequest, Server, ServerAnswer
from m3b.testing.scripted_model import call, combine_calls

FAULT_SHARE = 0.2
PERMANENT_FAULT_SHARE = 0.04
TIMEOUT_S = 1.5
WIRES = (("openai", "gpt-4o", "openai"), ("anthropic", "claude-sonnet-5-5", "anthropic"),
         ("openai", "gpt-5-pro", "openai-responses"), ("groq", "llama-3.3-70b-versatile", "openai"))  # fmt: skip

Fault = Callable[[Dialect, ServerAnswer], ServerAnswer]


def make_status_fault(number: int, message: str, kind: str = "some_error", **headers: str) -> Fault:
    """Make a refusal with an HTTP status."""
    return lambda dialect, good: ServerAnswer(dialect.error(message, kind), status=number, headers=headers)


PASSING_FAULTS: dict[str, Fault] = {
    "429 with Retry-After": make_status_fault(429, "slow down", "rate_limit_error", **{"Retry-After": "7"}),
    "429 without": make_status_fault(429, "slow down", "rate_limit_error"),
    "529": make_status_fault(529, "overloaded", "overloaded_error"),
    "500": make_status_fault(500, "oops", "api_error"),
    "502 with a web page": lambda dialect, good: ServerAnswer(b"<html>", 502, {"Content-Type": "text/html"}),
    "dropped connection": lambda dialect, good: ServerAnswer(drop=True),
    "half an answer": lambda dialect, good: replace(good, cut=40),
    "malformed JSON": lambda dialect, good: ServerAnswer(b'{"id": "1", "choi'),
    "nothing in it": lambda dialect, good: ServerAnswer(dialect.empty()),
    "slow bytes": lambda dialect, good: replace(good, pieces=5, pause_s=0.005),
    "silence": lambda dialect, good: replace(good, silence_s=2 * TIMEOUT_S),
}
PERMANENT_FAULTS: dict[str, tuple[Fault, str]] = {
    "401": (make_status_fault(401, f"wrong key {CANARY}", "authentication_error"), "_API_KEY"),
    "402": (make_status_fault(402, "Your credit balance is too low"), "billing"),
    "404": (make_status_fault(404, "no such model", "not_found_error"), "model"),
    "content filter": (make_status_fault(400, "blocked: content_policy_violation"), "filter"),
    "529 for ever": (make_status_fault(529, "overloaded", "overloaded_error"), "Given up"),
    "dropped for ever": (PASSING_FAULTS["dropped connection"], "Given up"),
}


def scripts() -> list[dict[str, Any]]:
    """Return scripts of the first role, of different lengths; each ends without a data set."""
    look = [
        call("list_files", path="data"),
        combine_calls(
            call("list_files", path="data/spots"), call("list_files", path="data/spots/plain"), text="Both folders."
        ),
        call("read_files", paths=["data/spots/plain/p000.png"]),
        call("list_files", path="data/nowhere"),
        call("no_such_tool", x=1),
    ]
    return [play(selection=[*look[:n], choice(None, reason=f"Nothing fits, after {n} looks.")]) for n in range(1, 6)]


@dataclass
class Actor:
    """The model behind the server: plays its script, checks its messages, and misbehaves."""

    acts: dict[str, Any]
    dialect: Dialect
    random: random.Random | None = None
    fails_from: int | None = None
    permanent_fault: Fault | None = None
    has_failed: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    delivered: int = 0
    requests: int = 0
    last: list[Any] = field(default_factory=list)

    def __call__(self, request: ReceivedRequest) -> ServerAnswer:
        self.requests += 1
        turns = self.dialect.turns(request.body)
        conversation = parse_turns(turns)
        self._check(turns, conversation)
        answer = self._next_answer(conversation)
        if self.permanent_fault is not None and self.fails_from is not None and self.requests >= self.fails_from:
            self.has_failed = True
            return self.permanent_fault(self.dialect, answer)
        if self.random is not None and self.random.random() < FAULT_SHARE:
            name = self.random.choice([*list(PASSING_FAULTS)[:-1] * 3, "silence"])
            self.faults[name] += 1
            if name != "slow bytes":
                return PASSING_FAULTS[name](self.dialect, answer)
            answer = PASSING_FAULTS[name](self.dialect, answer)
        self.delivered += 1
        return answer

    def _check(self, turns: list[Any], conversation: list[Message]) -> None:
        replies = sum(message.role == "assistant" for message in conversation)
        stage_starts = [message.text for message in conversation if message.text.startswith("Stage: ")]
        if len(stage_starts) == 1 and turns[: len(self.last)] != self.last and self.last[:1] == turns[:1]:
            self.violations.append(f"request {self.requests} changes what was said before")
        if self.last[:1] != turns[:1]:
            self.delivered = replies  # another role, or a resumed run: its conversation begins anew
        if replies != self.delivered:
            self.violations.append(f"request {self.requests} holds {replies} replies; {self.delivered} were delivered")
        self.last = turns

    def _next_answer(self, conversation: list[Message]) -> ServerAnswer:
        stage, replies = place(conversation)
        replies_of_stage = self.acts[stage]
        step: Reply = replies_of_stage[min(replies, len(replies_of_stage) - 1)]
        if not step.calls:
            return ServerAnswer(self.dialect.text(step.text))
        turn_number = sum(message.role == "assistant" for message in conversation)
        calls = [
            (f"c{turn_number}_{n}", tool_call.name, json.dumps(tool_call.arguments))
            for n, tool_call in enumerate(step.calls)
        ]
        return ServerAnswer(self.dialect.calls(*calls))


def parse_turns(turns: list[Any]) -> list[Message]:
    """Return the speakers and the user's words of a conversation in any of the wire formats."""
    parsed: list[Message] = []
    for turn in turns:
        kind = turn.get("type") if isinstance(turn, dict) else "text"
        if kind == "function_call":
            if not parsed or parsed[-1].role != "assistant":
                parsed.append(Message("assistant"))
        elif kind == "function_call_output":
            parsed.append(Message("tool"))
        elif isinstance(turn, dict) and "role" in turn:
            content = turn["content"]
            parts = content if isinstance(content, list) else [{"text": content or ""}]
            parsed += [
                Message(turn["role"], str(part.get("text", "")))
                for part in parts[: None if turn["role"] == "user" else 1]
            ]
    return parsed


def open_model(server: Server, wire: tuple[str, str, str], key: str) -> LLM:
    """Return one of the real adapters, connected to the server, with its own clock."""
    name, title, _ = wire
    clock = Clock()
    retry = Retry(sleep=clock.sleep, clock=clock)
    provider = replace(PROVIDERS[name], base_url=server.url + ("" if name == "anthropic" else "/v1"))
    return registry.open_provider(
        name, title, retry=retry, timeout_s=TIMEOUT_S, provider=provider, key=Key(key, PROVIDERS[name].variables[0])
    )


def comparable_result(result: Result) -> dict[str, Any]:
    """Return a Result without the values that differ from run to run: times and paths."""
    raw = result.to_json()
    for name in ("run_dir", "model_dir", "report"):
        raw.pop(name)
    raw["usage"].pop("wall_s")
    return raw


def play_run(
    acts: dict[str, Any], wire: tuple[str, str, str], data: Path, out: Path, actor: Actor, is_complete: bool
) -> Result:
    """Make one run against one server."""
    with Server(actor) as server:
        sandbox = "auto" if is_complete else "off"
        pipeline = Pipeline(
            open_model(server, wire, CANARY), data=[data], out=out, sandbox=sandbox, max_wall=3600, register=False
        )
        return pipeline.run(REQUEST)


def run_with_faults(
    number: int, seed: int, data: Path, base: Path, acts: dict[str, Any], expected: dict[str, Any], is_complete: bool
) -> Counter[str]:
    """Make one run with failures, compare it with the Result without, and count the events."""
    dice = random.Random(f"{seed}/{number}")
    wire = WIRES[number % len(WIRES)]
    actor = Actor(acts, DIALECTS[wire[2]], dice)
    fault_name = None
    if not is_complete and dice.random() < PERMANENT_FAULT_SHARE:
        fault_name = dice.choice(list(PERMANENT_FAULTS))
        actor.permanent_fault, actor.fails_from = PERMANENT_FAULTS[fault_name][0], dice.randint(1, 3)
    out = base / f"run{number}"
    result = play_run(acts, wire, data, out, actor, is_complete)
    tally: Counter[str] = Counter({f"fault: {name}": count for name, count in actor.faults.items()})
    tally["requests"] += actor.requests
    if fault_name is not None and actor.has_failed:  # else the run had ended before its provider failed for good
        has_reason = result.status == "failed" and PERMANENT_FAULTS[fault_name][1] in result.reason
        tally["typed status"] += has_reason
        tally["BROKEN: " + f"{result.status}: {result.reason}"] += not has_reason
        healthy = Actor(acts, actor.dialect)
        with Server(healthy) as server:
            result = resume(out, open_model(server, wire, CANARY))
        tally["resumed to the same Result"] += comparable_result(result) == expected
        actor.violations += healthy.violations
    else:
        tally["same Result"] += comparable_result(result) == expected
    if comparable_result(result) != expected or result.status not in STATUSES:
        tally[f"BROKEN: run {number} over {wire[2]}: {result.status}: {result.reason}; {result.usage}"] += 1
    for fault in actor.violations:
        tally[f"BROKEN: run {number} over {wire[2]}: {fault}"] += 1
    if leaked := find_leaks(out):
        tally[f"BROKEN: run {number}: the key is in {leaked}"] += 1
    shutil.rmtree(out)
    return tally


def find_leaks(folder: Path) -> list[str]:
    """Return the files of a run that contain the key."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]


def measure(runs: int, complete_runs: int, seed: int, workers: int = 2) -> Counter[str]:
    """Make all runs; keys that begin with `BROKEN` must not occur."""
    base = Path(tempfile.mkdtemp(prefix="m3b-faults-"))
    total: Counter[str] = Counter()
    try:
        data = make_spots(base / "spots", patients=60)
        acts = scripts()
        plans = [(play(), True)] if complete_runs else []
        expected_results: dict[tuple[str, int], dict[str, Any]] = {}
        for wire in WIRES:
            for script_number, (script, complete) in enumerate([*((a, False) for a in acts), *plans]):
                actor = Actor(script, DIALECTS[wire[2]])
                result = play_run(script, wire, data, base / f"clean-{wire[1]}-{script_number}", actor, complete)
                expected_results[wire[1], script_number] = comparable_result(result)
                assert not actor.violations, actor.violations
        with ThreadPoolExecutor(workers) as pool:
            jobs = []
            for number in range(runs + complete_runs):
                complete = number >= runs
                script_number = len(acts) if complete else number // len(WIRES) % len(acts)
                selected_script = plans[0][0] if complete else acts[script_number]
                expected = expected_results[WIRES[number % len(WIRES)][1], script_number]
                jobs.append(pool.submit(run_with_faults, number, seed, data, base, selected_script, expected, complete))
            for job in jobs:
                total += job.result()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--whole", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    started = time.monotonic()
    total = measure(options.runs, options.whole, options.seed, options.workers)
    faults = sum(count for name, count in total.items() if name.startswith("fault: "))
    violations = {name: count for name, count in total.items() if name.startswith("BROKEN")}
    for name in sorted(total):
        print(f"{total[name]:7,}  {name}")
    print(f"{options.runs} runs and {options.whole} whole ones, {total['requests']:,} requests, {faults:,} of them with passing"
          f" trouble, {sum(violations.values())} broken promises; {time.monotonic() - started:.0f} s")  # fmt: skip
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
