"""Run m3b on archives of MedMNIST, and print AUROC and accuracy on their official test part beside published figures.

    python benchmarks/medmnist.py FOLDER [--only NAME ...] [--minutes 5] [--llm rules] [--out DIR]

FOLDER holds any of the 18 archives, such as `pneumoniamnist.npz` or `retinamnist_224.npz`, at any depth. Each archive is one
whole `m3b run` with the request of medmnist_published.json. The figures are computed as MedMNIST's own evaluator does: AUROC
of the second class of two, else the mean over the classes; accuracy of the most probable class, of several findings at 0.5.
The archive's own labels are the truth, not what m3b read. Intervals are 95 % percentiles over 1,000 draws of test images.

"own split" says that exactly the images of the archive's test part were tested. "changed" marks an archive whose MD5 is not
that of the published one; "unknown" one whose MD5 is not listed. Published figures come with their sources, and are
comparable only at equal size of the images: m3b may enlarge those of the archive.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from m3b.metrics.classification_estimators import auroc

PUBLISHED = Path(__file__).with_name("medmnist_published.json")
DRAWS, DRAWS_AT_ONCE = 1000, 50
TEST_ITEM = re.compile(r"#test_images\[(\d+)\]$")


@dataclass(frozen=True)
class TestPart:
    """Truth and probabilities of the test part, both (images, classes); columns as in the archive."""

    truth: np.ndarray
    probabilities: np.ndarray
    is_multi_label: bool

    def auroc(self, weights: np.ndarray) -> np.ndarray:
        """Return (draws,) AUROC for weights (draws, images), NaN for a draw that lacks a class."""
        columns = [1] if not self.is_multi_label and self.truth.shape[1] == 2 else range(self.truth.shape[1])
        return np.mean([auroc(self.probabilities[:, k], self.truth[:, k], weights) for k in columns], axis=0)

    def accuracy(self, weights: np.ndarray) -> np.ndarray:
        """Return (draws,) share of images with the right class; of several findings, the share of right decisions."""
        if self.is_multi_label:
            is_right = ((self.probabilities > 0.5) == self.truth).mean(axis=1)
        else:
            is_right = self.probabilities.argmax(axis=1) == self.truth.argmax(axis=1)
        return weights @ is_right.astype(float) / weights.sum(axis=1)


def find_archives(folder: Path, names: list[str]) -> Iterator[tuple[str, Path]]:
    """Yield the name of a set and its archive, for every archive below the folder."""
    for file in sorted(folder.rglob("*.npz")):
        name = re.sub(r"_(28|64|128|224)$", "", file.stem.lower())
        if name in names:
            yield name, file


def read_truth(archive: Path) -> tuple[np.ndarray, bool]:
    """Return the test labels as (images, classes) of bool, and whether an image may have several."""
    with np.load(archive, allow_pickle=False) as arrays:
        labels, train_labels = arrays["test_labels"], arrays["train_labels"]
    if labels.ndim == 2 and labels.shape[1] > 1:
        return labels.astype(bool), True
    classes = int(max(labels.max(), train_labels.max())) + 1
    return labels.reshape(-1, 1).astype(int) == np.arange(classes), False


def align_predictions(rows: list[dict[str, Any]], truth: np.ndarray, is_multi_label: bool) -> TestPart:
    """Return the predictions of a run in the order of the archive.

    Raises:
        ValueError: the run tested other images than those of the archive's test part, or read other labels.
    """
    places = [TEST_ITEM.search(row["image"]) for row in rows]
    numbers = [int(place[1]) for place in places if place]
    if len(numbers) != len(rows) or sorted(numbers) != list(range(len(truth))):
        raise ValueError(f"the run tested {len(rows)} images, {len(set(numbers))} of the {len(truth)} of the test part")
    names = list(rows[0]["probabilities"])
    read_labels, probabilities = np.zeros((len(truth), len(names)), bool), np.zeros((len(truth), len(names)))
    for number, row in zip(numbers, rows, strict=True):
        read_labels[number] = [name in row["labels"] for name in names]
        probabilities[number] = [row["probabilities"][name] for name in names]
    order: list[int] = []
    for column in truth.T:
        matches = [k for k in range(len(names)) if k not in order and np.array_equal(read_labels[:, k], column)]
        if not matches:
            raise ValueError(
                f"no class of the run ({', '.join(names)}) has the images of class {len(order)} of the archive"
            )
        order.append(matches[0])
    return TestPart(truth, probabilities[:, order], is_multi_label)


def compute_intervals(part: TestPart, seed: int = 0) -> dict[str, tuple[float, float, float]]:
    """Return figure -> value and the ends of its 95 % interval."""
    random, count = np.random.default_rng(seed), len(part.truth)
    samples: dict[str, list[float]] = {"auroc": [], "accuracy": []}
    for _ in range(0, DRAWS, DRAWS_AT_ONCE):
        weights = random.multinomial(count, np.full(count, 1 / count), DRAWS_AT_ONCE).astype(float)
        samples["auroc"] += part.auroc(weights).tolist()
        samples["accuracy"] += part.accuracy(weights).tolist()
    once = np.ones((1, count))
    values = {"auroc": float(part.auroc(once)[0]), "accuracy": float(part.accuracy(once)[0])}
    ends = {name: np.nanquantile(draws, [0.025, 0.975]) for name, draws in samples.items()}
    return {name: (value, float(ends[name][0]), float(ends[name][1])) for name, value in values.items()}


def run_archive(archive: Path, request: str, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Run m3b on a folder that holds only this archive; return its result as `m3b run --json` prints it, {} without one."""
    data = out / "data"
    data.mkdir(parents=True)
    (data / archive.name).write_bytes(archive.read_bytes())
    command = [sys.executable, "-m", "m3b", "run", request, "--data", str(data), "--llm", options.llm, "--json"]
    command += ["--train-minutes", str(options.minutes), "--out", str(out / "run")]
    completed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
    result: dict[str, Any] = json.loads(completed.stdout or "{}")
    return result


