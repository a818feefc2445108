"""A type for bytes in the input or output of a worker job: base64 in the message, bytes on both sides."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer


def _decode_base64(content: Any) -> Any:
    if not isinstance(content, str):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


Blob = Annotated[
    bytes,
    BeforeValidator(_decode_base64),
    PlainSerializer(lambda content: base64.b64encode(content).decode(), return_type=str, when_used="json"),
]
