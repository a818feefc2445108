"""Agent loops that `overhead.py` compares: each plays the same conversation with a canned model.

Each function imports its framework, and returns the version and a function that plays one conversation, or None if
the framework offers no such mode. `mode` is `memory` (nothing is kept), `recorded` or `synced`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Run = Callable[[int], int]
"""Plays one conversation of the given number of actions and returns the number of tool calls that ran."""


def lookup_text(key: str) -> str:
    """Return the tool's answer: 200 characters that differ with the key, so that no loop detects a repetition."""
    return f"value of {key}: ".ljust(200, ".")


def m3b(mode: str, folder: Path) -> tuple[str, Run]:
    """Return m3b's own loop, with its schema check of each call, and its journal: one line of JSON an event."""
    from m3b.agents.budget import Budget
    from m3b.agents.check_result import accept
    from m3b.agents.conversation import Conversation
    from m3b.agents.loop import Agent
    from m3b.events import Event
    from m3b.journal import Journal
    from m3b.llm.base import ModelFacts
    from m3b.messages import Message, Reply, ToolCall, Usage
    from m3b.tools import ToolResult
    from m3b.tools.schema import coerce_arguments, make_tool_spec

    class Canned:
        name, facts = "canned", ModelFacts(window=1_000_000)

        def __init__(self, actions: int) -> None:
            self.remaining = actions

        def ask(self, request: Any) -> Reply:
            if self.remaining == 0:
                return Reply("Done.")
            self.remaining -= 1
            call = ToolCall(f"call_{self.remaining}", "lookup", {"key": f"k{self.remaining}"})
            return Reply("", (call,), Usage(1000, 0, 20, 1), "tools")

    def lookup(context: Any, key: str) -> Any:
        """Look a key up.

        Args:
            key: what to look up.
        """
        return ToolResult(lookup_text(key))

    class Tools:
        count = 0

        def tool_specs(self, names: Any) -> Any:
            return (make_tool_spec(lookup),)

        def call(self, call: ToolCall, allowed: Any) -> ToolResult:
            self.count += 1
            return lookup(None, **coerce_arguments(lookup, call.arguments))

    def run(actions: int) -> int:
        tools = Tools()
        start = Conversation([Message("system", "You look things up."), Message("user", "Look up every key.")])
        journal = None if mode == "memory" else Journal(folder / "journal.jsonl", fsync=mode == "synced")

        def emit(event: Event) -> None:
            if journal is not None:
                journal.write(event.with_role("single"))

        agent = Agent(
            llm=Canned(actions), tools=tools, allowed_tools=("lookup",), budget=Budget(max_actions=actions + 1), emit=emit,
            conversation=start,
        )  # fmt: skip
        agent.run(lambda text: accept(None))
        if journal is not None:
            journal.close()
        return tools.count

    return "this checkout", run


def langgraph(mode: str, folder: Path) -> tuple[str, Run]:
    """Return the documented graph of a model node and a `ToolNode`; recorded by its checkpointers."""
    import sqlite3

    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    counts = {"calls": 0, "left": 0, "thread": 0}

    @tool
    def lookup(key: str) -> str:
        """Look a key up."""
        counts["calls"] += 1
        return lookup_text(key)

    def model(state: MessagesState) -> dict[str, Any]:
        if counts["left"] == 0:
            return {"messages": [AIMessage("Done.")]}
        counts["left"] -= 1
        call = {"name": "lookup", "args": {"key": f"k{counts['left']}"}, "id": f"call_{counts['left']}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    saver: Any = None
    if mode == "recorded":
        from langgraph.checkpoint.memory import InMemorySaver

        saver = InMemorySaver()
    elif mode == "synced":
        from langgraph.checkpoint.sqlite import SqliteSaver

        saver = SqliteSaver(sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False))
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    app = graph.compile(checkpointer=saver)

    def run(actions: int) -> int:
        counts.update(calls=0, left=actions, thread=counts["thread"] + 1)
        config: Any = {"recursion_limit": 4 * actions, "configurable": {"thread_id": str(counts["thread"])}}
        start = {"messages": [("system", "You look things up."), ("user", "Look up every key.")]}
        app.invoke(start, config, **({"durability": "sync"} if mode == "synced" else {}))
        return counts["calls"]

    return version("langgraph"), run


