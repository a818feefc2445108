"""Fine-tune a small network that was pretrained on one set of images on few cases of another, against scratch.

    python benchmarks/pretrained_start.py SOURCE TARGET.npz [--shots 20] [--draws 5] [--steps 200] [--results FILE]
    python benchmarks/pretrained_start.py SOURCE TARGET.csv --images DIR --image COL --label COL --abnormal TEXT --patient COL
        [--without TEXT ...] [...]

SOURCE is an archive of MedMNIST, or a folder of folders that are named after their class: a residual network in torchvision's layout
learns its training part. TARGET is such an archive, with its own test part, or a table of images, their state and their patients:
half of the patients are the pool, the others the test part. For each draw, `--shots` cases of each state
go through the diagnosis template (plan.py, train.py, export.py, predict.py; the same steps for all) three times: `pretrained`, from
those weights by `network.pretrained=DIR`; `random`, the same network from random weights in the same file; `own`, the network that
the template builds if no weights are named. The script prints AUROC on the test part, and the difference to each of the others with a
95 % interval over the patients of the test part (bootstrap of the mean over draws). With `--results` each draw is a line of JSON in
that file as soon as it is known, and an interrupted call continues from there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fewshot import PictureSet, compare_paired, from_npz, from_table, read_picture

from m3b.resources import copy_template

TEMPLATES = Path(__file__).resolve().parents[1] / "resources" / "templates"
ENTRY, ARCH = "torchvision/resnet18", {"block": "basic", "depths": [1, 1, 1, 1], "width": 24}
SIDE = 64
PREDICT_CODE = "import json, sys; from predict import predict; print('RESULT ' + json.dumps(predict(json.load(open(sys.argv[1])))))"


def assemble_template(folder: Path) -> Path:
    """Assemble the diagnosis template as m3b does, with the registry."""
    copy_template("diagnosis", folder)
    return folder


def run_python(work: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=work, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout[-1500:]}{done.stderr[-3000:]}")
    return done.stdout


def pretrain(
    images: Sequence[np.ndarray], classes: np.ndarray, project: Path, out: dict[str, Path], epochs: int
) -> float:
    """Write weights in torchvision's layout, pretrained and random; return the accuracy on the held-out last tenth of the source."""
    import torch
    from safetensors.torch import save_file

    sys.path.insert(0, str(project))
    from m3b.training.pretrained.backbones_2d import ResNet

    torch.manual_seed(0)
    body = ResNet(2, 3, ARCH)
    for name, folder in out.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "m3b-start.json").write_text(json.dumps({"entry": ENTRY, "arch": ARCH}))
        if name == "random":
            save_file(body.state_dict(), str(folder / "model.safetensors"))
    pixels = torch.stack([_tensor(image) for image in images])
    labels = torch.tensor(classes, dtype=torch.long)
    order = torch.randperm(len(labels))
    train_rows, held_out_rows = order[: -len(order) // 10], order[-len(order) // 10 :]
    head = torch.nn.Linear(8 * int(ARCH["width"]), int(classes.max()) + 1)
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05)
    count = epochs * (len(train_rows) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=count)

    def logits(rows: Any) -> Any:
        features = body(pixels[rows])
        return head((features[-1] if isinstance(features, list | tuple) else features).mean(dim=(2, 3)))

    for step in range(count):
        rows = train_rows[torch.randint(len(train_rows), (64,), generator=torch.Generator().manual_seed(step))]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits(rows), labels[rows]).backward()
        optimizer.step()
        schedule.step()
    body.eval()
    with torch.no_grad():
        accuracy = float((logits(held_out_rows).argmax(dim=1) == labels[held_out_rows]).float().mean())
    save_file(body.state_dict(), str(out["pretrained"] / "model.safetensors"))
    return accuracy


def load_pictures(source: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """Return images and the numbers of their classes."""
    if source.is_file():
        pictures = from_npz(source)[0]
        return pictures.images, pictures.abnormal.astype(int)
    files = sorted(file for file in source.rglob("*") if file.suffix in (".png", ".jpg", ".jpeg"))
    names = sorted({file.parent.name for file in files})
    return [read_picture(file) for file in files], np.array([names.index(file.parent.name) for file in files])


def _tensor(image: np.ndarray) -> Any:
    import torch
    from PIL import Image

    small = Image.fromarray(image).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1).float() / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (values - mean[:, None, None]) / std[:, None, None]


