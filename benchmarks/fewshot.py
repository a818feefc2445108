"""Compare few-shot detection of abnormal images with the ordinary network of the detection template, on the same examples.

    python benchmarks/fewshot.py backbone FOLDER... --out DIR          a small backbone, trained on images by their folders
    python benchmarks/fewshot.py npz FILE --backbone DIR               an archive of MedMNIST; label 0 is normal
    python benchmarks/fewshot.py table CSV --images DIR --image COL --label COL --abnormal TEXT --patient COL --backbone DIR
    python benchmarks/fewshot.py bmad DATA --backbone DIR [--protocol paper]      the sets of BMAD in DATA

For each k of `--shots`, `--draws` times k normal and k abnormal examples are drawn. All networks learn only from them
and predict the test cases: `few-shot` is the model that a run of m3b keeps of that draw, `ordinary` the network that it trains
without a backbone. The parts of the first are shown too: the few-shot detector `alone`, it and the ordinary networks
`together`, and those networks `averaged`. The script prints AUROC with its spread over the draws, and the difference to the ordinary
network with a 95 % interval over patients of the test part (bootstrap of the mean over draws). `--scores DIR` stores the scores of
each draw, and an interrupted call continues from them; several calls may share the folder. `bmad` prints the published
figures next to the measured ones (benchmarks/fewshot_published.json), including k = 0, with adapters of the other sets in DATA; with
`--protocol paper` the evaluation is the published one: scores scaled over the whole test set, and the best epoch on it.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
WIDTH = 16


@dataclass
class PictureSet:
    """Images (rows, columns[, 3]) uint8, whether each is abnormal, its patient, and a mask if there is one."""

    images: list[np.ndarray]
    abnormal: np.ndarray
    patients: list[str]
    masks: list[np.ndarray] | None = None

    def select(self, rows: Sequence[int]) -> PictureSet:
        """Return a part of the images."""
        masks = None if self.masks is None else [self.masks[row] for row in rows]
        return PictureSet(
            [self.images[row] for row in rows], self.abnormal[list(rows)], [self.patients[r] for r in rows], masks
        )


def to_template_cases(pictures: PictureSet, plan: dict[str, Any], folder: Path) -> Any:
    """Write the images as PNG and return the engine's cases; files and features stay in the folder for the next call."""
    from PIL import Image

    from m3b.training.detection.fewshot.data import PictureCases

    folder.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = []
    for number, pixels in enumerate(pictures.images):
        record = {"image_path": str(folder / f"{number}.png"), "patient": pictures.patients[number]}
        files = {record["image_path"]: pixels}
        if pictures.masks is None:
            record["abnormal"] = bool(pictures.abnormal[number])
        else:
            record["mask_path"] = str(folder / f"{number}-mask.png")
            files[record["mask_path"]] = (pictures.masks[number] > 0).astype(np.uint8)
        for name, values in files.items():
            if not Path(name).exists():
                Image.fromarray(values).save(name)
        records.append(record)
    return PictureCases(records, plan, folder=folder)


# --- data ------------------------------------------------------------------------------------------------------------


def from_npz(file: Path) -> tuple[PictureSet, PictureSet]:
    """Return the pool (train and val) and the test part of an archive of MedMNIST."""
    with np.load(file) as stored:
        parts = {
            side: (stored[f"{side}_images"], stored[f"{side}_labels"].ravel() > 0) for side in ("train", "val", "test")
        }
    both = [np.concatenate([parts[side][k] for side in ("train", "val")]) for k in (0, 1)]
    pool = PictureSet(list(both[0]), both[1], [f"pool {n}" for n in range(len(both[0]))])
    images, abnormal = parts["test"]
    return pool, PictureSet(list(images), abnormal, [f"test {n}" for n in range(len(images))])


