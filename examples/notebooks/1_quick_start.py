# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Quick start
#
# From a request in plain words to a tested model, on generated chest radiographs: no key, no network, about two minutes.
# Open this file as a notebook with Jupytext (`jupytext --to notebook 1_quick_start.py`), or run it as a script.

# %%
from pathlib import Path

from m3b import Pipeline, load_model
from m3b.data.synthetic import make_chest

MINUTES = 1.0  # of training
FOLDER = Path("quick-start")

data = make_chest(FOLDER / "chest-xrays")
pipeline = Pipeline("rules", data=data, out=FOLDER / "run", train_minutes=MINUTES)
pipeline

# %% [markdown]
# While the run is at work, one line shows the stage, the loss, one metric and the time left.

# %%
result = pipeline.run("Detect lung opacities on chest X-rays")
result

# %% [markdown]
# The primary metric with its 95 % interval and the image-blind baseline, on patients that training never saw:

# %%
result.primary

# %% [markdown]
# The delivered model predicts new images in a confined process of its own.

# %%
model = load_model(result.model_dir)
predictions = model.predict(data / "unseen")
model.close()
predictions

# %%
predictions[-1]
