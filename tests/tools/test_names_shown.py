"""An agent at work on files that are named after patients: no name is shown, and its scripts run on the real files."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from PIL import Image

from m3b.agents.budget import Budget
from m3b.agents.check_result import accept
from m3b.agents.conversation import Conversation
from m3b.agents.loop import Agent
from m3b.agents.pseudonymization import PseudonymizingModel, Pseudonyms
from m3b.messages import Message
from m3b.testing.scripted_model import ScriptedModel, call, say
from m3b.tools import TOOLS

PERSONS = ("Weber_Anna_19560302", "Müller_Jürgen", "García_López_María", "Dupont_Jean", "张伟", "Yamada_Taro")
PARTS = ("weber", "anna", "1956", "müller", "jürgen", "garcía", "maría", "dupont", "张伟", "yamada", "taro")


def plant(desk: Any) -> None:
    for person in PERSONS:
        (desk.data / person).mkdir()
        Image.fromarray(np.full((8, 8), 90, np.uint8)).save(desk.data / person / f"{person}_1.png")
    np.savez(desk.data / "all.npz", **{person: np.zeros((4, 4)) for person in PERSONS})
    with h5py.File(desk.data / "all.h5", "w") as file:
        for person in PERSONS:
            file[f"scans/{person}"] = np.zeros((4, 4))
    (desk.data / "ages.json").write_text('{"Weber_Anna_19560302": 61, "Dupont_Jean": 50}')
    (desk.data / "list.txt").write_text("\n".join(f"{person}/{person}_1.png" for person in PERSONS))


def test_no_tool_shows_a_name_and_every_call_meets_its_file(make_desk: Any) -> None:
    desk = make_desk()
    plant(desk)
    file_names: list[str] = []

    def find_pseudonym(messages: Any, mark: str) -> str:
        words = [word.strip("'\",:") for word in messages[-1].text.split()]
        return next(word for word in words if mark in word and "Anon" in word)

    def opens(messages: Any, tools: Any) -> Any:
        file_names.append(find_pseudonym(messages, ".png"))
        code = f"from PIL import Image; import glob; print(Image.open('data/chest/{file_names[0]}').size, glob.glob('data/chest/*'))"
        return call("run_script", command=f'python -c "{code}"')

    steps = [
        call("list_files", path="data/chest"),
        call("preview_dirs", path="data/chest"),
        call("preview_files", paths=["data/chest/all.npz", "data/chest/all.h5", "data/chest/ages.json"]),
        call("read_files", paths=["data/chest/ages.json"]),
        call("read_files", paths=["data/chest/list.txt"]),
        opens,
        lambda messages, tools: call(
            "preview_files", paths=[f"data/chest/{file_names[0]}", f"data/chest/not_{file_names[0]}"]
        ),
        say("done"),
    ]
    model = ScriptedModel(steps)
    agent = Agent(llm=PseudonymizingModel(model, Pseudonyms()), tools=desk.box, allowed_tools=tuple(TOOLS), budget=Budget(),
    emit=lambda event: None,
                  conversation=Conversation([Message("system", "s"), Message("user", "look at data/chest")]))  # fmt: skip
    agent.run(lambda text: accept(None))
    answers = [message.text for message in model.requests[-1][0] if message.role == "tool"]
    sent = repr(
        [(message.text, message.calls) for messages, _ in model.requests for message in messages]
    ).lower()  # facts are never sent
    for part in PARTS:
        assert part not in sent
    assert "Exit code 0" in answers[5]
    assert "(8, 8)" in answers[5]
    assert "width 8" in answers[6]
    real = [message.text for message in agent.conversation.messages if message.role == "tool"]
    assert "Weber_Anna" in real[0], "what stays on this machine has the real names"
