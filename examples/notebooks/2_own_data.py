# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Your own data
#
# First see how m3b would read a folder, correct it if needed, and only then train. Set `DATA` and `REQUEST` to your own;
# as they are, a small folder with images and a table is generated.

# %%
from pathlib import Path

from m3b import Pipeline
from m3b.data.synthetic import make_chest

FOLDER = Path("own-data")
DATA = make_chest(FOLDER / "chest-xrays")
REQUEST = "Detect lung opacities on chest X-rays"

# %% [markdown]
# Nothing is trained or stored here. `with_examples=True` draws some cases: they show patients.

# %%
pipeline = Pipeline("rules", data=DATA, out=FOLDER / "run", train_minutes=1)
preview = pipeline.plan(REQUEST, with_examples=True)
preview

# %% [markdown]
# If the best proposal is not what you mean, fix a part of it (`label_column`, `patient_column`, `masks`, `classes`, `split`),
# or edit the whole manifest and pass it on.

# %%
corrected = Pipeline("rules", data=DATA, overrides={"label_column": "finding", "patient_column": "patient_id"})
corrected.plan(REQUEST)

# %%
(FOLDER / "manifest.json").write_text(preview.manifest_to_json())
with_manifest = Pipeline("rules", data=DATA, manifest=FOLDER / "manifest.json", train_minutes=1)
with_manifest

# %% [markdown]
# Train when the preview is right: `result = with_manifest.run(REQUEST)`.
