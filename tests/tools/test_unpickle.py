from __future__ import annotations

import collections
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.errors import ToolError
from m3b.tools.previews import pickles
from m3b.tools.previews.unpickle import Array, Scalar, UnsafePickle, load

PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    | st.tuples(inner, inner),
    max_leaves=10,
)  # fmt: skip


class Evil:
    def __init__(self, reduction: tuple) -> None:
        self.reduction = reduction

    def __reduce__(self):
        return self.reduction


@given(value=PLAIN_VALUES, protocol=st.integers(0, 5))
def test_plain_values_come_back(value: object, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol))[0] == value


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3), "f4")), np.array(["a", "bc"])]
)
def test_arrays_come_back(array: np.ndarray, protocol: int) -> None:
    loaded = load(pickle.dumps({"x": array}, protocol))[0]["x"]
    assert isinstance(loaded, Array)
    np.testing.assert_array_equal(loaded.values(), array)


def test_scalars_and_containers() -> None:
    value = {"a": np.float32(1), "b": collections.OrderedDict(x=1), "c": {1, 2}, "d": frozenset("a")}
    for protocol in range(6):
        loaded = load(pickle.dumps(value, protocol))[0]
        assert isinstance(loaded["a"], Scalar)
        assert loaded["b"] == value["b"]
        assert loaded["c"] == {1, 2}


@pytest.mark.parametrize(
    "reduction",
    [
        (os.system, ("touch PWNED",)),
        (eval, ("open('PWNED','w')",)),
        (exec, ("open('PWNED','w')",)),
        (getattr, ("os", "system")),
        (__import__, ("os",)),
        (open, ("PWNED", "w")),
        (Path, ("x",)),
        (type, ("x", (), {})),
        (np.load, ("x",)),
        (np.fromfile, ("x",)),
    ],
)
def test_code_is_refused_and_not_run(reduction: tuple, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(6):
        with pytest.raises(UnsafePickle, match="could run code"):
            load(pickle.dumps({"a": [1, Evil(reduction)]}, protocol))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", [b"numpy\ndtype", b"_codecs\nencode", b"builtins\nset", b"numpy._core.multiarray\nscalar"]
)
def test_the_readers_own_parts_cannot_be_changed(name: bytes) -> None:
    for state in (b"}", b"N}\x8c\x0c__defaults__NsNs\x86", b"N}\x8c\x08__init__Ns\x86"):
        with pytest.raises(ToolError):
            load(b"\x80\x04c" + name + b"\n" + state + b"b.")
    test_scalars_and_containers()


def test_memory_bombs_stay_small() -> None:
    assert load(pickle.dumps(Evil((bytearray, (10**12,)))))[0] == b""
    bomb = pickle.dumps(np.zeros(3)).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85")
    loaded = load(bomb)[0]
    assert loaded.values() is None


@given(data=st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_tool_error(data: bytes) -> None:
    try:
        load(b"\x80\x04" + data)
    except ToolError:
        return


def test_pickle_preview(tmp_path: Path) -> None:
    file = tmp_path / "a.pkl"
    file.write_bytes(
        pickle.dumps({"x": np.zeros((4, 8, 8)), "y": np.array([0, 1, 1, 1]), "names": ["DOE^JANE", "ROE^JIM"]})
    )
    text = "\n".join(pickles.preview(file, "mask"))
    assert "dictionary with 3 keys" in text
    assert "x: array 4 x 8 x 8, <f8" in text
    assert "y: array 4, <i8; range 0 to 1; values 0 x 1, 1 x 3" in text
    assert "JANE" not in text
    assert "JANE" not in "\n".join(pickles.preview(file, "mask"))
    assert "JANE" in "\n".join(pickles.preview(file, "allow"))


def test_refused_pickle_preview(tmp_path: Path) -> None:
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps(Evil((os.system, ("true",)))))
    text = "\n".join(pickles.preview(file, "mask"))
    assert "not opened: it needs posix.system" in text
    assert "run_script" in text


@pytest.mark.parametrize("old", [False, True])
def test_torch_files(tmp_path: Path, old: bool) -> None:
    torch = pytest.importorskip("torch")
    file = tmp_path / "a.pt"
    value = {"state": {"w": torch.ones(3, 4), "n": torch.tensor([0, 1, 1])}, "epoch": 3}
    torch.save(value, file, _use_new_zipfile_serialization=not old)
    lines = "\n".join(pickles.preview(file, "mask"))
    assert "w: tensor 3 x 4, <f4" in lines
    assert "epoch: int 3" in lines
    if not old:
        assert "n: tensor 3, <i8; range 0 to 1; values 0 x 1, 1 x 2" in lines


def test_other_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(ToolError, match=r"without the data\.pkl"):
        pickles.preview(tmp_path / "a.pt", "mask")
