from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import REQUEST, actor, copy_run, make_spots, play

from m3b import Pipeline, resume
from m3b.errors import Authentication
from m3b.run.result import Result
from m3b.testing.scripted_model import llm_error


@pytest.fixture(scope="session")
def spots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of most tests; nobody may change it."""
    return make_spots(tmp_path_factory.mktemp("data") / "spots")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def build(tmp_path: Path, spots: Path) -> Callable[..., Result]:
    """Run the real pipeline: `build(model=[...])` changes what the scripted model does in a stage."""

    def run(*, llm: Any = None, data: Any = None, request: str = REQUEST, out: str = "run", **options: Any) -> Result:
        acts = {name: options.pop(name) for name in ("selection", "index", "module", "model") if name in options}
        llm = llm if llm is not None else actor(play(**acts))
        return Pipeline(llm, data=[data or spots], out=tmp_path / out, **options).run(request)

    return run


@pytest.fixture(scope="session")
def halfway_run(tmp_path_factory: pytest.TempPathFactory, spots: Path) -> Path:
    """A run whose first three roles are done and whose model then lost its key."""
    acts = play(model=[llm_error(Authentication, "The key is refused.")])
    result = Pipeline(actor(acts), data=[spots], out=tmp_path_factory.mktemp("halfway") / "run").run(REQUEST)
    assert result.status == "failed"
    assert "The key is refused." in result.reason
    return Path(result.run_dir)


@pytest.fixture
def finish(halfway_run: Path, tmp_path: Path) -> Callable[..., Result]:
    """Resume a copy of `halfway_run` with other steps of the last role: a whole run in two seconds."""

    def run(model: Any = None, *, llm: Any = None, copied: Path | None = None, **options: Any) -> Result:
        place = copied or copy_run(halfway_run, tmp_path / "copy")
        changes = {} if model is None else {"model": model}
        return resume(place, llm if llm is not None else actor(play(**changes)), **options)

    return run
