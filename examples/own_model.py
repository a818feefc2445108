"""Use your own language model: any Python function.

    python examples/own_model.py [--minutes 1] [--folder own-model-run]

`answer` gets the conversation and the tools, and returns a text, calls, or both. In this example it passes the conversation to the
embedded rules, so that it runs without a key, and counts the characters that a provider would get. Replace the rules by a request
to your own model; it may return OpenAI's `{"content": ..., "tool_calls": [...]}` unchanged.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from m3b import Pipeline
from m3b.data.synthetic import make_chest
from m3b.llm import CallableLLM, ModelFacts, ask_llm, connect
from m3b.messages import Message, Reply, ToolSpec

sent_counts: Counter[str] = Counter()
rules = connect("rules")


def answer(messages: list[Message], tools: list[ToolSpec]) -> Reply:
    """Answer one turn. `messages` is the conversation so far: system, user, assistant, and the tools' answers."""
    sent_counts["requests"] += 1
    sent_counts["characters"] += sum(len(message.text) for message in messages)
    return ask_llm(rules, messages, tools)  # <- your model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="minutes of training")
    parser.add_argument("--folder", type=Path, default=Path("own-model-run"), help="a folder that does not exist yet")
    options = parser.parse_args()

    llm = CallableLLM(answer, name="my-model", facts=ModelFacts(window=32_000))  # or simply Pipeline(answer, ...)
    data = make_chest(options.folder / "chest-xrays")
    pipeline = Pipeline(llm, data=data, out=options.folder / "run", train_minutes=options.minutes)
    result = pipeline.run("Build a model that detects lung opacities on chest X-rays")

    print(f"{result.status}: {result.reason}")
    print(
        f"{sent_counts['requests']} requests, {sent_counts['characters']:,} characters sent; {result.usage['actions']} actions"
    )
    raise SystemExit(0 if result.model_dir else 1)


if __name__ == "__main__":
    main()
