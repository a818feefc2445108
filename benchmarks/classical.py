"""Classify by hand-made features, as an opponent of the templates in recipes.py: HOG, a small image, PCA and a support vector machine.

    python classical.py PROJECT MINUTES OUT.npz

Features (opponent_arrays.py) are standardised and reduced to 64 principal components. An RBF support vector machine and a
logistic regression are fitted on the training part; the one with the better validation figure answers, fitted on both parts.
It needs seconds and no GPU: what a network adds must show beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

COMPONENTS = 64


def main() -> None:
    arrays = np.load(Path(sys.argv[1], "found", "arrays.npz"))
    train, valid, test = (arrays[f"features_{name}"] for name in ("train", "valid", "test"))
    tables = arrays["labels_train"], arrays["labels_valid"]
    if any((table.sum(axis=1) != 1).any() for table in tables):
        raise SystemExit("classical.py takes one class or grade an image")
    (train_labels, valid_labels), classes = (table.argmax(axis=1) for table in tables), tables[0].shape[1]
    scored = []
    for model in build_models(len(train)):
        model.fit(train, train_labels)
        table, present = predict(model, valid, classes), tables[1].any(axis=0)
        scored.append(
            (float(np.mean([roc_auc_score(tables[1][:, k], table[:, k]) for k in np.flatnonzero(present)])), model)
        )
    figure, best = max(scored, key=lambda pair: pair[0])
    print(f"classical: {type(best[-1]).__name__}, validation AUROC {figure:.3f}", flush=True)
    best.fit(np.concatenate([train, valid]), np.concatenate([train_labels, valid_labels]))
    np.savez_compressed(sys.argv[3], scores=predict(best, test, classes))


def build_models(cases: int) -> list[Any]:
    """Return the pipelines that are tried."""
    components = min(COMPONENTS, cases - 1)
    machine = SVC(probability=True, class_weight="balanced", random_state=0)
    ends = (machine, LogisticRegression(C=0.1, max_iter=2000, class_weight="balanced"))
    return [make_pipeline(StandardScaler(), PCA(components, random_state=0), end) for end in ends]


def predict(model: Any, features: np.ndarray, classes: int) -> np.ndarray:
    """Return probabilities (N, classes), 0 for classes that the training part lacks."""
    probabilities = np.zeros((len(features), classes))
    probabilities[:, model.classes_] = model.predict_proba(features)
    return probabilities


if __name__ == "__main__":
    main()
