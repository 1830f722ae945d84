"""The loop of text generation over the rows of one batch, each with its own parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from marserve.handlers.generation.sampling import Sampler, SamplingParams
from marserve.handlers.runners.base import Decoder, Inputs


@torch.inference_mode()  # of the whole: a compiled model tells inference tensors from others
def generate(
    decoder: Decoder, inputs: Inputs, params: Sequence[SamplingParams], end_ids: Collection[int]
) -> list[list[int]]:
    """Continues prompts until each has its tokens or has ended; a finished row costs nothing more.

    Args:
        decoder: A new one.
        inputs: ``input_ids`` and ``attention_mask`` of the prompts: ``[rows, tokens] int64``.
        params: One a row.
        end_ids: Tokens that end a text; they are not part of it.

    Returns:
        The new tokens of each row.
    """
    sampler = Sampler(params)
    texts: list[list[int]] = [[] for _ in params]
    active = list(range(len(params)))
    logits = decoder.start(inputs)
    while True:
        tokens = sampler.pick(logits, active)
        going = []
        for line, token in enumerate(tokens.tolist()):
            row = active[line]
            if token in end_ids:
                continue
            texts[row].append(token)
            if len(texts[row]) < params[row].max_new_tokens:
                going.append(line)
        if not going:
            return texts
        if len(going) < len(active):
            kept = torch.tensor(going, device=tokens.device)
            decoder.keep(kept)
            tokens = tokens[kept]
            active = [active[line] for line in going]
        logits = decoder.step(tokens)
