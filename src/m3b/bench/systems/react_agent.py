"""A simple ReAct agent as in MLAgentBench: thought, action and observation as text, until the final answer.

Runs inside the sandbox with the standard library only: `python react_agent.py PROMPT.md --steps N`. The reply format is
that of the paper (MLAgentBench, arXiv 2310.03302, section 4): Reflection, Thought, Action, Action Input.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

REPLY_FORMAT = """You work in a loop. Each reply has exactly this form:
Reflection: what the last observation means
Thought: what you do next and why
Action: one of List Files, Read File, Write File, Run Command, Final Answer
Action Input: one JSON object: {"path": ...}, {"path": ..., "text": ...}, {"command": ...} or {"answer": ...}
Then stop; the next message is the observation."""
KEPT_EXCHANGES = 12
"""Number of the last exchanges that are sent in full; older observations are shortened, to limit the context."""
MAX_OBSERVATION_CHARACTERS = 6000
COMMAND_TIMEOUT_S = 3600


def ask_model(messages: list[dict[str, str]]) -> str:
    """Return the reply of the model at `M3B_BASE_URL`."""
    body = json.dumps({"model": os.environ.get("M3B_MODEL", "model"), "messages": messages}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['M3B_BASE_URL']}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=1800) as answer:  # nosec B310  # the relay's loopback address, set by m3b
        return str(json.loads(answer.read())["choices"][0]["message"]["content"] or "")


def parse_reply(text: str) -> tuple[str, dict[str, str]]:
    """Return the action and its input from a reply.

    Raises:
        ValueError: the reply has not the required form; the message says why.
    """
    action = re.search(r"^Action:\s*(.+?)\s*$", text, re.MULTILINE)
    start = re.search(r"^Action Input:\s*", text, re.MULTILINE)
    if action is None or start is None:
        raise ValueError("the reply has no `Action:` and `Action Input:` lines")
    raw, _ = json.JSONDecoder().raw_decode(text[start.end() :].lstrip().removeprefix("```json").lstrip())
    if not isinstance(raw, dict):
        raise ValueError("Action Input is no JSON object")
    return action[1].lower(), {key: str(value) for key, value in raw.items()}


def act(action: str, arguments: dict[str, str]) -> str:
    """Do an action and return the observation."""
    if action == "list files":
        return "\n".join(sorted(os.listdir(arguments.get("path", "."))))
    if action == "read file":
        return Path(arguments["path"]).read_text(encoding="utf-8", errors="replace")
    if action == "write file":
        target = Path(arguments["path"])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(arguments["text"], encoding="utf-8")
        return f"wrote {target}"
    if action == "run command":
        completed = subprocess.run(
            arguments["command"],
            shell=True,  # nosec B602  # it runs inside the sandbox, whose purpose this is
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            errors="replace",
            check=False,
        )
        return f"exit status {completed.returncode}\n{completed.stdout}{completed.stderr}"
    raise ValueError(f"there is no action {action!r}")


def shorten(text: str, limit: int = MAX_OBSERVATION_CHARACTERS) -> str:
    """Return beginning and end of a long observation."""
    return (
        text
        if len(text) <= limit
        else f"{text[: limit // 2]}\n... {len(text) - limit} characters left out ...\n{text[-limit // 2 :]}"
    )


def main(arguments: list[str]) -> int:
    """Run the agent; return 0 after the final answer, 3 if the model does not answer, 4 if all steps are used."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prompt", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args(arguments)
    messages = [
        {"role": "system", "content": REPLY_FORMAT},
        {"role": "user", "content": options.prompt.read_text(encoding="utf-8")},
    ]
    for step in range(options.steps):
        try:
            reply = ask_model(messages)
        except (urllib.error.URLError, OSError) as error:
            print(f"step {step}: the model does not answer: {error}", flush=True)
            return 3
        print(f"--- step {step}\n{reply}", flush=True)
        try:
            action, action_input = parse_reply(reply)
            if action == "final answer":
                return 0
            observation = act(action, action_input)
        except (ValueError, KeyError, OSError, subprocess.TimeoutExpired) as error:
            observation = f"{type(error).__name__}: {error}"
        messages += [
            {"role": "assistant", "content": reply},
            {"role": "user", "content": f"Observation: {shorten(observation)}"},
        ]
        for old_message in messages[2 : -2 * KEPT_EXCHANGES]:
            old_message["content"] = shorten(old_message["content"], 400)
    return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
