"""``mlserver_huggingface.HuggingFaceRuntime``: a transformers pipeline behind MLServer's inputs."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.pipelines.base import PipelineException

from marserve.handlers.errors import RequestError
from marserve.handlers.mlserver.huggingface.building import build_pipeline, media_of, task_of
from marserve.handlers.mlserver.huggingface.calls import Call, call_of, call_of_body, positional
from marserve.handlers.mlserver.huggingface.codecs import JsonListCodec
from marserve.handlers.mlserver.model import MLModel
from marserve.handlers.mlserver.types import InferenceRequest, InferenceResponse

_log = logging.getLogger(__name__)
OUTPUT = "output"
"""The one output of every answer."""
_BLAMED = (ValueError, TypeError, KeyError, PipelineException)


class HuggingFaceRuntime(MLModel):
    """Serves the pipeline that ``parameters.extra`` describes."""

    _pipeline: Any

    async def load(self) -> bool:
        """Loads model and tokenizer."""
        parameters = self.settings.parameters
        extra = dict((parameters.extra if parameters is not None else None) or {})
        if threads := extra.get("intra_op_threads"):
            torch.set_num_threads(int(threads))
        source = getattr(self.settings, "_source", None)
        directory = Path(source).parent if source else Path.cwd()
        rows = extra.get("batch_size") or self.settings.max_batch_size or 1
        uri = parameters.uri if parameters is not None else None
        self._media = media_of(task_of(extra))
        self._pipeline = build_pipeline(extra, uri, directory, int(rows))
        taken = list(inspect.signature(type(self._pipeline).__call__).parameters)
        self._first = taken[1] if len(taken) > 1 else ""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answers one request."""
        [answer] = await self.predict_together([payload])
        if isinstance(answer, Exception):
            raise answer
        found: InferenceResponse = answer
        return found

    async def predict_together(self, requests: Sequence[InferenceRequest]) -> list[Any]:
        """Returns the answer to each request, or the error in its place; joined where they can."""
        from marserve.handlers.mlserver.huggingface.joining import call_together

        asked = [self._call(each) for each in requests]
        sound = [at for at, call in enumerate(asked) if isinstance(call, Call)]
        with torch.inference_mode():
            found = call_together(self._pipeline, [asked[at] for at in sound])
        answers: list[Any] = list(asked)
        for at, result in zip(sound, found, strict=True):
            answers[at] = self._answer(requests[at], result)
        return answers

    def from_body(self, value: Any) -> InferenceRequest:
        """Returns the request that a plain body stands for."""
        request = InferenceRequest(inputs=[])
        call = positional(call_of_body(value, self._media), self._first)
        request.__dict__ |= {"_call": call, "_from_body": True}
        return request

    def to_body(self, response: InferenceResponse) -> Any:
        """Returns an answer as plain JSON values."""
        return [json.loads(each) for each in response.outputs[0].data]

    def _call(self, request: InferenceRequest) -> Any:
        call = request.__dict__.get("_call")
        if call is not None:
            return call
        try:
            return positional(call_of(self, request, self._media), self._first)
        except RequestError as error:
            return error

    def _answer(self, request: InferenceRequest, result: Any) -> Any:
        if isinstance(result, RequestError) or not isinstance(result, Exception):
            return result if isinstance(result, RequestError) else self._written(request, result)
        if isinstance(result, _BLAMED):  # pipelines have no errors of their own for bad arguments
            _log.warning("a request was refused by the pipeline: %r", result)
            return RequestError(f"{self._pipeline.task}: {result}"[:500])
        return result

    def _written(self, request: InferenceRequest, result: Any) -> InferenceResponse:
        values = result if isinstance(result, list) else [result]
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            id=request.id,
            outputs=[JsonListCodec.encode_output(OUTPUT, values)],
        )
