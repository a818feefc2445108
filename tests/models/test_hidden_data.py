"""Images, tables and texts that a delivered folder hides are found by size and entropy; weights and vocabularies are not accused."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from scipy import ndimage

from m3b.models import check_deliverable, hidden_data
from m3b.models.deliverable_check import find_patient_identifiers


def draw_pictures(count: int = 4, size: int = 128) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(count, size, size))
    smooth = ndimage.gaussian_filter(noise, (0, 3, 3)) * 8 + noise * 0.3
    return np.clip(smooth * 40 + 120, 0, 255).astype(np.uint8)


def encode_png() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(draw_pictures(1, 320)[0]).save(stream, "PNG")
    content = stream.getvalue()
    return content[: len(content) // 8 * 8]


TENSORS: dict[str, Callable[[], np.ndarray]] = {
    "pictures of 8 bits": draw_pictures,
    "pictures as int64": lambda: draw_pictures().astype(np.int64),
    "a PNG file": lambda: np.frombuffer(encode_png(), np.uint8),
    "a PNG file as floats": lambda: np.frombuffer(encode_png(), np.float32),
    "a PNG file as half floats": lambda: np.frombuffer(encode_png(), np.float16),
    "pictures as floats of 0 to 255": lambda: draw_pictures().astype(np.float32),
    "pictures as floats of 0 to 1": lambda: draw_pictures().astype(np.float32) / 255,
    "pictures as half floats": lambda: (draw_pictures() / 255).astype(np.float16),
    "standardized pictures": lambda: (draw_pictures().astype(np.float64) - 117.3) / 41.9,
    "a table as letters": lambda: np.frombuffer(make_table(900).encode().ljust(60_000)[:60_000], np.int32),
}


def make_table(count: int) -> str:
    generator = np.random.default_rng(1)
    return "".join(
        f"{generator.integers(10**9)},{generator.integers(90)},{generator.random():.4f}\n" for _ in range(count)
    )


@pytest.mark.parametrize("kind", TENSORS)
def test_data_in_tensors(folder: Path, kind: str) -> None:
    save_file(
        {"w": np.zeros(3, np.float32), "bank": np.ascontiguousarray(TENSORS[kind]())}, folder / "model.safetensors"
    )
    problems = check_deliverable(folder)
    assert len(problems) == 1, problems
    assert problems[0].startswith("model.safetensors holds")


def index_windows(window: int) -> torch.Tensor:
    """Return the positions of Swin transformers: the relative index of each pair of cells of a window."""
    cells = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
    distances = (cells[:, :, None] - cells[:, None, :]).permute(1, 2, 0) + window - 1
    return distances[:, :, 0] * (2 * window - 1) + distances[:, :, 1]


WEIGHTS: dict[str, Callable[[], torch.Tensor]] = {
    "normal": lambda: torch.randn(400, 400) * 0.02,
    "half": lambda: (torch.randn(400, 400) * 0.02).half(),
    "bfloat16": lambda: (torch.randn(400, 400) * 0.02).bfloat16(),
    "stored as bfloat16 before": lambda: (torch.randn(400, 400) * 0.02).bfloat16().float(),
    "ones": lambda: torch.ones(20_000),
    "scales near one as bfloat16": lambda: (1 + torch.randn(8_192) * 0.02).bfloat16().float(),
    "coordinates": lambda: torch.stack(torch.meshgrid(torch.arange(128.0), torch.arange(128.0), indexing="ij")),
    "attention mask": lambda: torch.where(torch.arange(256)[:, None] // 64 == torch.arange(256) // 64, 0.0, -100.0),
    "waves": lambda: torch.sin(torch.arange(512.0)[:, None] / 10_000 ** (torch.arange(256) / 256)),
    "counter": lambda: torch.tensor(412),
    "positions": lambda: torch.arange(8_192),
    "windows": lambda: index_windows(24),
    "double": lambda: torch.randn(200, 200).double(),
    "sparse": lambda: torch.relu(torch.randn(400, 400)),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_are_not_accused(folder: Path, kind: str) -> None:
    torch.manual_seed(0)
    save_torch(
        {f"layer{n}": WEIGHTS[kind]().contiguous() for n in range(4)}, folder / "model.safetensors", {"format": "pt"}
    )
    assert check_deliverable(folder) == []


def test_metadata_is_short(folder: Path) -> None:
    save_file({"w": np.zeros(3, np.float32)}, folder / "model.safetensors", {"notes": make_table(300)})
    assert "metadata" in check_deliverable(folder)[0]


ROWS = [{"patient_id": f"p{n}", "label": n % 2} for n in range(5)]
CODE = {
    "a dict of cases": f"CASES = {ROWS!r}\n",
    "a table of cases": 'T = """patient_id,label\n' + "".join(f"p{n},{n % 2}\n" for n in range(6)) + '"""\n',
    "base64": f"B = {base64.b64encode(encode_png()).decode()!r}\n",
    "base64 in short lines": "".join(f"# {line}\n" for line in base64.encodebytes(encode_png()).decode().split()),
    "base85": f"B = {base64.b85encode(encode_png()).decode()!r}\n",
    "hexadecimal": f"B = '{encode_png().hex()}'\n",
    "pixels": f"P = {draw_pictures(1, 80)[0].tolist()!r}\n",
}


@pytest.mark.parametrize("kind", CODE)
def test_data_in_code(folder: Path, kind: str) -> None:
    (folder / "utils.py").write_text("import os\n" + CODE[kind])
    problems = check_deliverable(folder)
    assert len(problems) == 1, problems
    assert problems[0].startswith("utils.py ")


@pytest.mark.parametrize("name", ["extra.json", "vocab.txt"])
def test_data_in_texts(folder: Path, name: str) -> None:
    for content in (
        json.dumps(draw_pictures(1, 80)[0].tolist()),
        json.dumps({"w": base64.b64encode(encode_png()).decode()}),
    ):
        (folder / name).write_text(content)
        assert len(check_deliverable(folder)) == 1


def write_varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + write_varint(value >> 7)


def write_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + write_varint(len(content)) + content


def write_vocabulary(pieces: list[str]) -> bytes:
    """Return a SentencePiece vocabulary: pieces with a score and a type, settings of training and of normalization."""
    fields = [write_field(1, write_field(1, piece.encode()) + b"\x15\0\0\x80\xbf" + b"\x18\x01") for piece in pieces]
    return b"".join(fields) + write_field(2, b"\x18\x01") + write_field(3, write_field(1, b"nmt_nfkc"))


def list_words() -> list[str]:
    root = Path(hidden_data.__file__).parents[1]
    words = {word for file in sorted(root.rglob("*.py")) for word in file.read_text().split() if word.isalpha()}
    shuffled = sorted(words)
    np.random.default_rng(0).shuffle(shuffled)
    characters = np.random.default_rng(1).integers(0x4E00, 0x9FA5, (3_000, 2))
    return [*shuffled[:6_000], *("".join(map(chr, pair)) for pair in characters)]


def test_vocabularies_are_not_accused(folder: Path) -> None:
    words = list_words()
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "tokenizer.json").write_text(json.dumps({"vocab": [[w, -8.0 - n / 997] for n, w in enumerate(words)]}))
    (folder / "spiece.model").write_bytes(write_vocabulary(["<unk>", *words]))
    assert check_deliverable(folder) == []


@pytest.mark.parametrize(
    "content",
    [
        b"\n" + encode_png(),
        b"\n" + draw_pictures().tobytes(),
        write_field(1, write_field(1, encode_png()[:20_000])),
        write_vocabulary([base64.b64encode(encode_png()[n : n + 90]).decode() for n in range(0, 40_000, 90)]),
        write_vocabulary(["<unk>"]) + write_field(9, b"abc"),
        b"\n\x05ab",
    ],
)
def test_bytes_that_pass_for_a_vocabulary(folder: Path, content: bytes) -> None:
    (folder / "spiece.model").write_bytes(content)
    assert len(check_deliverable(folder)) == 1


def test_identifiers_in_tensors_of_letters(tmp_path: Path) -> None:
    letters = np.frombuffer(b"cases: PAT-00417, PAT-00418", np.uint8)
    save_file({"w": letters.astype(np.int32)}, tmp_path / "a.safetensors")
    save_file({"w": letters}, tmp_path / "b.safetensors")
    save_file({"w": np.arange(9)}, tmp_path / "c.safetensors")
    matches = find_patient_identifiers(tmp_path, ["PAT-00418"])
    assert [text.split()[0] for text in matches] == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize(
    ("name", "is_refused"), [("numpy.py", True), ("json.py", True), ("PIL/__init__.py", True), ("net.py", False)]
)
def test_modules_that_shadow_libraries(folder: Path, name: str, is_refused: bool) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x = 1\n")
    assert bool(check_deliverable(folder)) == is_refused
