"""Replies in the form that each external program expects, which make it run one script.

A function returns the steps of a scripted model: with a script, the program writes and runs it; without a script, it only looks.
The script is run by the `python` on the PATH.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from m3b.testing.scripted_model import call, say

Steps = list[Callable[..., Any] | Any]


def mini(script: str | None) -> Steps:
    done = call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    return [
        call("bash", command=f"cat > make.py <<'END'\n{script}\nEND\npython make.py")
        if script
        else call("bash", command="ls"),
        done,
    ]


def smolagents(script: str | None) -> Steps:
    run = "print(subprocess.run(['python', 'make.py'], capture_output=True, text=True).stdout)"
    code = (
        f"import subprocess\nwith open('make.py', 'w') as f:\n    f.write({script!r})\n{run}" if script else "print(1)"
    )
    # a model that does not stop by itself goes on to dream what it will see
    return [say(f"Thought: I do it.\n<code>\n{code}\n</code>\nObservation: a dream"),
            say("Thought: That is all.\n<code>\nfinal_answer('done')\n</code>")]  # fmt: skip


def aider(script: str | None) -> Steps:
    def format_file(name: str, text: str) -> str:
        return f"{name}\n````\n{text.strip()}\n````\n\n"

    look = [say(f"Once more.\n\n{format_file('main.sh', f'echo look {number}; exit 1')}") for number in range(4)]
    if script is None:
        return look
    last = say("Done.\n\n" + format_file("main.sh", "python make.py"))
    final_files = format_file("make.py", script) + format_file("main.sh", "python make.py\nexit 1")
    return [*look, say("I write it.\n\n" + final_files), last]


def aide(script: str | None) -> Steps:
    run = "print(subprocess.run(['python', 'make.py', '../../Deliver'], capture_output=True, text=True).stdout)"
    code = f"import subprocess\nopen('make.py', 'w').write({script!r})\n{run}" if script else "print(1)"

    def answer(messages: Any, tools: Any) -> Any:
        if tools:
            return call("submit_review", is_bug=False, summary="It runs.", metric=0.5, lower_is_better=False)
        return say(f"I write the folder at once.\n\n```python\n{code}\n```")

    return [answer]


def mlzero(script: str | None) -> Steps:
    code = script or "print(1)"

    def answer(messages: Any, tools: Any) -> Any:
        text = messages[-1].text.lstrip()
        if text.startswith("Generate Python code to read"):
            return say("```python\nprint('a table')\n```")
        if "expert code evaluator" in text[:200]:
            return say("DECISION: FINISH\nERROR_SUMMARY: None")
        if text.startswith("As an AutoML Agent"):
            return say(f"```python\n{code}\n```")
        if "Execute the Python script: " in text:
            path = text.partition("Execute the Python script: ")[2].splitlines()[0]
            return say(f"```bash\npython {path}\n```")
        return say("Description Files:\n\nSELECTED_LIBRARY: machine learning\nEXPLANATION: It fits.")

    return [answer]


REPLIES: Mapping[str, Callable[[str | None], Steps]] = {
    "mini-swe-agent": mini,
    "smolagents": smolagents,
    "aider": aider,
    "aide": aide,
    "crea": aide,
    "meddle": aide,
    "mlzero": mlzero,
}
"""Name of a system -> its replies."""
