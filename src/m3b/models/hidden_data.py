"""Images, tables and texts that a delivered folder may hide: in tensors, in metadata, in code and in files like tokenizers.

Found by size and entropy: weights take nearly as many values as they have elements, and tables of indices compress to a few
kilobytes; pictures and encoded bytes do neither.
"""

from __future__ import annotations

import ast
import json
import lzma
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from m3b.isolation import untrusted

MAX_METADATA_BYTES = 4096
"""Maximum size of the metadata of a file of weights; `{"format": "pt"}` is usual."""
MAX_WHOLE_NUMBER_BYTES = 8192
"""Maximum compressed size of all tensors of whole numbers of a file: the position tables of a window of 24 take 4.7 KB."""
MAX_LISTED_NUMBERS = 4096
"""Maximum count of numbers in lists of a text: a picture of 64 x 64 pixels."""
MIN_ENCODED_CHARS = 512
"""Minimum length of a word of base64 or hexadecimal digits that is called encoded."""

_SAMPLE = 65_536
_MIN_ELEMENTS = 16_384
_MAX_LEVELS = {"F64": 1024, "F32": 1024, "F16": 1024, "BF16": 256}
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_MAX_WEIGHT = {"F64": 1e10, "F32": 1e10, "F16": 1e3, "BF16": 1e10}
_MIN_WEIGHT = 1e-30
_MAX_ODD_SHARE = 0.05
_MIN_BITS_PER_ELEMENT = 1.0
_MAX_TABLE_BYTES = 2**25
_WINDOW, _MIN_WINDOW = 16_384, 8_192
_MAX_COMPRESSION_RATIO = 0.68
_MIN_NUMBERS_IN_ROW = 16
_ENCODED = re.compile(rf"[A-Za-z0-9+/=_-]{{{MIN_ENCODED_CHARS},}}")
_CELL = re.compile(r"[^\s,;\[\]()]+")
_NUMBER = re.compile(r"[-+]?\d{0,20}\.?\d{1,20}(?:[eE][-+]?\d{1,3})?")
_IMPORT_NAMES = {"pillow": "PIL", "scikit-learn": "sklearn", "scikit-image": "skimage", "opencv-python": "cv2"}


# --- weights ----------------------------------------------------------------------------------------------------------------


def find_data_in_weights(file: Path, header: Mapping[str, Any], start: int) -> Iterator[str]:
    """Yield what a safetensors file holds beside weights, each as the end of a sentence.

    Args:
        header: of the file: name -> dtype, shape and offsets of a tensor.
        start: position of the first tensor in the file, in bytes.
    """
    if len(json.dumps(header.get("__metadata__", {}))) > MAX_METADATA_BYTES:
        yield f"has more than {MAX_METADATA_BYTES:,} bytes of metadata; deliver tensors only"
    tables = set(read_whole_numbers(file, header, start))
    with untrusted.open_file(file.parent, file.name) as stream:
        for name, tensor in header.items():
            if name == "__metadata__" or tensor["dtype"] not in _DTYPES:
                continue
            begin, end = tensor["data_offsets"]
            itemsize = 8 if tensor["dtype"] == "F64" else 4 if tensor["dtype"] == "F32" else 2
            n_elements = (end - begin) // itemsize
            if n_elements < _MIN_ELEMENTS:
                continue
            middle = max(0, n_elements - _SAMPLE) // 2
            for offset in sorted({0, middle}):
                stream.seek(start + begin + offset * itemsize)
                if kind := _judge_floats(stream.read(min(_SAMPLE, n_elements) * itemsize), tensor["dtype"]):
                    yield f"holds {kind} (tensor {name[:80]!r}); deliver weights only"
                    break
    total = sum(len(lzma.compress(content, preset=0)) for content in tables if len(content) > 512)
    if total > MAX_WHOLE_NUMBER_BYTES:
        yield (
            f"holds tensors of whole numbers that carry {total:,} bytes of data, which may be images or a table; "
            "deliver weights as floats, and data not at all"
        )


def read_whole_numbers(file: Path, header: Mapping[str, Any], start: int) -> Iterator[bytes]:
    """Yield the bytes of the tensors that are no floats, such as counters and tables of positions."""
    with untrusted.open_file(file.parent, file.name) as stream:
        for name, tensor in header.items():
            if name != "__metadata__" and tensor["dtype"] not in _DTYPES:
                begin, end = tensor["data_offsets"]
                stream.seek(start + begin)
                yield stream.read(min(end - begin, _MAX_TABLE_BYTES))


