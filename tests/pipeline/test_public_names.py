"""What `import m3b` promises: names, types of options, and a result that JSON gives back."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import m3b
from m3b import Measure, Options, Pipeline, Result, UsageError
from m3b.run.options import NamedOptions

NUMBER = st.floats(-1e6, 1e6)
BOUND = st.none() | NUMBER


def test_every_exported_name_is_there_and_on_the_page() -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "python.md").read_text() + (
        Path(__file__).parents[2] / "docs" / "extending.md"
    ).read_text()
    for name in m3b.__all__:
        assert getattr(m3b, name) is not None
        assert name in documentation, name


def test_options_by_name_are_those_that_there_are() -> None:
    hints = typing.get_type_hints(Options)
    del hints["tools"]  # a parameter of Pipeline's own, which takes functions too
    assert typing.get_type_hints(NamedOptions) == hints


def test_a_misspelt_option_is_named_with_what_was_meant() -> None:
    with pytest.raises(UsageError, match=r"no option train_minuts\. Did you mean train_minutes\?"):
        Pipeline("rules", train_minuts=3)  # type: ignore[call-arg]


@given(
    st.builds(Measure, st.just("dice"), NUMBER | st.just(math.nan), BOUND, BOUND, st.integers(0, 99), BOUND,
              st.none() | st.tuples(NUMBER, NUMBER), st.none() | st.integers(1, 9)),
    st.none() | st.tuples(NUMBER, BOUND),
)  # fmt: skip
def test_a_result_comes_back_from_json(primary: Measure, acceptable: tuple[float, float | None] | None) -> None:
    result = Result("completed", "good", "find it", primary=primary, acceptable=acceptable)
    again = Result.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False)))
    assert again.to_json() == result.to_json()
    assert again.acceptable == acceptable
    assert again.primary is not None
    assert str(again.primary) == str(primary)


def test_a_result_of_a_run_without_a_figure() -> None:
    result = Result("failed", "no", "find it")
    assert Result.from_json(result.to_json()) == result


def test_nothing_heavy_is_imported_for_the_names() -> None:
    code = "import sys; from m3b import Pipeline, Result, Measure, Event, UsageError; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)
