"""A language model that is shown invented names of persons, and whose words come back with the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from m3b.agents.pseudonyms import Pseudonyms
from m3b.llm.base import LLM, ModelFacts
from m3b.messages import Message, Reply, ToolSpec

PSEUDONYM_NOTE = (
    "[Words with Anon... stand for names of persons, and digits beside them for dates: m3b puts the real ones back into whatever you "
    "write before it runs. Use them as they are shown, never parts of them; in patterns, match names by their place.]"
)


class PseudonymizingModel:
    """An LLM that is shown invented names, and whose words come back with the real ones."""

    def __init__(self, llm: LLM, pseudonyms: Pseudonyms) -> None:
        self.llm, self.pseudonyms = llm, pseudonyms
        self._pseudonymized_texts: dict[str, str] = {}
        self._first_text = ""

    @property
    def name(self) -> str:
        return self.llm.name

    @property
    def facts(self) -> ModelFacts:
        return self.llm.facts

    @property
    def streams(self) -> bool:
        """Whether the model can tell its words as they come; they are told with the invented names."""
        return bool(getattr(self.llm, "streams", False))

    def ask(self, messages: Sequence[Message], tools: Sequence[ToolSpec], **options: Any) -> Reply:
        """See `LLM.ask`."""
        reply = self.llm.ask([self._pseudonymize_message(item) for item in messages], tools, **options)
        calls = tuple(
            replace(item, arguments=self._map_strings(item.arguments, self._restore_text)) for item in reply.calls
        )
        return replace(reply, text=self._restore_text(reply.text), calls=calls)

    def _restore_text(self, text: str) -> str:
        real = self.pseudonyms.restore(text)
        self._pseudonymized_texts.setdefault(real, text)  # so that the model finds its own words as it wrote them
        return real

    def _pseudonymize_message(self, message: Message) -> Message:
        if message.role == "system":
            return message
        calls = tuple(
            replace(call, arguments=self._map_strings(call.arguments, self._pseudonymize_text))
            for call in message.calls
        )
        text = self._pseudonymize_text(message.text)
        if text != message.text and message.role != "assistant":
            self._first_text = self._first_text or message.text
            text = f"{text}\n{PSEUDONYM_NOTE}" if message.text == self._first_text else text
        return replace(message, text=text, calls=calls)

    def _pseudonymize_text(self, text: str) -> str:
        if text not in self._pseudonymized_texts:
            self._pseudonymized_texts[text] = self.pseudonyms.pseudonymize(text)
        return self._pseudonymized_texts[text]

    def _map_strings(self, value: Any, transform: Callable[[str], str]) -> Any:
        if isinstance(value, str):
            return transform(value)
        if isinstance(value, dict):
            return {
                transform(name) if isinstance(name, str) else name: self._map_strings(item, transform)
                for name, item in value.items()
            }
        return [self._map_strings(item, transform) for item in value] if isinstance(value, list) else value
