"""What every provider demands of a conversation, said once and in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.errors import BadRequest
from m3b.messages import Message


def check(messages: Sequence[Message]) -> None:
    """Accept a conversation that both wires accept.

    System turns come first; the first other turn is the user's; each call is answered exactly once, directly after
    the turn that made it; each answer has its call; no two calls share an id within a turn.

    Raises:
        BadRequest: naming the turn and what is wrong with it.
    """
    rest = next((place for place, message in enumerate(messages) if message.role != "system"), len(messages))
    if rest == len(messages):
        raise BadRequest("The conversation holds no turn of the user. Start it with the task.")
    if messages[rest].role != "user":
        raise BadRequest(
            f"Turn {rest} is from {messages[rest].role!r}; the first turn after the system's is the user's."
        )
    waiting: dict[str, int] = {}
    for place, message in enumerate(messages[rest:], rest):
        if message.role == "system":
            raise BadRequest(f"Turn {place} is a system turn after others. Put system turns first.")
        if message.role == "tool":
            if waiting.pop(message.call_id, None) is None:
                raise BadRequest(
                    f"Turn {place} answers the call {message.call_id!r}, which the turn before did not make."
                )
            continue
        if waiting:
            raise BadRequest(
                f"Turn {place} came before the calls {sorted(waiting)} were answered. Answer each call first."
            )
        waiting = {call.id: place for call in message.calls}
        if len(waiting) != len(message.calls) or "" in waiting:
            raise BadRequest(f"Turn {place} holds calls with equal or empty ids. Give each call an id of its own.")
    if waiting:
        raise BadRequest(f"The calls {sorted(waiting)} of turn {min(waiting.values())} are not answered.")
