"""``mlserver.errors``, as runtimes import it."""

from __future__ import annotations

from marserve.handlers.mlserver.errors import (
    InferenceError,
    InvalidModelURI,
    MLServerError,
    ModelNotFound,
    ModelNotReady,
    ModelParametersMissing,
)

__all__ = [
    "InferenceError",
    "InvalidModelURI",
    "MLServerError",
    "ModelNotFound",
    "ModelNotReady",
    "ModelParametersMissing",
]
