# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Benchmark
#
# M3Bench measures language models and agent systems on fourteen requests, here one of them on a generated stand-in with the
# rules: `m3b bench run` makes the cells, `m3b bench table` the tables. `docs/bench.md` explains what counts as success.

# %%
import subprocess
import sys
from pathlib import Path

FOLDER = Path("benchmark")
TASK = "decline:ecg"  # a request that no data set serves, which is declined in seconds; `all` runs everything


def m3b(*words: str) -> str:
    """Run a command of m3b and return its output."""
    return subprocess.run([sys.executable, "-m", "m3b", *words], capture_output=True, text=True, check=True).stdout


print(m3b("bench", "list"))

# %%
print(m3b("bench", "run", "--llm", "rules", "--tasks", TASK, "--out", str(FOLDER)))

# %%
print(m3b("bench", "table", str(FOLDER)))