def _judge_floats(content: bytes, dtype: str) -> str:
    """Return what floats are if they are no weights: a picture's few levels, or bytes of something else."""
    stored = np.frombuffer(content, dtype=_DTYPES[dtype])
    values = (stored.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else stored
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(values.astype(np.float64))
        is_odd = ~np.isfinite(size) | (size > _MAX_WEIGHT[dtype]) | ((size > 0) & (size < _MIN_WEIGHT))
    if is_odd.mean() > _MAX_ODD_SHARE:
        return "bytes that are no numbers of a network"
    levels, codes = np.unique(values, return_inverse=True)
    if 2 < levels.size <= _MAX_LEVELS[dtype] and _count_bits(codes) > _MIN_BITS_PER_ELEMENT:
        return f"values of {levels.size} levels, like pixels,"
    return ""


def _count_bits(codes: npt.NDArray[np.integer[Any]]) -> float:
    """Return the bits that each code takes when all are compressed."""
    return 8 * len(lzma.compress(codes.astype("<u2").tobytes(), preset=0)) / codes.size


# --- texts ------------------------------------------------------------------------------------------------------------------


def find_data_in_text(text: str) -> str:
    """Return what a text holds beside words and settings, as the end of a sentence; empty if nothing."""
    for match in _ENCODED.finditer(text):
        if len(set(match[0])) >= 16:
            return f"holds {len(match[0]):,} characters of encoded data; deliver text and safetensors only"
    content = text.encode("ascii", "ignore")  # a vocabulary of Chinese words does not compress either
    for start in range(0, len(content), _WINDOW):
        window = content[start : start + _WINDOW]
        if len(window) >= _MIN_WINDOW and len(zlib.compress(window)) > _MAX_COMPRESSION_RATIO * len(window):
            return "holds encoded data, no words; deliver text and safetensors only"
    if (count := count_listed_numbers(text)) > MAX_LISTED_NUMBERS:
        return f"lists {count:,} numbers, which may be pixels or cases; put weights into a safetensors file"
    return ""


def count_listed_numbers(text: str) -> int:
    """Return how many numbers stand in rows of at least 16, between commas, blanks and brackets."""
    total = row = 0
    for match in _CELL.finditer(text):
        if match.end() - match.start() <= 40 and _NUMBER.fullmatch(match[0]):
            row += 1
            continue
        total += row if row >= _MIN_NUMBERS_IN_ROW else 0
        row = 0
    return total + (row if row >= _MIN_NUMBERS_IN_ROW else 0)


def list_literals(code: str) -> list[Any]:
    """Return the collections and long strings that Python code spells out; empty if it cannot be parsed."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    values = []
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set):
            try:
                values.append(ast.literal_eval(node))
                continue
            except (ValueError, TypeError, RecursionError, MemoryError):
                pass
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            values.append(node.value)
        nodes.extend(ast.iter_child_nodes(node))
    return values


# --- SentencePiece ----------------------------------------------------------------------------------------------------------


def find_data_in_vocabulary(content: bytes) -> str:
    """Return what is wrong with a SentencePiece vocabulary (a protobuf of pieces), as the end of a sentence; empty if nothing is.

    Field 1 of a ModelProto is a piece: its text (field 1), score (field 2, four bytes) and type (field 3); fields 2 to 5 are
    settings (github.com/google/sentencepiece, sentencepiece_model.proto).
    """
    pieces = []
    try:
        for number, value in _read_protobuf(content):
            if not 1 <= number <= 5 or not isinstance(value, bytes):
                raise ValueError(number)
            if number != 1:
                continue
            piece = dict(_read_protobuf(value))
            text = piece.get(1)
            if not isinstance(text, bytes) or len(text) > 256 or not set(piece) <= {1, 2, 3}:
                raise ValueError(number)
            pieces.append(text.decode("utf-8"))
    except (ValueError, IndexError):
        return "is no SentencePiece vocabulary; deliver text and safetensors only"
    return find_data_in_text("\n".join(pieces)) if pieces else "is no SentencePiece vocabulary; it has no pieces"


def _read_protobuf(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: number and value.

    Raises:
        ValueError: it is no protobuf message. IndexError: it ends too early.
    """
    position = 0
    while position < len(content):
        key, position = _read_varint(content, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            integer, position = _read_varint(content, position)
            yield number, integer
            continue
        if wire_type not in (1, 2, 5):
            raise ValueError(wire_type)
        length, position = _read_varint(content, position) if wire_type == 2 else ({1: 8, 5: 4}[wire_type], position)
        if position + length > len(content):
            raise IndexError(position)
        yield number, content[position : position + length]
        position += length


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError(position)


# --- names ------------------------------------------------------------------------------------------------------------------


def list_shadowing_modules(folder: Path) -> list[str]:
    """Return modules at the top of a folder that would be imported instead of Python's own or of required libraries."""
    requirements = folder / "requirements.txt"
    lines = untrusted.read_text(folder, requirements.name, 2**20).splitlines() if requirements.is_file() else []
    required = {match[0].lower() for line in lines if (match := re.match(r"[A-Za-z0-9][\w.-]*", line.strip()))}
    reserved = set(sys.stdlib_module_names) | {_IMPORT_NAMES.get(name, name.replace("-", "_")) for name in required}
    modules = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    return sorted(path.name for path in modules if path.stem in reserved)
