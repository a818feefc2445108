"""AutoGluon's tabular search on features of images, as an opponent of the templates in recipes.py.

    python autogluon_recipe.py PROJECT MINUTES OUT.npz [WEIGHTS]

AutoGluon's own image models start from weights of a hub, so that its tables are used: features of opponent_arrays.py, with
those of a frozen backbone if WEIGHTS are given, and preset `best_quality`: boosted trees, networks, neighbours and their
stacked ensemble, by bagging. The minutes are those that the features left. Folds are drawn by image: in sets with several
images a patient its own validation is optimistic.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from autogluon.tabular import TabularPredictor


def main() -> None:
    arrays = np.load(Path(sys.argv[1], "found", "arrays.npz"))
    tables = [pd.DataFrame(arrays[f"features_{name}"]).add_prefix("f") for name in ("train", "valid", "test")]
    labels = np.concatenate([arrays["labels_train"], arrays["labels_valid"]])
    if (labels.sum(axis=1) != 1).any():
        raise SystemExit("autogluon_recipe.py takes one class or grade an image")
    train = pd.concat(tables[:2], ignore_index=True).assign(label=labels.argmax(axis=1))
    problem = "binary" if labels.shape[1] == 2 else "multiclass"
    predictor = TabularPredictor("label", problem, eval_metric="log_loss", path=tempfile.mkdtemp(), verbosity=1)
    seconds = max(10.0, 60 * float(sys.argv[2]) - float(arrays["seconds"]))
    predictor.fit(
        train, presets="best_quality", time_limit=seconds, dynamic_stacking=False, ag_args_fit={"num_gpus": 0}
    )
    found = predictor.predict_proba(tables[2])
    scores = np.zeros((len(found), labels.shape[1]))
    scores[:, list(found.columns)] = found
    best = predictor.leaderboard().iloc[0]
    print(f"AutoGluon: {best['model']}, log loss of its folds {-best['score_val']:.3f}", flush=True)
    np.savez_compressed(sys.argv[3], scores=scores)


if __name__ == "__main__":
    main()
