# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # m3b inside another agent system
#
# `Pipeline.as_tool()` returns a JSON schema and a function: give both to the agent framework that you use. `start` returns at
# once with a handle, so that your agent can watch, answer and cancel.

# %%
import json
from pathlib import Path

from m3b import Pipeline
from m3b.data.synthetic import make_chest

FOLDER = Path("other-agents")
data = make_chest(FOLDER / "chest-xrays")
pipeline = Pipeline("rules", data=data, out=FOLDER / "run", train_minutes=1)
schema, build_model = pipeline.as_tool()
print(json.dumps(schema, indent=1))

# %% [markdown]
# The other system calls `build_model(request=...)` and gets plain JSON values. The same run, watched event by event and
# stopped once the data has been audited:

# %%
handle = pipeline.start("Detect lung opacities on chest X-rays")
for event in handle.events():
    if event.kind in ("role_started", "stage", "audit"):
        print(event.kind, event.data.get("title") or event.data.get("text") or event.data.get("summary"))
    if event.kind == "audit":
        handle.cancel()
result = handle.result()
result.status
