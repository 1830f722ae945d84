from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.handlers.errors import RequestError
from marserve.handlers.generation.sampling import Sampler, SamplingParams, read_params

DEFAULT = SamplingParams(max_new_tokens=5)
LOGITS = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))


def draw(count: int, **params: Any) -> dict[int, float]:
    rows = [SamplingParams(1, **params) for _ in range(count)]
    picked = Sampler(rows).pick(LOGITS.expand(count, -1), range(count)).tolist()
    return {token: picked.count(token) / count for token in set(picked)}


def test_draws_by_probability() -> None:
    shares = draw(20_000, top_p=1.0)

    assert [0.5, 0.3, 0.15, 0.05] == pytest.approx([shares[i] for i in range(4)], abs=0.02)


@pytest.mark.parametrize(
    ("params", "tokens"),
    [
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_p": 0.79}, {0, 1}),
        ({"top_p": 0.81}, {0, 1, 2}),
        ({"top_p": 1e-6}, {0}),
        ({"top_k": 1}, {0}),
        ({"top_k": 3, "top_p": 1.0}, {0, 1, 2}),
        ({"top_k": 0, "top_p": 1.0}, {0, 1, 2, 3}),
        ({"temperature": 0}, {0}),
        ({"temperature": 1e-4}, {0}),
        ({"do_sample": False}, {0}),
    ],
)
def test_limits(params: dict[str, Any], tokens: set[int]) -> None:
    assert tokens == set(draw(500, **params))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(
        st.builds(
            SamplingParams,
            max_new_tokens=st.just(1),
            do_sample=st.booleans(),
            temperature=st.floats(0, 3),
            top_k=st.integers(0, 9),
            top_p=st.floats(1e-6, 1),
            seed=st.integers(0, 9),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_a_row_is_drawn_alike_in_every_batch(seed: int, params: list[SamplingParams]) -> None:
    logits = torch.randn(len(params), 7, generator=torch.Generator().manual_seed(seed))

    together = Sampler(params).pick(logits, range(len(params))).tolist()

    alone = [Sampler([p]).pick(logits[i : i + 1], [0]).item() for i, p in enumerate(params)]
    assert alone == together


def test_without_a_seed_texts_differ() -> None:
    random.seed(0)

    assert len({tuple(draw(4, top_p=1.0)) for _ in range(50)}) > 1


def test_absent_values_are_the_defaults() -> None:
    assert read_params({"top_k": None}, DEFAULT) == DEFAULT
    assert read_params({"temperature": 2, "seed": 4}, DEFAULT) == SamplingParams(
        5, temperature=2.0, seed=4
    )


@pytest.mark.parametrize(
    "values", [{"top_k": "3"}, {"top_p": 1.01}, {"seed": 1.0}, {"temperature": float("inf")}]
)
def test_wrong_values(values: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(values))):
        read_params(values, DEFAULT)