def smolagents(mode: str, folder: Path) -> tuple[str, Run] | None:
    """Return its `ToolCallingAgent`, silent; it keeps its memory in the process and offers no record on disk."""
    if mode != "memory":
        return None
    from smolagents import Model, Tool, ToolCallingAgent
    from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
    from smolagents.monitoring import LogLevel, TokenUsage

    counts = {"calls": 0, "left": 0}

    class Lookup(Tool):
        name, description, output_type = "lookup", "Look a key up.", "string"
        inputs = {"key": {"type": "string", "description": "What to look up."}}  # noqa: RUF012 (the peer's own form)

        def forward(self, key: str) -> str:
            counts["calls"] += 1
            return lookup_text(key)

    class Canned(Model):
        def generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            name, arguments = "final_answer", {"answer": "Done."}
            if counts["left"]:
                counts["left"] -= 1
                name, arguments = "lookup", {"key": f"k{counts['left']}"}
            function = ChatMessageToolCallFunction(arguments=arguments, name=name)
            call = ChatMessageToolCall(function=function, id=f"call_{counts['left']}", type="function")
            return ChatMessage(MessageRole.ASSISTANT, "", [call], token_usage=TokenUsage(1000, 20))

    def run(actions: int) -> int:
        counts.update(calls=0, left=actions)
        agent = ToolCallingAgent([Lookup()], Canned(), max_steps=actions + 2, verbosity_level=LogLevel.OFF)
        agent.run("Look up every key.")
        return counts["calls"]

    return version("smolagents"), run


def minisweagent(mode: str, folder: Path) -> tuple[str, Run] | None:
    """Return its `DefaultAgent`; recorded by its trajectory file, which is rewritten after every step, never synced."""
    if mode == "synced":
        return None
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.exceptions import Submitted
    from minisweagent.models.utils.actions_text import format_observation_messages

    template = "<returncode>{{output.returncode}}</returncode>\n<output>\n{{output.output}}</output>"

    class Canned:
        config: Any = None

        def __init__(self, actions: int) -> None:
            self.remaining = actions

        def query(self, messages: Any, **_: Any) -> dict[str, Any]:
            self.remaining -= 1
            action = {"command": f"lookup k{self.remaining}" if self.remaining >= 0 else "submit"}
            return {"role": "assistant", "content": action["command"], "extra": {"actions": [action], "cost": 0.0}}

        def format_message(self, **parts: Any) -> dict[str, Any]:
            return parts

        def format_observation_messages(self, message: Any, outputs: Any, template_vars: Any = None) -> Any:
            return format_observation_messages(
                outputs, observation_template=template, template_vars=template_vars, multimodal_regex=""
            )

        def get_template_vars(self, **_: Any) -> dict[str, Any]:
            return {}

        def serialize(self) -> dict[str, Any]:
            return {}

    class Environment:
        """A replacement of its shell: a look-up in the process, as the others have it."""

        config: Any = None
        count = 0

        def execute(self, action: dict[str, str], cwd: str = "") -> dict[str, Any]:
            if action["command"] == "submit":
                raise Submitted(
                    {"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": ""}}
                )
            self.count += 1
            return {"output": lookup_text(action["command"]), "returncode": 0, "exception_info": ""}

        def get_template_vars(self, **_: Any) -> dict[str, Any]:
            return {}

        def serialize(self) -> dict[str, Any]:
            return {}

    def run(actions: int) -> int:
        environment = Environment()
        trajectory_file = folder / "trajectory.json" if mode == "recorded" else None
        agent = DefaultAgent(
            Canned(actions), environment, cost_limit=0, output_path=trajectory_file,
            system_template="You look things up.", instance_template="{{task}}",
        )  # fmt: skip
        agent.run("Look up every key.")
        return environment.count

    return version("mini-swe-agent"), run


CONTENDERS: dict[str, Callable[[str, Path], tuple[str, Run] | None]] = {
    "m3b": m3b, "langgraph": langgraph, "smolagents": smolagents, "minisweagent": minisweagent,
}  # fmt: skip
