"""Compare AdamW and Muon in a template: the same plan, cases and number of steps, once with each optimiser.

    python benchmarks/optimizers.py --set DIR "REQUEST" [--set DIR "REQUEST" ...] [--steps 1500] [--minutes 25] [--threads 2]
        [--plan KEY=VALUE ...] [--out DIR]

Each DIR is read as `m3b look` reads it for the request; its test part is not used. The script prints the validation figures of
`Logout/metrics.json` after the steps of each network, and the seconds of training (both passes, optimiser and scoring; the
two run one after the other on `--threads` processor threads). `--minutes` are the minutes that plan.py plans for.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from recipes import prepare_project, run_python

OPTIMIZERS = ("adamw", "muon")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs=2, action="append", required=True, metavar=("DIR", "REQUEST"), dest="sets")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plan", nargs="*", default=[], metavar="KEY=VALUE", help="for the template's plan.py")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = (options.out or Path(tempfile.mkdtemp(prefix="optimizers_"))).resolve()
    for folder, request in options.sets:
        work = out / Path(folder).name
        prepare_project(Path(folder).resolve(), request, work)
        for optimizer in OPTIMIZERS:
            print(
                f"{work.name[:28]:28} {optimizer:6} {_format_figures(train_with(work, optimizer, options))}", flush=True
            )


def train_with(work: Path, optimizer: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the validation figures after a training with this optimiser, and its `seconds`."""
    shutil.rmtree(work / "Logout", ignore_errors=True)
    settings = (f"threads={options.threads}", f"max_steps={options.steps}", *options.plan, f"optimizer={optimizer}")
    run_python("plan.py", "--minutes", str(options.minutes), "--set", *settings, cwd=work)
    run_python("train.py", cwd=work, OMP_NUM_THREADS=str(options.threads))
    figures: dict[str, Any] = json.loads((work / "Logout" / "metrics.json").read_text())["validation"]
    network_summaries = [json.loads(file.read_text()) for file in sorted((work / "Logout").glob("*/done.json"))]
    return {
        **figures,
        "networks": len(network_summaries),
        "seconds": round(sum(entry["seconds"] for entry in network_summaries), 1),
    }


def _format_figures(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


if __name__ == "__main__":
    main()
