"""The providers that m3b knows by name. A vendor is a few lines of data; what all share is in the wires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider.

    Args:
        wire: the protocol it speaks.
        variables: where its key usually is; empty if it needs none.
        base_url: its address where that is not the wire's own.
        default: the model that is used when the user names none; empty if the server is asked what it serves.
        limit: the name of the field that limits a reply; empty lets the wire choose.
        extra: fields that every request to it carries besides the protocol's own. Sent to the provider's own address
            only, since other servers refuse what they do not know.
        window: tokens that a model of it holds when the list of models does not name it.
        max_output: the same of one reply.
    """

    wire: Literal["openai", "anthropic"]
    variables: tuple[str, ...] = ()
    base_url: str | None = None
    default: str = ""
    limit: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    window: int = 128_000
    max_output: int = 8_192


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider("anthropic", ("ANTHROPIC_API_KEY",), default="claude-sonnet-5-5", window=200_000),
    "openai": Provider("openai", ("OPENAI_API_KEY",), default="gpt-5.4", limit="max_completion_tokens"),
    "gemini": Provider(
        "openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "https://generativelanguage.googleapis.com/v1beta/openai/",
        default="gemini-3.8-flash", window=1_000_000,
    ),
    "deepseek": Provider("openai", ("DEEPSEEK_API_KEY",), "https://api.deepseek.com", default="deepseek-v4-pro"),
    "qwen": Provider(
        "openai", ("DASHSCOPE_API_KEY",), "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        default="qwen3.8-max", window=32_768,
    ),
    "openrouter": Provider(
        "openai", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1", default="openai/gpt-5.4",
        extra={"usage": {"include": True}},
    ),
    "groq": Provider(
        "openai", ("GROQ_API_KEY",), "https://api.groq.com/openai/v1", default="openai/gpt-oss-120b",
        limit="max_completion_tokens", window=131_072,
    ),
    "together": Provider(
        "openai", ("TOGETHER_API_KEY",), "https://api.together.xyz/v1", default="openai/gpt-oss-120b", window=32_768
    ),
    "ollama": Provider("openai", (), "http://127.0.0.1:11434/v1", window=32_768, max_output=4_096),
    "vllm": Provider("openai", (), "http://127.0.0.1:8000/v1", window=32_768, max_output=4_096),
    "lmstudio": Provider("openai", (), "http://127.0.0.1:1234/v1", window=32_768, max_output=4_096),
    "llama.cpp": Provider("openai", (), "http://127.0.0.1:8080/v1", window=32_768, max_output=4_096),
}  # fmt: skip


PAPER_MODELS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "Claude 3.7 Sonnet",
        ("anthropic:claude-3-7-sonnet-20250219", "openrouter:anthropic/claude-3.7-sonnet"),
        ("anthropic:claude-sonnet-5-5", "anthropic:claude-opus-5-5"),
    ),
    (
        "Claude 3.5 Sonnet",
        ("anthropic:claude-3-5-sonnet-20241022", "openrouter:anthropic/claude-3.5-sonnet"),
        ("anthropic:claude-sonnet-5-5", "anthropic:claude-haiku-5-5"),
    ),
    ("GPT-4o", ("openai:gpt-4o",), ("openai:gpt-6.1-sol", "openai:gpt-5.4")),
    (
        "DeepSeek-V3",
        ("together:deepseek-ai/DeepSeek-V3", "openrouter:deepseek/deepseek-chat"),
        ("deepseek:deepseek-v4-pro", "deepseek:deepseek-v4-flash"),
    ),
    ("Qwen-2.5-Max", ("qwen:qwen-max-2025-01-25",), ("qwen:qwen3.8-max", "qwen:qwen3-max")),
    (
        "Gemini-2.0-Flash",
        ("gemini:gemini-2.0-flash", "openrouter:google/gemini-2.0-flash-001"),
        ("gemini:gemini-3.8-flash", "gemini:gemini-3.5-flash"),
    ),
    (
        "Llama-3.3-70B",
        (
            "groq:llama-3.3-70b-versatile",
            "together:meta-llama/Llama-3.3-70B-Instruct-Turbo",
            "vllm:meta-llama/Llama-3.3-70B-Instruct",
        ),
        ("groq:openai/gpt-oss-120b", "vllm:openai/gpt-oss-120b"),
    ),
)
"""The seven agent cores of the M3Builder paper (arXiv:2502.20301): name, specs of the model itself, specs of what came
after it. The list of models says which of them their vendor has ended."""