def measure_archive(name: str, archive: Path, options: argparse.Namespace, out: Path) -> list[str]:
    """Return the lines of one archive: m3b's, and one for each published figure."""
    entry = json.loads(PUBLISHED.read_text(encoding="utf-8"))["sets"][name]
    digest = hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()
    known_digest = entry.get("md5", "") if archive.stem.lower() == name else ""
    origin = "unknown" if not known_digest else "published" if digest == known_digest else "changed"
    start = time.monotonic()
    result = run_archive(archive, entry["request"], options, out / archive.stem)
    wall_s = time.monotonic() - start
    title = f"{archive.stem} ({origin})"
    rows_file = out / archive.stem / "run" / "locked" / "predictions.json"
    if not rows_file.is_file():
        return [f"{title:32} m3b: {result.get('status', 'no result')}: {result.get('reason', '')}"]
    try:
        part = align_predictions(json.loads(rows_file.read_text(encoding="utf-8")), *read_truth(archive))
    except ValueError as error:
        return [f"{title:32} m3b: not comparable: {error}"]
    figures = compute_intervals(part)
    texts = [f"{value:.3f} ({low:.3f} to {high:.3f})" for value, low, high in figures.values()]
    label = f"m3b, {options.minutes:g} min, own split, n = {len(part.truth)}"
    lines = [f"{title:32} {label:40} {texts[0]:24} {texts[1]:24} {wall_s:.0f} s"]
    for row in entry["published"]:
        numbers = [f"{row[key]:.3f}" if key in row else "-" for key in ("auroc", "accuracy")]
        lines.append(f"{'':32} {row['method']:40} {numbers[0]:24} {numbers[1]:24} [{row['source']}]")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of sets, such as pneumoniamnist")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training")
    parser.add_argument("--llm", default="rules")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    if unknown := sorted(set(options.only) - set(published["sets"])):
        parser.error(f"no sets of MedMNIST: {', '.join(unknown)}; there are {', '.join(published['sets'])}")
    archives = list(find_archives(options.folder, options.only or list(published["sets"])))
    if not archives:
        parser.error(f"{options.folder} has no archive such as pneumoniamnist.npz")
    out = (options.out or Path(tempfile.mkdtemp(prefix="medmnist_"))).resolve()
    print(f"{'archive':32} {'':40} {'AUROC':24} {'accuracy':24}")
    for name, archive in archives:
        print("\n".join(measure_archive(name, archive, options, out)), flush=True)
    missing = [name for name in published["sets"] if name not in {set_name for set_name, _ in archives}]
    print(f"\nNot at hand or not selected: {', '.join(missing)}. Runs in {out}")
    for key, source in published["sources"].items():
        print(f"[{key}] {source}")


if __name__ == "__main__":
    main()
