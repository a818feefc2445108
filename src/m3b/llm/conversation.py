"""What every provider demands of a conversation, said once and in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.errors import BadRequest
from m3b.messages import Message


def validate_conversation(messages: Sequence[Message]) -> None:
    """Accept a conversation that all wires accept.

    System turns come first; the first other turn is the user's; each call is answered exactly once, directly after
    the turn that made it; each answer has its call; no two calls share an id within a turn.

    Raises:
        BadRequest: naming the turn and what is wrong with it.
    """
    first_turn = next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))
    if first_turn == len(messages):
        raise BadRequest("The conversation holds no turn of the user. Start it with the task.")
    if messages[first_turn].role != "user":
        raise BadRequest(
            f"Turn {first_turn} is from {messages[first_turn].role!r}; the first turn after the system's is the user's."
        )
    pending_calls: dict[str, int] = {}
    for index, message in enumerate(messages[first_turn:], first_turn):
        if message.role == "system":
            raise BadRequest(f"Turn {index} is a system turn after others. Put system turns first.")
        if message.role == "tool":
            if pending_calls.pop(message.call_id, None) is None:
                raise BadRequest(
                    f"Turn {index} answers the call {message.call_id!r}, which the turn before did not make."
                )
            continue
        if pending_calls:
            raise BadRequest(
                f"Turn {index} came before the calls {sorted(pending_calls)} were answered. Answer each call first."
            )
        pending_calls = {call.id: index for call in message.calls}
        if len(pending_calls) != len(message.calls) or "" in pending_calls:
            raise BadRequest(f"Turn {index} holds calls with equal or empty ids. Give each call an id of its own.")
    if pending_calls:
        raise BadRequest(f"The calls {sorted(pending_calls)} of turn {min(pending_calls.values())} are not answered.")