def write_pictures(pictures: PictureSet, folder: Path) -> list[str]:
    from PIL import Image

    folder.mkdir(parents=True)
    paths = []
    for number, image in enumerate(pictures.images):
        Image.fromarray(image).save(folder / f"{number}.png")
        paths.append(str(folder / f"{number}.png"))
    return paths


def train_and_score(
    arm: str, weights: dict[str, Path], records: list[dict[str, Any]], test: list[str], seed: int, steps: int
) -> list[float]:
    """Return the probabilities of the abnormal state of the test images, by a network that the template trained on the records."""
    with tempfile.TemporaryDirectory(prefix="start-") as folder:
        work = assemble_template(Path(folder) / "work")
        (work / "Datapath/train.json").write_text(json.dumps(records))
        (work / "Datapath/label_dict.json").write_text('{"normal": 0, "abnormal": 1}')
        start = f"network.pretrained={weights[arm]}" if arm in weights else "network.pretrained=none"
        common_settings = [
            f"size=[{SIDE},{SIDE}]",
            "folds=1",
            "device=cpu",
            "threads=1",
            "precision=fp32",
            f"max_steps={steps}",
            f"seed={seed}",
        ]
        run_python(work, "plan.py", "--minutes", "30", "--set", start, *common_settings)
        run_python(work, "plan.py", "--keep", "--set", "network.trial=0") if arm in weights else ""
        run_python(work, "train.py")
        run_python(work, "export.py", "--out", "Deliver")
        (work / "asked.json").write_text(json.dumps(test))
        output = run_python(work / "Deliver", "-c", PREDICT_CODE, str(work / "asked.json"))
    answers = json.loads(next(line for line in output.splitlines() if line.startswith("RESULT "))[7:])
    return [float(answer["probabilities"]["abnormal"]) for answer in answers]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("file", type=Path, metavar="TARGET")
    parser.add_argument("--images", type=Path)
    for name in ("image", "label", "abnormal", "patient"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    pool, test = from_npz(args.file) if args.file.suffix == ".npz" else from_table(args)
    lines = args.results.read_text().splitlines() if args.results and args.results.is_file() else []
    scores_by_draw = [{name: np.array(value) for name, value in json.loads(line).items()} for line in lines]
    with tempfile.TemporaryDirectory(prefix="pretrained-") as temporary_folder:
        folder = Path(temporary_folder)
        weights = {name: folder / name for name in ("pretrained", "random")}
        accuracy = pretrain(*load_pictures(args.source), assemble_template(folder / "project"), weights, args.epochs)
        print(f"source: {accuracy:.1%} right on held-out pictures", flush=True)
        paths, test_paths = write_pictures(pool, folder / "pool"), write_pictures(test, folder / "test")
        for seed in range(len(scores_by_draw), args.draws):
            random = np.random.default_rng(seed)
            rows = [
                int(row)
                for state in (False, True)
                for row in random.permutation(np.flatnonzero(pool.abnormal == state))[: args.shots]
            ]
            records = [{"image_path": paths[row], "labels": ["abnormal" if pool.abnormal[row] else "normal"],
                        "patient": pool.patients[row]} for row in rows]  # fmt: skip
            scores_by_arm = {
                arm: train_and_score(arm, weights, records, test_paths, seed, args.steps)
                for arm in ("pretrained", "random", "own")
            }
            scores_by_draw.append({name: np.array(value) for name, value in scores_by_arm.items()})
            if args.results:
                with args.results.open("a") as stream:
                    stream.write(json.dumps(scores_by_arm) + "\n")
            print(f"draw {seed + 1} of {args.draws}: {len(rows)} cases", flush=True)
    for other_arm in ("random", "own"):
        row = compare_paired(
            [{"pretrained": entry["pretrained"], "ordinary": entry[other_arm]} for entry in scores_by_draw], test
        )
        gain, low, high = row["difference"]["pretrained"]
        wins = sum(a > b for a, b in zip(row["pretrained"], row["ordinary"], strict=True))
        pretrained_text, other_text = (
            f"{np.mean(row[entry]):.3f} +- {np.std(row[entry]):.3f}" for entry in ("pretrained", "ordinary")
        )
        print(f"AUROC pretrained {pretrained_text}, {other_arm} {other_text}: difference {gain:+.3f} (95 % "
              f"{low:+.3f} to {high:+.3f}), better in {wins} "
              f"of {len(scores_by_draw)} draws, {len(test.images)} test pictures")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
