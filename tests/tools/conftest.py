from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from m3b.isolation.sandbox import Limits, choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox, ToolResult

Use = Callable[..., ToolResult]


class Desk:
    """A run's folders as the pipeline lays them out, and a toolbox on them."""

    def __init__(self, top: Path, **options: Any) -> None:
        self.work, self.data, self.resources = top / "work", top / "raw", top / "resources"
        for folder in (self.work / "data", self.data, self.resources):
            folder.mkdir(parents=True)
        (self.work / "data" / "chest").symlink_to(self.data)
        (self.work / "resources").symlink_to(self.resources)
        self.roots = Roots(self.work, {"data/chest": self.data, "resources": self.resources})
        self.box = Toolbox(
            self.roots,
            sandbox=options.pop("sandbox", None) or choose_sandbox(),
            limits=Limits(memory_mib=2048, wall_s=60),
            mounts_read=(self.data, self.resources),
            **options,
        )

    def use(self, name: str, **arguments: Any) -> ToolResult:
        return self.box.call(ToolCall("1", name, arguments), tuple(TOOLS))

    def preview(self, path: Path | str) -> str:
        spelled = path if isinstance(path, str) else self.roots.display_path(path)
        return self.use("preview_files", paths=[spelled]).text


@pytest.fixture
def make_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(**options: Any) -> Desk:
        desks.append(Desk(tmp_path / f"run{len(desks)}", **options))
        return desks[-1]

    yield make
    for desk in desks:
        desk.box.close()


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    return make_desk()
