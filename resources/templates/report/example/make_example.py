"""Writes a tiny example, so that the project runs as shipped: shapes on a side, with a report that says so.

python example/make_example.py [--cases 80] [--dims 2] [--size 48] [--views 1] [--language en|de]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

PHRASES = {
    "en": {
        "disc": ("There is a round density on the {} measuring 4.5 mm.", "Round density, {} side."),
        "square": ("A square density projects over the {} field.", "Square density seen on the {}."),
        "none": ("No density is seen.", "The fields are clear."),
        "left": "left",
        "right": "right",
        "impression": {"disc": "{} round density.", "square": "{} square density.", "none": "Normal study."},
    },
    "de": {
        "disc": ("Es zeigt sich {} eine runde Verschattung von 4,5 mm Größe.", "Runde Verschattung {}."),
        "square": ("Eine eckige Verschattung überlagert {} das Feld.", "Eckige Verschattung {}."),
        "none": ("Keine Verschattung.", "Die Felder sind frei."),
        "left": "links",
        "right": "rechts",
        "impression": {"disc": "Runde Verschattung {}.", "square": "Eckige Verschattung {}.", "none": "Unauffällig."},
    },
}


def draw(rng: np.random.Generator, dims: int, size: int, facts: list[tuple[str, str]]) -> np.ndarray:
    """uint8 (size,)*dims: noise, with discs (balls) and squares (cubes) on their sides."""
    image = rng.normal(80, 12, (size,) * dims)
    grid = np.stack(np.meshgrid(*[np.arange(size)] * dims, indexing="ij"))
    for name, side in facts:
        centre = rng.uniform(size * 0.35, size * 0.65, (dims, *(1,) * dims))
        centre[1] = size * (0.25 if side == "left" else 0.75)
        radius = size * rng.uniform(0.14, 0.19)
        is_inside = np.linalg.norm(grid - centre, axis=0) < radius * 1.1
        if name == "square":
            is_inside = np.abs(grid - centre).max(axis=0) < radius
        image[is_inside] += 70 if name == "square" else 100
    return np.clip(image, 0, 255).astype(np.uint8)


def report(rng: np.random.Generator, facts: list[tuple[str, str]], language: str) -> dict[str, str]:
    """Findings in varying words, and an impression."""
    phrases: dict[str, Any] = PHRASES[language]
    sentences = [
        phrases[name][int(rng.random() < 0.3)].format(phrases[side]) for name, side in facts or [("none", "left")]
    ]
    first, side = (facts or [("none", "left")])[0]
    impression = str(phrases["impression"][first]).format(phrases[side])
    return {"findings": " ".join(sentences), "impression": impression[:1].upper() + impression[1:]}


def make_example(
    folder: Path, cases: int = 80, dims: int = 2, size: int = 48, views: int = 1, language: str = "en"
) -> None:
    """`folder/data/example/*` and `folder/Datapath/{train,test,label_dict}.json`; a fifth is for the test.

    With several views every third study has one view only. Every tenth report lacks its findings, every tenth its
    impression.
    """
    rng = np.random.default_rng(0)
    place = folder / "data" / "example"
    place.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = []
    for number in range(cases):
        facts = [(name, ("left", "right")[int(rng.integers(2))]) for name in ("disc", "square") if rng.random() < 0.5]
        paths = []
        for view in range(1 if number % 3 == 2 else views):
            name = f"case_{number:03d}_{view}.{'png' if dims == 2 else 'npy'}"
            image = draw(rng, dims, size, facts)
            if dims == 2:
                from PIL import Image

                Image.fromarray(image).save(place / name)
            else:
                np.save(place / name, image)
            paths.append(f"data/example/{name}")
        text = report(rng, facts, language)
        if number % 10 == 4:
            text["findings"] = ""
        if number % 10 == 8:
            text["impression"] = ""
        records.append({"image_path": paths if views > 1 else paths[0], "report": text, "patient": f"p{number}"})
    cut = cases - cases // 5
    (folder / "Datapath").mkdir(exist_ok=True)
    for name, part in (("train", records[:cut]), ("test", records[cut:])):
        text_out = json.dumps(part, indent=1, ensure_ascii=False)
        (folder / "Datapath" / f"{name}.json").write_text(text_out, encoding="utf-8")
    (folder / "Datapath" / "label_dict.json").write_text("{}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=80)
    parser.add_argument("--dims", type=int, default=2, choices=(2, 3))
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--language", default="en", choices=tuple(PHRASES))
    options = parser.parse_args()
    make_example(Path(), options.cases, options.dims, options.size, options.views, options.language)
    print("wrote data/example and Datapath/*.json")
