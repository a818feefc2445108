"""Make a whole run from Python: generated data, the embedded rules, no key, no network.

    python examples/rules_on_generated_data.py [--minutes 1] [--folder example-run]

It prints every action as it happens, then the figure, and the model's answers for four unseen images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from m3b import Pipeline, load_model
from m3b.data.synthetic import make_chest
from m3b.events import Event, IndexAudited, RoleStarted, ToolCalled


def show(event: Event) -> None:
    """Print one line for each event of interest."""
    match event:
        case RoleStarted():
            print(event.title)
        case ToolCalled():
            print(f"  {event.name}")
        case IndexAudited():
            print(f"  audit: {event.summary}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="minutes of training")
    parser.add_argument("--folder", type=Path, default=Path("example-run"), help="a folder that does not exist yet")
    options = parser.parse_args()

    data = make_chest(options.folder / "chest-xrays")
    pipeline = Pipeline("rules", data=data, out=options.folder / "run", train_minutes=options.minutes, on_event=show)
    result = pipeline.run("Build a model that detects lung opacities on chest X-rays")

    print(f"{result.status}: {result.reason}")
    if result.model_dir is None:
        raise SystemExit(1)
    print(f"report: {result.report}")
    for prediction in load_model(result.model_dir).predict(sorted((data / "unseen").glob("*.png"))):
        print(f"{Path(str(prediction.image)).name}: {prediction.prediction[0]} {dict(prediction.probabilities)}")


if __name__ == "__main__":
    main()
