"""A toolbox in a process of its own, asked over pipes, so that attacks meet the environment, user and memory of a real
m3b: `{"top": folder, "backend": name}` lays out a run, `{"tool": name, "arguments": {...}}` calls a tool."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from m3b.isolation.sandbox import Limits, choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox


def lay_out(top: Path, backend: str) -> Toolbox:
    work, data, resources = top / "run/work", top / "raw", top / "run/resources"
    for folder in (work / "data", data, resources):
        folder.mkdir(parents=True)
    (work / "data/chest").symlink_to(data)
    (work / "resources").symlink_to(resources)
    (data / "inner.txt").write_text("raw")
    (top / "secret.txt").write_text("outside-secret")
    return Toolbox(
        Roots(work, {"data/chest": data, "resources": resources}),
        sandbox=choose_sandbox(backend),
        limits=Limits(memory_mib=2048, wall_s=120),
        mounts_read=(data, resources),
        logs=top / "run/logs",
    )


def main() -> None:
    box: Toolbox | None = None
    for line in sys.stdin:
        question = json.loads(line)
        if "top" in question:
            if box is not None:
                box.close()
            box = lay_out(Path(question["top"]), question["backend"])
            answer = {"pid": os.getpid()}
        else:
            assert box is not None
            result = box.call(ToolCall("1", question["tool"], question["arguments"]), tuple(TOOLS))
            answer = {"text": result.text, "is_error": result.is_error, "data": result.data}
        print(json.dumps(answer), flush=True)
    if box is not None:
        box.close()


if __name__ == "__main__":
    main()
