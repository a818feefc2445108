"""Read pickles without running anything in them.

Only containers, numbers, texts, numpy arrays and torch tensors are rebuilt, the last two as plain records of this
module; every other class or function is refused by name before anything is called.
"""

from __future__ import annotations

import collections
import io
import pickle
import re
from collections.abc import Callable
from typing import Any

from m3b.errors import ToolError

_DTYPE = re.compile(r"[<>|=]?[biufcSUV?M]\d{0,6}")
_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "LongStorage": "<i8", "IntStorage": "<i4",
    "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1", "BoolStorage": "|b1",
    "BFloat16Storage": "bfloat16", "ComplexFloatStorage": "<c8", "ComplexDoubleStorage": "<c16",
    "UntypedStorage": "<u1",
}  # fmt: skip


class UnsafePickle(ToolError):
    """The pickle needs something that could run code."""


class DType:
    """A numpy dtype by its code, such as `<f4`."""

    def __init__(self, code: object = "V", *_: object) -> None:
        self.code = code if isinstance(code, str) and _DTYPE.fullmatch(code) else "O"
        if isinstance(code, str) and code.startswith("O"):
            self.code = "O"

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.code = state[1] + self.code.lstrip("<>|=")


class Array:
    """A numpy array as it lies in the pickle; `data` is its raw bytes, or a list for arrays of objects."""

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype = DType()
        self.fortran = False
        self.data: object = b""

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], DType)):
            raise UnsafePickle("a numpy array in the pickle is not of the usual form")
        self.shape, self.dtype, self.fortran, self.data = _dims(state[1]), state[2], bool(state[3]), state[4]

    def values(self) -> Any:
        """The values as a numpy array; nothing for arrays of objects or a wrong number of bytes."""
        import numpy as np

        if not isinstance(self.data, bytes | bytearray) or not _DTYPE.fullmatch(self.dtype.code):
            return None
        dtype = np.dtype(self.dtype.code)
        count = 1
        for one in self.shape:
            count *= one
        if not dtype.itemsize or count * dtype.itemsize != len(self.data):
            return None
        return np.frombuffer(self.data, dtype).reshape(self.shape, order="F" if self.fortran else "C")


class Scalar:
    """A numpy scalar."""

    def __init__(self, dtype: object = None, data: object = b"", *_: object) -> None:
        self.dtype = dtype if isinstance(dtype, DType) else DType()
        self.data = data

    def __setstate__(self, state: object) -> None:
        """A scalar has no state; without this method a pickle could set attributes of the class."""


class Storage:
    """The memory of a torch tensor: its type, its key in the archive and its number of elements."""

    def __init__(self, dtype: str, key: str, count: int) -> None:
        self.dtype, self.key, self.count = dtype, key, count


class Tensor:
    """A torch tensor by its storage."""

    def __init__(
        self, storage: object = None, offset: object = 0, size: object = (), stride: object = (), *_: object
    ) -> None:
        self.storage = storage if isinstance(storage, Storage) else Storage("?", "", 0)
        self.offset = offset if isinstance(offset, int) else 0
        self.shape, self.stride = _dims(size), _dims(stride)

    def __setstate__(self, state: object) -> None:
        """Attributes of a tensor are not needed."""


class _Call:
    """A function that a pickle may call but not change: pickles can set attributes of what they name."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, *arguments: Any) -> Any:
        return self._run(*arguments)

    def __setstate__(self, state: object) -> None:
        raise UnsafePickle("it changes a function, and that could run code")


def _dims(value: object) -> tuple[int, ...]:
    if isinstance(value, tuple | list) and all(isinstance(one, int) and 0 <= one < 2**48 for one in value):
        return tuple(int(one) for one in value)
    raise UnsafePickle("a shape in the pickle is not a tuple of integers")


def _encode(text: object, encoding: object = "latin1", *_: object) -> bytes:
    """`_codecs.encode`, the way in which old pickles carry bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise UnsafePickle("_codecs.encode with an unusual encoding")
    return text.encode(str(encoding), "replace")


def _frombuffer(
    buffer: object = b"", dtype: object = None, shape: object = (), order: object = "C", *_: object
) -> Array:
    array = Array()
    array.shape, array.fortran = _dims(shape), order == "F"
    array.dtype = dtype if isinstance(dtype, DType) else DType()
    array.data = bytes(buffer) if isinstance(buffer, bytes | bytearray | memoryview | pickle.PickleBuffer) else b""
    return array


def _parameter(data: object = None, *_: object) -> object:
    return data


def _buffer(data: object = b"", *_: object) -> bytes:
    """`bytearray(...)` of bytes only: of a number it would take that much memory."""
    return data if isinstance(data, bytes) else b""


def _sequence(kind: type[Any]) -> _Call:
    def build(items: object = (), *_: object) -> Any:
        return kind(items) if isinstance(items, list | tuple | set) else kind()

    return _Call(build)


def _allowed(module: str, name: str) -> Any:
    if module in ("builtins", "__builtin__") and name in ("set", "frozenset", "list", "tuple"):
        return _sequence({"set": set, "frozenset": frozenset, "list": list, "tuple": tuple}[name])
    if module in ("builtins", "__builtin__") and name in ("dict", "int", "float", "bool", "str", "complex"):
        return {"dict": dict, "int": int, "float": float, "bool": bool, "str": str, "complex": complex}[name]
    if module in ("builtins", "__builtin__") and name in ("bytearray", "bytes"):
        return _Call(_buffer)
    if module == "torch" and name in _STORAGES:
        return _STORAGES[name]
    if module == "torch" and name in _TORCH_WORDS:
        return f"torch.{name}"
    return _NAMES.get((module, name))


_TORCH_WORDS = {
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "strided", "contiguous_format",
}  # fmt: skip
_NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _Call(_encode),
    ("numpy", "dtype"): DType,
    ("numpy", "ndarray"): Array,
    ("torch._utils", "_rebuild_tensor_v2"): Tensor,
    ("torch._utils", "_rebuild_tensor"): Tensor,
    ("torch._utils", "_rebuild_parameter"): _Call(_parameter),
    ("torch", "Size"): _sequence(tuple),
    ("torch.storage", "UntypedStorage"): "<u1",
    **{(f"numpy.{core}.multiarray", "_reconstruct"): Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): Scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Call(_frombuffer) for core in ("core", "_core")},
}


class Restricted(pickle.Unpickler):
    """An unpickler that knows no class or function but those above."""

    def find_class(self, module: str, name: str) -> Any:
        """One of the stand-ins of this module.

        Raises:
            UnsafePickle: anything else.
        """
        found = _allowed(module, name)
        if found is None:
            raise UnsafePickle(f"it needs {module}.{name}, and loading that could run code")
        return found

    def persistent_load(self, pid: Any) -> Any:
        """A torch storage, named but not read."""
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[4], int):
            return Storage(pid[1] if isinstance(pid[1], str) else "?", str(pid[2]), pid[4])
        raise UnsafePickle("it names an object outside of the pickle")


def load(data: bytes) -> list[Any]:
    """Every pickle in the data, one after the other (old torch files hold several), raw bytes behind them left out.

    Raises:
        UnsafePickle: it needs something that could run code.
        ToolError: it is not a pickle.
    """
    stream = io.BytesIO(data)
    found: list[Any] = []
    while stream.tell() < len(data) and len(found) < 5:
        try:
            found.append(Restricted(stream).load())
        except UnsafePickle:
            raise
        except Exception as error:  # noqa: BLE001 - broken or hostile pickles raise anything
            if found:
                break
            raise ToolError(f"not a readable pickle: {type(error).__name__}: {error}") from None
    return found
