"""Text burnt into pixels: found on drawn pictures, told from markers, and not seen where there is none."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from m3b.agents.checks.index import UNFIXABLE_CODES
from m3b.agents.checks.worker_jobs import audit_in_reader
from m3b.data.index import Index, Record
from m3b.data.synthetic import radiograph
from m3b.dataset.audit import audit_index
from m3b.dataset.pixel_text import PixelText, classify_identity, find_pixel_texts, is_ocr_installed, to_text_picture

NAMES = ("WEBER^ANNA", "Garcia, Maria", "Name: J. Smith")
NUMBERS = ("MRN 00482133", "ID: 7734512", "4482190337")
DATES = ("12.03.1961", "1961-03-12", "19610312", "03/12/1961", "12 MAR 1961")
MARKERS = ("L", "R", "LEFT", "5 cm", "10mm", "SUPINE")
HARMLESS = (*MARKERS, "LEFT KIDNEY", "MI 0.8 TIs 0.4", "FR 32Hz", "120 kV 250 mA", "LONG AXIS", "12:31:05")

needs_ocr = pytest.mark.skipif(not is_ocr_installed(), reason="the extra `ocr` is not installed")


def draw_text(text: str, *, seed: int, size: int, side: int = 256) -> np.ndarray:
    """A drawn radiograph with a text at a random place, light on it."""
    random = np.random.default_rng(seed)
    picture = Image.fromarray(radiograph(random, bool(seed % 2))).resize((side, side)).convert("RGB")
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    place = (int(random.integers(2, max(3, side - right - left - 2))), int(random.integers(2, side - bottom - top - 2)))
    ImageDraw.Draw(picture).text(place, text, fill=(255, 255, 255), font=font)
    return np.asarray(picture)


@pytest.mark.parametrize("text", [*NAMES, *NUMBERS, *DATES])
def test_identity_is_recognised_by_its_form(text: str) -> None:
    assert classify_identity(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_words_are_no_identity(text: str) -> None:
    assert classify_identity(text) == ""


def test_markers_are_known() -> None:
    assert all(PixelText(text, (0, 0, 1, 1)).is_marker for text in MARKERS)
    assert not any(PixelText(text, (0, 0, 1, 1)).is_marker for text in (*NAMES, *NUMBERS, *DATES, "LEFT KIDNEY"))


@needs_ocr
def test_drawn_text_is_found_where_it_stands() -> None:
    """Nine in ten of drawn texts of 10 to 24 pixels are recognised as identity, without any connection."""
    texts, n_recognised = (*NAMES, *NUMBERS, *DATES), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was opened"))
        for seed, text in enumerate(texts):
            picture = draw_text(text, seed=seed, size=(10, 14, 18, 24)[seed % 4])
            n_recognised += any(line.identity for line in find_pixel_texts(picture))
    assert n_recognised >= 0.9 * len(texts)


@needs_ocr
def test_the_box_covers_the_text() -> None:
    picture = np.zeros((200, 300, 3), np.uint8)
    canvas = Image.fromarray(picture)
    ImageDraw.Draw(canvas).text((120, 60), "4482190337", fill=(255, 255, 255), font=ImageFont.load_default(16))
    pixels = np.asarray(canvas)
    (line,) = find_pixel_texts(pixels)
    top, left, bottom, right = line.box
    covered = pixels.copy()
    covered[top:bottom, left:right] = 0
    assert covered.sum() < 0.02 * pixels.sum()
    assert (bottom - top) * (right - left) < 0.1 * 200 * 300


@needs_ocr
def test_pictures_without_text_give_no_alarm() -> None:
    random = np.random.default_rng(5)
    for number in range(10):
        picture = np.repeat(radiograph(random, bool(number % 2))[..., None], 3, axis=-1)
        assert not [line for line in find_pixel_texts(picture) if line.identity]


def make_set(folder: Path, text: str) -> Index:
    for number in range(12):
        picture = draw_text(text if number % 2 else "R", seed=number, size=16)
        Image.fromarray(picture[..., 0]).save(folder / f"{number}.png")
    records = tuple(Record(f"{number}.png", ("ab"[number % 2],), f"p{number}") for number in range(12))
    return Index(records[:8], records[8:], ("a", "b"))


@needs_ocr
def test_the_audit_warns_of_identity_and_not_of_markers(tmp_path: Path) -> None:
    for text, expected in (("GARCIA^MARIA 12.03.1961", {"identity_in_pixels": "warn"}), ("L", {})):
        audit = audit_index(make_set(tmp_path, text), tmp_path)
        severities = {
            finding.code: finding.severity for finding in audit.findings if finding.code == "identity_in_pixels"
        }
        assert severities == expected
    assert "identity_in_pixels" in UNFIXABLE_CODES, "no other index removes it"


@needs_ocr
def test_the_finding_does_not_repeat_the_text(tmp_path: Path) -> None:
    audit = audit_index(make_set(tmp_path, "GARCIA^MARIA 12.03.1961"), tmp_path)
    (finding,) = [finding for finding in audit.findings if finding.code == "identity_in_pixels"]
    assert "GARCIA" not in finding.agent_message.upper()
    assert "1961" not in finding.agent_message
    assert set(finding.cases) <= {f"{number}.png" for number in range(1, 12, 2)}


def test_without_the_extra_nothing_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("m3b.dataset.audit.burnt_in.is_ocr_installed", lambda: False)
    audit = audit_index(make_set(tmp_path, "GARCIA^MARIA 12.03.1961"), tmp_path)
    assert "identity_in_pixels" not in {finding.code for finding in audit.findings}


@needs_ocr
@pytest.mark.confined
def test_the_confined_reader_searches_too(tmp_path: Path) -> None:
    data, work = tmp_path / "raw", tmp_path / "work"
    data.mkdir()
    (work / "Datapath").mkdir(parents=True)
    make_set(data, "GARCIA^MARIA 12.03.1961")
    (work / "data").mkdir()
    (work / "data" / "set").symlink_to(data)
    for split, numbers in (("train", range(8)), ("test", range(8, 12))):
        rows = [
            f'{{"image_path": "data/set/{n}.png", "labels": ["{"ab"[n % 2]}"], "patient": "p{n}"}}' for n in numbers
        ]
        (work / f"Datapath/{split}.json").write_text(f"[{','.join(rows)}]")
    (work / "Datapath/label_dict.json").write_text('{"a": 0, "b": 1}')
    audit = audit_in_reader(work, "diagnosis", 60.0)
    assert "identity_in_pixels" in {finding.code for finding in audit.findings}


def test_a_volume_is_searched_in_its_middle() -> None:
    volume = np.zeros((1, 8, 9, 5), np.int16)
    volume[0, 2, 3, 2] = 1000
    picture = to_text_picture(volume)
    assert picture.shape == (8, 9, 3)
    assert picture[2, 3].tolist() == [255, 255, 255]
