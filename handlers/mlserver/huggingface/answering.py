"""Question answering, which transformers has no pipeline for any more: a piece of a context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from transformers.pipelines.base import ChunkPipeline

from marserve.handlers.errors import RequestError

_LONGEST, _STRIDE, _ANSWER = 384, 128, 15


_Pipeline: Any = ChunkPipeline  # its types are not those of its subclasses


class QuestionAnswering(_Pipeline):  # type: ignore[misc]
    """Answers with the likeliest piece of the context: score, start, end and answer.

    Long contexts are read in overlapping parts.
    """

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False

    def _sanitize_parameters(self, **given: Any) -> tuple[dict[str, Any], ...]:
        if "topk" in given:
            given["top_k"] = given.pop("topk")
        before = ("doc_stride", "max_question_len", "max_seq_len", "padding")
        after = ("top_k", "max_answer_len", "handle_impossible_answer", "align_to_words")
        unknown = set(given) - {*before, *after}
        if unknown:
            raise RequestError(f"question-answering has no parameter '{min(unknown)}'")
        return (
            {k: v for k, v in given.items() if k in before},
            {},
            {k: v for k, v in given.items() if k in after},
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns one answer, or a list of them for several questions.

        Args:
            args: Dicts with ``question`` and ``context``, or a list of such.
            kwargs: The same two, texts or lists, and parameters.

        Raises:
            RequestError: If a question has no context.
        """
        examples = _examples(args, kwargs)
        found = super().__call__(examples, **kwargs)
        return found[0] if len(found) == 1 else found

    def preprocess(self, input_: Any, **options: Any) -> Iterator[dict[str, Any]]:
        """Yields the parts of a question's context, each as tokens behind the question."""
        tokenizer = self.tokenizer
        longest = min(options.get("max_seq_len") or _LONGEST, tokenizer.model_max_length)
        stride = options.get("doc_stride") or min(longest // 2, _STRIDE)
        right = tokenizer.padding_side == "right"
        pair = (input_["question"], input_["context"])
        encoded = tokenizer(
            *(pair if right else pair[::-1]),
            truncation="only_second" if right else "only_first",
            max_length=longest,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_tensors="pt",
            padding="longest",
        )
        names = [n for n in tokenizer.model_input_names if n in encoded]
        count = encoded["input_ids"].shape[0]
        for part in range(count):
            sides = encoded.sequence_ids(part)
            yield {
                "is_last": part == count - 1,
                "example": input_,
                "encoding": encoded.encodings[part],
                "context": [side == (1 if right else 0) for side in sides],
                **{name: encoded[name][part : part + 1] for name in names},
            }

    def _forward(self, input_tensors: Any, **_: Any) -> dict[str, Any]:
        names = [n for n in self.tokenizer.model_input_names if n in input_tensors]
        outputs = self.model(**{name: input_tensors[name] for name in names})
        kept = {k: v for k, v in input_tensors.items() if k not in names}
        return {"starts": outputs.start_logits, "ends": outputs.end_logits, **kept}

    def postprocess(
        self,
        model_outputs: Any,
        top_k: int = 1,
        max_answer_len: int = _ANSWER,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
    ) -> Any:
        """Returns the best answer of all parts, or the best few."""
        found: list[dict[str, Any]] = []
        nothing = 1.0
        for output in model_outputs:
            starts, ends, impossible = _shares(output, handle_impossible_answer)
            nothing = min(nothing, impossible)
            for start, end, score in _best(starts, ends, top_k, max_answer_len):
                found.append(_answer(output, start, end, score, align_to_words))
        if handle_impossible_answer:
            found.append({"score": nothing, "start": 0, "end": 0, "answer": ""})
        ordered = _merged(sorted(found, key=lambda each: -float(each["score"])))[:top_k]
        return ordered[0] if len(ordered) == 1 else ordered


def _examples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[dict[str, Any]]:
    given: list[Any] = []
    for each in args:
        given += each if isinstance(each, list) else [each]
    for name in ("X", "data", "examples"):
        each = kwargs.pop(name, None)
        given += each if isinstance(each, list) else [each] if each is not None else []
    questions, contexts = kwargs.pop("question", None), kwargs.pop("context", None)
    if questions is not None:
        many = questions if isinstance(questions, list) else [questions]
        texts = contexts if isinstance(contexts, list) else [contexts] * len(many)
        if len(many) != len(texts):
            text = f"{len(many)} questions but {len(texts)} contexts; expected one for each"
            raise RequestError(text)
        given += [{"question": q, "context": c} for q, c in zip(many, texts, strict=True)]
    for each in given:
        fields = each if isinstance(each, dict) else {}
        for name in ("question", "context"):
            if not isinstance(fields.get(name), str) or not fields[name]:
                raise RequestError(f"'{name}' is missing or empty; expected a text")
    if not given:
        raise RequestError("'question' and 'context' are missing")
    return [{"question": each["question"], "context": each["context"]} for each in given]


def _shares(output: Any, impossible: bool) -> tuple[Any, Any, float]:
    """Probabilities that the answer starts, and ends, at each token of the context."""
    inside = np.array(output["context"])
    width = len(inside)
    found = []
    for name in ("starts", "ends"):
        logits = output[name][0].float().cpu().numpy()[:width].astype(np.float64)
        allowed = inside.copy()
        allowed[0] = allowed[0] or impossible
        logits = np.where(allowed, logits, -np.inf)
        share = np.exp(logits - logits.max())
        found.append(share / share.sum())
    nothing = float(found[0][0] * found[1][0]) if impossible else 1.0
    if impossible:
        found[0][0] = found[1][0] = 0.0
    return found[0], found[1], nothing


def _best(starts: Any, ends: Any, top_k: int, longest: int) -> list[tuple[int, int, float]]:
    scores = np.tril(np.triu(np.outer(starts, ends)), longest - 1)
    flat = scores.ravel()
    count = min(top_k, flat.size)
    chosen = [int(at) for at in np.argsort(-flat, kind="stable")[:count] if flat[at] > 0]
    width = scores.shape[1]
    return [(at // width, at % width, float(flat[at])) for at in chosen]


def _answer(output: Any, start: int, end: int, score: float, words: bool) -> dict[str, Any]:
    encoding, context = output["encoding"], output["example"]["context"]
    side = int((output["context"].index(True) and encoding.sequence_ids[start]) or 0)
    begin, stop = encoding.offsets[start][0], encoding.offsets[end][1]
    if words:
        first, last = encoding.token_to_word(start), encoding.token_to_word(end)
        if first is not None and last is not None:
            begin = encoding.word_to_chars(first, sequence_index=side)[0]
            stop = encoding.word_to_chars(last, sequence_index=side)[1]
    return {"score": score, "start": begin, "end": stop, "answer": context[begin:stop]}


def _merged(ordered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same piece, found in several parts of a context, is one answer."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for each in ordered:
        key = (each["start"], each["end"])
        if key in found:
            found[key]["score"] += each["score"]
        else:
            found[key] = each
    return list(found.values())
