"""``mlserver.utils``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.uris import (
    extract_headers,
    generate_uuid,
    get_model_uri,
    insert_headers,
    to_absolute_path,
)

__all__ = [
    "extract_headers",
    "generate_uuid",
    "get_model_uri",
    "insert_headers",
    "to_absolute_path",
]