def from_table(args: argparse.Namespace) -> tuple[PictureSet, PictureSet]:
    """Return half of the patients as the pool, the others as the test part; rows without their image are left out."""
    with args.file.open(encoding="utf-8-sig", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if (args.images / row[args.image]).is_file()]
    rows = [row for row in rows if row[args.label].strip() not in args.without]
    pictures = PictureSet(
        [read_picture(args.images / row[args.image]) for row in rows],
        np.array([row[args.label].startswith(args.abnormal) for row in rows]),
        [row[args.patient] for row in rows],
    )
    names = sorted(set(pictures.patients))
    np.random.default_rng(0).shuffle(names)
    pool = set(names[: len(names) // 2])
    row_sets = [
        [n for n, name in enumerate(pictures.patients) if (name in pool) == is_in_pool] for is_in_pool in (True, False)
    ]
    return pictures.select(row_sets[0]), pictures.select(row_sets[1])


def read_picture(file: Path) -> np.ndarray:
    """Read an image as grey values, or as colours."""
    from PIL import Image

    with Image.open(file) as source:
        image = source.convert("L" if source.mode in ("L", "1", "I;16", "LA") else "RGB")
        image.thumbnail((512, 512))
        return np.asarray(image)


# --- one backbone from other pictures --------------------------------------------------------------------------------


def make_backbone(folders: Sequence[Path], out: Path, epochs: int, max_pictures: int) -> None:
    """Train the small network to tell from which folder an image comes, and keep it without its last layer."""
    import torch
    from safetensors.torch import save_file
    from torch.nn import functional

    from m3b.training.detection.fewshot.convnet import KIND, Classifier
    from m3b.training.detection.fewshot.planning import add_engine, ordinary_input
    from m3b.training.detection.fewshot.views import augment_pictures

    torch.manual_seed(0)
    rng, pictures, names = np.random.default_rng(0), [], []
    for number, folder in enumerate(folders):
        files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in PICTURES)
        rng.shuffle(files)  # type: ignore[arg-type]
        pictures += [read_picture(file) for file in files[:max_pictures]]
        names += [number] * len(files[:max_pictures])
    plan: dict[str, Any] = {"target": "states", "classes": ["anomaly"]}
    add_engine(plan, "image", None, "")
    picture_set = PictureSet(pictures, np.array(names) > 0, [str(n) for n in range(len(names))])
    cases = to_template_cases(picture_set, plan, out / "pictures")
    truth, images = torch.tensor(names), cases.small_pictures(range(len(cases)))
    shutil.rmtree(out / "pictures")
    net = Classifier(WIDTH, len(folders))
    optimiser, started = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.02), time.monotonic()
    for epoch in range(epochs):
        correct = 0
        for rows in torch.randperm(len(images)).split(32):
            augmented, _ = augment_pictures(images[rows], truth[rows, None])
            logits = net(augmented)
            loss = functional.cross_entropy(logits, truth[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            correct += int((logits.argmax(1) == truth[rows]).sum())
        elapsed_s = time.monotonic() - started
        print(
            f"epoch {epoch + 1}: {correct / len(images):.1%} of {len(images)} pictures right, {elapsed_s:.0f} s",
            flush=True,
        )
    out.mkdir(parents=True, exist_ok=True)
    save_file(net.net.state_dict(), str(out / "model.safetensors"))
    (out / "config.json").write_text(json.dumps({"model_type": KIND, "width": WIDTH, **ordinary_input()}))
    print(f"wrote {out}")


# --- the comparison --------------------------------------------------------------------------------------------------


def make_plan(args: argparse.Namespace, target: str) -> dict[str, Any]:
    """Return the template's settings, with the named backbone."""
    from m3b.training.detection.fewshot.backbone import describe_backbone
    from m3b.training.detection.fewshot.planning import add_engine, update_dependent_settings

    plan: dict[str, Any] = {
        "target": target,
        "validation_share": 0.25,
        "seed": 0,
        "classes": ["anomaly"],
        "device": "cpu",
    }
    plan["labels"] = {"anomaly": 1}
    backbone = {**describe_backbone(args.backbone, args.size), "folder": str(args.backbone.absolute())}
    add_engine(plan, "fewshot", backbone, args.object)
    plan["fewshot"] |= {"protocol": args.protocol, "epochs": args.epochs}
    plan["ordinary"] |= {"epochs": args.ordinary_epochs}
    update_dependent_settings(plan)
    return plan


def score_test_cases(plan: dict[str, Any], pool: Any, test: Any, shots: int, seed: int) -> dict[str, np.ndarray]:
    """Score the test cases by the kept model, by its parts and by the ordinary network, from one draw."""
    from m3b.training.detection.fewshot.combination import mean_logit
    from m3b.training.detection.fewshot.cross_fitting import build_ensemble, fit_cross
    from m3b.training.detection.fewshot.data import draw_examples
    from m3b.training.detection.fewshot.fitting import predict_images
    from m3b.training.detection.fewshot.selection import choose_engine_by_auroc

    examples = pool.part(draw_examples(pool, shots, seed))
    fewshot_detector: Any = fit_cross({**plan, "engine": "fewshot"}, examples, 1e6, seed)
    fewshot_scores = predict_images(fewshot_detector, test)[0]
    if pool.masked:
        return {"few-shot": fewshot_scores}
    ordinary: Any = fit_cross({**plan, "engine": "image"}, examples, 1e6, seed)
    scores = {"ordinary": ordinary.predict(test), "alone": fewshot_scores}
    is_paper = plan["fewshot"]["protocol"] == "paper"
    ensemble = None if is_paper else build_ensemble(fewshot_detector, ordinary, plan["backbone"])
    if ensemble is None:
        return {"few-shot": fewshot_scores, **scores}
    scores |= {"together": ensemble.predict(test), "averaged": mean_logit(ensemble.copies, test.small_batches())}
    engine, reason = choose_engine_by_auroc(
        {
            "fewshot": [fewshot_detector.held_out_scores],
            "image": [ordinary.held_out_scores],
            "both": [ensemble.held_out_scores],
        }
    )
    print(f"    k = {shots}, draw {seed + 1}: kept {engine}: {reason}", flush=True)
    return {"few-shot": scores[{"fewshot": "alone", "image": "ordinary", "both": "together"}[engine]], **scores}


def load_or_make_scores(
    folder: Path | None, name: str, settings: str, make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the result of `make`, or load it from the file of an earlier call.

    Raises:
        SystemExit: the file has other settings.
    """
    if folder is None:
        return make()
    file = folder / f"{name}.npz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial_file = file.with_suffix(".part.npz")
        np.savez(partial_file, settings=settings, **make())  # type: ignore[arg-type]
        partial_file.replace(file)
    with np.load(file) as stored:
        if str(stored["settings"]) != settings:
            raise SystemExit(f"{file} holds scores of other settings ({stored['settings']}): take another folder")
        return {engine: stored[engine] for engine in stored.files if engine != "settings"}


def describe_settings(args: argparse.Namespace) -> str:
    """Return the settings that scores depend on besides the examples."""
    names = ("backbone", "size", "epochs", "ordinary_epochs", "protocol", "object", "most_test", "skip_test")
    return ", ".join(f"{name}={getattr(args, name)}" for name in names)


def compare_shots(name: str, pool: PictureSet, test: PictureSet, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return for each k the AUROC of both, draw by draw, and their difference with its interval."""
    plan = make_plan(args, "states")
    folders = [args.cache / f"{name}-{side}-{len(part.images)}" for side, part in (("pool", pool), ("test", test))]
    prepared = [to_template_cases(part, plan, folder) for part, folder in zip((pool, test), folders, strict=True)]
    counts = [(int((~part.abnormal).sum()), int(part.abnormal.sum())) for part in (pool, test)]
    print(
        f"{name}: pool {counts[0][0]} normal, {counts[0][1]} abnormal; test {counts[1][0]} and {counts[1][1]}",
        flush=True,
    )
    rows = []
    for shots in args.shots:
        scores_by_draw = [
            load_or_make_scores(
                args.scores,
                f"{name}-{shots}-{seed}",
                describe_settings(args),
                partial(score_test_cases, plan, *prepared, shots, seed),
            )
            for seed in range(args.draws)
        ]
        rows.append({"set": name, "shots": shots, **compare_paired(scores_by_draw, test)})
        print(format_row(rows[-1]), flush=True)
    return rows


def compare_paired(
    scores_by_draw: Sequence[dict[str, np.ndarray]], test: PictureSet, draws: int = 2000
) -> dict[str, Any]:
    """Return the AUROC of each engine and draw, and a bootstrap of the mean difference over the patients of the test part."""
    from m3b.metrics.classification_estimators import auroc

    names = sorted(set(test.patients))
    numbers = np.array([names.index(entry) for entry in test.patients])
    resampled_counts = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    weights = np.concatenate([np.ones((1, len(numbers))), resampled_counts[:, numbers]]).astype(float)
    areas = {
        engine: np.stack([auroc(entry[engine], test.abnormal, weights) for entry in scores_by_draw])
        for engine in scores_by_draw[0]
    }
    figures: dict[str, Any] = {engine: [round(float(v), 4) for v in value[:, 0]] for engine, value in areas.items()}
    figures["difference"] = {}
    for engine in areas if "ordinary" in areas else ():
        gain = (areas[engine] - areas["ordinary"]).mean(axis=0)
        low, high = np.nanpercentile(gain[1:], [2.5, 97.5])
        figures["difference"][engine] = [round(float(v), 4) for v in (gain[0], low, high)]
    return figures


def format_row(row: dict[str, Any]) -> str:
    """Format one row, with a line for each engine."""
    lines = [f"  k = {row['shots']}"]
    for engine in (name for name in ("few-shot", "ordinary", "alone", "together", "averaged") if name in row):
        line = f"    {engine} {np.mean(row[engine]):.3f} +- {np.std(row[engine]):.3f}"
        if engine != "ordinary" and engine in row["difference"]:
            wins = sum(a > b for a, b in zip(row[engine], row["ordinary"], strict=True))
            gain, low, high = row["difference"][engine]
            line += f"; difference {gain:+.3f} (95 % {low:+.3f} to {high:+.3f}), better in {wins} of {len(row[engine])} draws"
        lines.append(line)
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    backbone_parser = commands.add_parser("backbone")
    backbone_parser.add_argument("folders", nargs="+", type=Path)
    backbone_parser.add_argument("--out", type=Path, required=True)
    backbone_parser.add_argument("--epochs", type=int, default=8)
    backbone_parser.add_argument("--most", type=int, default=150, help="pictures of each folder")
    for name in ("npz", "table", "bmad"):
        dataset_parser = commands.add_parser(name)
        dataset_parser.add_argument("file", type=Path)
        dataset_parser.add_argument("--backbone", type=Path, required=True)
        dataset_parser.add_argument(
            "--shots", type=int, nargs="+", default=[0, 2, 4, 8, 16] if name == "bmad" else [4, 8, 16]
        )
        dataset_parser.add_argument("--draws", type=int, default=5)
        dataset_parser.add_argument("--epochs", type=int, default=50)
        dataset_parser.add_argument("--ordinary-epochs", type=int, default=60)
        dataset_parser.add_argument("--protocol", choices=("m3b", "paper"), default="m3b")
        dataset_parser.add_argument("--object", default="medical image", help="what prompts are about")
        dataset_parser.add_argument("--most-test", type=int, default=0, help="test cases, drawn at random; 0 takes all")
        dataset_parser.add_argument(
            "--skip-test", type=int, default=0, help="test cases of that random order that are left out, from its start"
        )
        dataset_parser.add_argument(
            "--scores", type=Path, help="keeps scores of each draw there, and takes those that are there"
        )
        dataset_parser.add_argument(
            "--size", type=int, default=0, help="side of the input; 0 takes that of the weights"
        )
        dataset_parser.add_argument("--cache", type=Path, help="keeps pictures and frozen features there")
        dataset_parser.add_argument("--json", type=Path, help="writes the rows there")
    table = commands.choices["table"]
    for option in ("images", "image", "label", "abnormal", "patient"):
        table.add_argument(f"--{option}", type=Path if option == "images" else str, required=True)
    table.add_argument("--without", nargs="*", default=[""], help="labels that say nothing, whose rows are left out")
    args = parser.parse_args(argv)
    temporary = Path(tempfile.mkdtemp(prefix="fewshot-"))
    args.cache = getattr(args, "cache", None) or temporary
    try:
        if args.command == "backbone":
            make_backbone(args.folders, args.out, args.epochs, args.most)
        elif args.command == "bmad":
            from fewshot_bmad import run_bmad

            run_bmad(args)
        else:
            pool, test = from_npz(args.file) if args.command == "npz" else from_table(args)
            if args.skip_test or 0 < args.most_test < len(test.images):
                order = np.random.default_rng(0).permutation(len(test.images))[args.skip_test :]
                test = test.select(order[: args.most_test or None].tolist())
            rows = compare_shots(args.file.stem, pool, test, args)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
