"""Share of drawn identity that is found in pixels, false alarms on pictures of folders, and seconds a picture.

    python benchmarks/burnt_in_text.py [FOLDER ...] [--pictures 200] [--per-folder 12]

Only counts are printed, never what was read.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from m3b.data.synthetic import radiograph
from m3b.dataset.pixel_text import find_pixel_texts, to_text_picture
from m3b.dataset.reading import read_overview
from m3b.errors import DataError
from m3b.models.image_jobs import find_images

GIVEN, FAMILY = ("Anna", "Maria", "John", "Peter", "Laura"), ("Weber", "Garcia", "Smith", "Rossi", "Novak")
SIZES_PX, SIDES_PX = (8, 10, 12, 16, 24), (256, 512, 1024)


def make_text(random: np.random.Generator) -> str:
    """Return a name, a date or a record number as scanners write them."""
    family, given, number = random.choice(FAMILY), random.choice(GIVEN), int(random.integers(10**6, 10**8))
    day, month, year = int(random.integers(1, 29)), int(random.integers(1, 13)), int(random.integers(1930, 2010))
    forms = (f"{family.upper()}^{given.upper()}", f"{family}, {given}", f"{day:02d}.{month:02d}.{year}", f"{year}{month:02d}{day:02d}",
             f"ID: {number}", f"MRN {number}")  # fmt: skip
    return forms[int(random.integers(len(forms)))]


def measure_drawn(pictures: int) -> None:
    random, seconds = np.random.default_rng(0), dict.fromkeys(SIDES_PX, 0.0)
    found, total, counts = Counter[int](), Counter[int](), Counter[int]()
    alarms = 0
    for number in range(pictures):
        size, side = SIZES_PX[number % len(SIZES_PX)], SIDES_PX[number % len(SIDES_PX)]
        plain = Image.fromarray(radiograph(random, bool(number % 2))).resize((side, side)).convert("RGB")
        alarms += any(line.identity for line in find_pixel_texts(np.asarray(plain)))
        text, font = make_text(random), ImageFont.load_default(size)
        place = (int(random.integers(2, side - font.getlength(text) - 2)), int(random.integers(2, side - 2 * size)))
        ImageDraw.Draw(plain).text(place, text, fill=(int(random.integers(200, 256)),) * 3, font=font)
        start = time.perf_counter()
        found[size] += any(line.identity for line in find_pixel_texts(np.asarray(plain)))
        seconds[side] += time.perf_counter() - start
        total[size] += 1
        counts[side] += 1
    for size in SIZES_PX:
        print(f"text of {size} px: {found[size]} of {total[size]} recognised")
    print(f"all: {found.total()} of {total.total()}; the same pictures without text: {alarms} false alarms")
    print("seconds a picture: " + ", ".join(f"{side} px {seconds[side] / counts[side]:.2f}" for side in SIDES_PX))


def measure_folder(folder: Path, per_folder: int) -> tuple[int, int, int]:
    """Return the pictures searched, those with any text but markers, and those with text that looks like identity."""
    images = find_images([folder], is_2d=True).images
    count = min(per_folder, len(images))
    searched = texts = identities = 0
    for image in (images[position * len(images) // count] for position in range(count)):
        try:
            lines = find_pixel_texts(to_text_picture(read_overview(image).array))
        except DataError:
            continue
        searched += 1
        texts += any(not line.is_marker for line in lines)
        identities += any(line.identity for line in lines)
    return searched, texts, identities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--per-folder", type=int, default=12)
    options = parser.parse_args()
    if options.pictures:
        measure_drawn(options.pictures)
    rows = [measure_folder(folder, options.per_folder) for folder in options.folders]
    if rows:
        searched, texts, identities = map(sum, zip(*rows, strict=True))
        warned = sum(row[2] > 0 for row in rows)
        print(
            f"{len(rows)} folders, {searched} pictures: {texts} with text, {identities} that looks like identity, in {warned} folders"
        )


if __name__ == "__main__":
    main()
