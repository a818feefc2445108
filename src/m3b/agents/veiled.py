"""A language model that is shown invented names of persons, and whose words come back with the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from m3b.agents.pseudonyms import Pseudonyms
from m3b.llm.base import LLM, Facts
from m3b.messages import Message, Reply, ToolSpec

NOTE = (
    "[Words with Anon... stand for names of persons, and digits beside them for dates: m3b puts the real ones back into whatever you "
    "write before it runs. Use them as they are shown, never parts of them; in patterns, match names by their place.]"
)


class Veiled:
    """An LLM that is shown invented names, and whose words come back with the real ones."""

    def __init__(self, llm: LLM, pseudonyms: Pseudonyms) -> None:
        self.llm, self.names = llm, pseudonyms
        self._told: dict[str, str] = {}
        self._first = ""

    @property
    def name(self) -> str:
        return self.llm.name

    @property
    def facts(self) -> Facts:
        return self.llm.facts

    @property
    def streams(self) -> bool:
        """Whether the model can tell its words as they come; they are told with the invented names."""
        return bool(getattr(self.llm, "streams", False))

    def ask(self, messages: Sequence[Message], tools: Sequence[ToolSpec], **options: Any) -> Reply:
        """See `LLM.ask`."""
        reply = self.llm.ask([self._pseudonymize_message(item) for item in messages], tools, **options)
        calls = tuple(replace(item, arguments=self._deep(item.arguments, self._shown)) for item in reply.calls)
        return replace(reply, text=self._shown(reply.text), calls=calls)

    def _shown(self, text: str) -> str:
        real = self.names.show(text)
        self._told.setdefault(real, text)  # so that the model finds its own words as it wrote them
        return real

    def _pseudonymize_message(self, message: Message) -> Message:
        if message.role == "system":
            return message
        calls = tuple(replace(call, arguments=self._deep(call.arguments, self._hidden)) for call in message.calls)
        text = self._hidden(message.text)
        if text != message.text and message.role != "assistant":
            self._first = self._first or message.text
            text = f"{text}\n{NOTE}" if message.text == self._first else text
        return replace(message, text=text, calls=calls)

    def _hidden(self, text: str) -> str:
        if text not in self._told:
            self._told[text] = self.names.hide(text)
        return self._told[text]

    def _deep(self, value: Any, transform: Callable[[str], str]) -> Any:
        if isinstance(value, str):
            return transform(value)
        if isinstance(value, dict):
            return {
                transform(name) if isinstance(name, str) else name: self._deep(item, transform)
                for name, item in value.items()
            }
        return [self._deep(item, transform) for item in value] if isinstance(value, list) else value
