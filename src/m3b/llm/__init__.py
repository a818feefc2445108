"""Language models: one protocol, several providers, no framework.

`connect("anthropic:MODEL")`, `connect("openai:MODEL@http://127.0.0.1:8000/v1")`, `connect("rules")` and
`connect(function)` give an `LLM`; `ask_llm(llm, messages, tools)` gives a `Reply`. The providers' own packages are imported
when the first request is made.
"""

from .base import LLM, LLMRequest, ModelFacts, ask_llm
from .callable import CallableLLM
from .calls import parse_arguments
from .fallback import FallbackLLM
from .presets import PROVIDERS
from .registry import connect
from .retry import Retry
from .specs import choose_default_spec, describe_unused_keys, find_provider_keys

__all__ = [
    "LLM",
    "LLMRequest",
    "PROVIDERS",
    "CallableLLM",
    "ModelFacts",
    "FallbackLLM",
    "ask_llm",
    "Retry",
    "connect",
    "choose_default_spec",
    "describe_unused_keys",
    "find_provider_keys",
    "parse_arguments",
]
