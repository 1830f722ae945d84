"""Handlers loaded and called as a worker does it, without the process around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marserve.handlers.base import BaseHandler
from marserve.handlers.context import Context
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.transformer import TransformerHandler

TEXTS: dict[str, list[Any]] = {
    "sequence_classification": ["a good film", "it was bad, and so long that i left the new york"],
    "token_classification": ["i was in new york", "who is it that is in the film and in new york?"],
    "question_answering": [
        {"question": "where is it?", "context": "It is in New York, (not) in the film."},
        {
            "question": "who was bad",
            "context": "the film was good! what was bad is the Movie of it",
        },
    ],
    "text_generation": ["the film is", "what a good movie: it is in"],
}


def context(
    directory: Path, config: dict[str, Any] | None = None, gpu_id: int | None = None, **model: str
) -> Context:
    """A context for the model in a directory; `model` are keys of the manifest."""
    return Context(
        "tiny",
        str(directory),
        {"model": {"modelName": "tiny", "modelVersion": "1.0", "handler": "h", **model}},
        batch_size=8,
        gpu_id=gpu_id,
        metrics=HandlerMetrics("tiny"),
        model_yaml_config=config or {},
    )


def load(
    directory: Path, config: dict[str, Any] | None = None, **options: Any
) -> TransformerHandler:
    """Initializes the transformer handler; `options` go to the section `handler`."""
    weights = (
        "traced_model.pt" if options.get("save_mode") == "torchscript" else "model.safetensors"
    )
    settings = {**(config or {}), "handler": options}
    handler = TransformerHandler()
    handler.initialize(context(directory, settings, serializedFile=weights))
    return handler


def ask(handler: BaseHandler, bodies: list[Any], explain: bool = False) -> list[Any]:
    """Hands a batch to a handler, each body as one request."""
    batch = handler.context
    headers = [{"explain": "True" if explain else "False"} for _ in bodies]
    batch.begin([f"r{at}" for at in range(len(bodies))], headers)
    return handler.handle([{"body": body} for body in bodies], batch)
