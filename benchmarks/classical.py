"""Classify by hand-made features, as an opponent of the templates in recipes.py: HOG, a small image, PCA and a support vector machine.

    python classical.py PROJECT MINUTES OUT.npz

Runs in an assembled template project, whose readers and validation split it uses. For pictures of 96 x 96 pixels: histograms of
oriented gradients (Dalal and Triggs, CVPR 2005) and the picture at 24 x 24, standardised, and 64 principal components. An RBF support
vector machine and a logistic regression are fitted on the training part; the one with the better validation figure answers, fitted on
both parts. It needs seconds and no GPU: what a network adds must show beside it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

SIDE, SMALL_SIDE, COMPONENTS = 96, 24, 64


def main() -> None:
    project, out = Path(sys.argv[1]), Path(sys.argv[3]).resolve()
    os.chdir(project)
    sys.path.insert(0, ".")
    plan, test = json.loads(Path("plan.json").read_text()), json.loads(Path("test.json").read_text())
    np.savez_compressed(out, scores=classify(plan, [record["image_path"] for record in test]))


def classify(plan: dict[str, Any], paths: list[Any]) -> np.ndarray:
    """Return probabilities (N, K) of the test images."""
    from m3b.training.diagnosis.dataset import build_datasets
    from m3b.training.preprocess import prepare_image
    from m3b.training.ranking_metrics import macro_auroc

    if plan["task"] not in ("diagnosis", "grading") or int(plan["dims"]) != 2 or plan["multi_label"]:
        raise SystemExit("classical.py takes pictures of one class or grade each")
    plan |= {"size": [SIDE, SIDE], "folds": 1, "refit": False, "workers": 0}
    tables = []
    for part in build_datasets(plan):
        items = [part[k] for k in range(len(part))]
        features = extract_features([item["pixel_values"].numpy() for item in items])
        tables.append((features, np.array([int(item["labels"].argmax()) for item in items])))
    (train, train_labels), (valid, valid_labels) = tables
    classes = len(plan["classes"])
    truth = np.eye(classes)[valid_labels]
    scored = []
    for model in build_models(len(train)):
        model.fit(train, train_labels)
        scored.append((macro_auroc(truth, predict(model, valid, classes)), model))
    figure, best = max(scored, key=lambda pair: pair[0])
    print(f"classical: {type(best[-1]).__name__}, validation AUROC {figure:.3f}", flush=True)
    best.fit(np.concatenate([train, valid]), np.concatenate([train_labels, valid_labels]))
    return predict(best, extract_features([prepare_image(path, plan) for path in paths]), classes)


def build_models(cases: int) -> list[Any]:
    """Return the pipelines that are tried."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    components = min(COMPONENTS, cases - 1)
    machine = SVC(probability=True, class_weight="balanced", random_state=0)
    ends = (machine, LogisticRegression(C=0.1, max_iter=2000, class_weight="balanced"))
    return [make_pipeline(StandardScaler(), PCA(components, random_state=0), end) for end in ends]


def predict(model: Any, features: np.ndarray, classes: int) -> np.ndarray:
    """Return probabilities (N, classes), 0 for classes that the training part lacks."""
    probabilities = np.zeros((len(features), classes))
    probabilities[:, model.classes_] = model.predict_proba(features)
    return probabilities


def extract_features(images: list[np.ndarray]) -> np.ndarray:
    """Return (N, F) features of (C, 96, 96) images."""
    from skimage.feature import hog
    from skimage.transform import resize

    rows = []
    for image in images:
        gradients = hog(image.mean(axis=0), orientations=9, pixels_per_cell=(12, 12), cells_per_block=(2, 2))
        small = resize(image, (len(image), SMALL_SIDE, SMALL_SIDE), anti_aliasing=True)
        rows.append(np.concatenate([gradients, small.ravel()]))
    return np.array(rows, np.float32)


if __name__ == "__main__":
    main()
