"""Arrays in pickles, without executing anything that a pickle asks for: NumPy arrays and plain containers alone are known."""

from __future__ import annotations

import io
import pickle  # nosec B403  # for the closed list of names below; nothing else is resolved
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .arrays import ArrayFormat
from .base import MAX_DECODED_BYTES
from .errors import DataError
from .tensors import load_tensors, named_arrays

SAFE_NAMES = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
        ("collections", "OrderedDict"),
        *(
            (f"{core}.multiarray", name)
            for core in ("numpy.core", "numpy._core")
            for name in ("_reconstruct", "scalar", "_frombuffer")
        ),
        *((f"{core}.numeric", "_frombuffer") for core in ("numpy.core", "numpy._core")),
    }
)
"""What an array in a pickle is made of."""


class ArrayUnpickler(pickle.Unpickler):
    """Resolves `SAFE_NAMES` alone."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in SAFE_NAMES:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}; only NumPy arrays are loaded")
        return super().find_class(module, name)


class PickledArrays(ArrayFormat):
    """Pickles of NumPy arrays in plain containers, also those of Python 2."""

    name = "pickle"
    suffixes = (".pkl", ".pickle", ".pck")

    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        if zipfile.is_zipfile(path):
            return load_tensors(path)
        if path.stat().st_size > MAX_DECODED_BYTES:
            raise DataError(f"{path}: {path.stat().st_size:,} bytes; {MAX_DECODED_BYTES:,} may be used for one file")
        return named_arrays(ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load())


FORMATS = (PickledArrays(),)
