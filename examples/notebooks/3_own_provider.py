# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Your own language model
#
# Any Python function that takes messages and tools and returns a reply can play the agents. Here it hands every question to
# m3b's rules, and counts what it is asked, so that this notebook needs neither key nor network.
#
# For a server that speaks OpenAI's protocol, no code is needed: `Pipeline("openai:MODEL@http://127.0.0.1:8000/v1")`.

# %%
from pathlib import Path

from m3b import Pipeline, connect
from m3b.data.synthetic import make_chest
from m3b.llm import LLMRequest
from m3b.messages import Reply

FOLDER = Path("own-provider")
rules = connect("rules")
questions = []


class CountingLLM:
    """A language model of your own: a name, its facts, and `ask`."""

    name = "counting"
    facts = rules.facts

    def ask(self, request: LLMRequest) -> Reply:
        questions.append(len(request.messages))
        return rules.ask(request)


# %% [markdown]
# The budget ends the run after one action, which is enough to see that the function is asked.

# %%
data = make_chest(FOLDER / "chest-xrays")
pipeline = Pipeline(CountingLLM(), data=data, out=FOLDER / "run", max_actions=1)
result = pipeline.run("Detect lung opacities on chest X-rays")
assert questions, "the model was asked"
result
