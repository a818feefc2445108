"""A model that takes over when another one fails for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from m3b.errors import ContextOverflow, LLMError, Refused, UsageError
from m3b.messages import Reply

from .base import LLM, LLMRequest, ModelFacts, spec_of


class FallbackLLM:
    """Asks the first model; once it has failed for good, the next, and so on.

    For good is: its patience is at an end, its key is refused, it will never take the request, its provider's filter or
    the model itself declines. A model that failed is not asked again, so that a dead provider costs its waiting time
    once; the one exception is a refusal, which is about one conversation and not about the provider. A conversation
    that is too long is no failure: it is the agent's to shorten.

    Args:
        models: at least two; each with the patience it was made with.

    Raises:
        UsageError: fewer than two models.
    """

    def __init__(self, models: Sequence[LLM]) -> None:
        if len(models) < 2:
            raise UsageError("A fallback needs at least two models: first|second.")
        self._models = tuple(models)
        self._current = 0

    @property
    def name(self) -> str:
        return "|".join(model.name for model in self._models)

    @property
    def spec(self) -> str:
        """What `connect` makes the same again from."""
        return "|".join(spec_of(model) for model in self._models)

    @property
    def facts(self) -> ModelFacts:
        """Those of the model at work, within the smallest window of those that may still take over."""
        remaining = [model.facts for model in self._models[self._current :]]
        window = min(facts.window for facts in remaining)
        return replace(remaining[0], window=window, max_output=min(facts.max_output for facts in remaining))

    def ask(self, request: LLMRequest) -> Reply:
        """See `LLM.ask`; the error of the last model is the one that is raised."""
        for index in range(self._current, len(self._models)):
            model, is_last = self._models[index], index == len(self._models) - 1
            try:
                reply = model.ask(request)
            except ContextOverflow:
                raise
            except LLMError as failure:
                if is_last:
                    raise
                self._current = self._current if isinstance(failure, Refused) else index + 1
                reason = str(failure)
            else:
                if reply.stop != "refusal" or is_last:
                    return reply
                reason = f"{model.name} declined."
            if request.on_wait is not None:
                request.on_wait(f"{reason} {self._models[index + 1].name} takes over.", 0.0)
        raise AssertionError("unreachable: the last model answers or raises")
