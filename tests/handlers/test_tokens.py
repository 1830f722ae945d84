from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import load

from marserve.handlers.tokens import Encoder, micro_batches


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50)), st.integers(1, 8))
def test_every_row_is_in_one_part(lengths: list[int], rows: int) -> None:
    parts = micro_batches(lengths, rows)

    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    assert all(0 < len(part) <= rows for part in parts)
    flat = [lengths[row] for part in parts for row in part]
    assert flat == sorted(flat, reverse=True)


def test_ids_are_those_of_the_tokenizer(tiny_model: TinyModel) -> None:
    tokenizer = load(tiny_model("bert", "sequence_classification")).tokenizer
    encoder = Encoder(tokenizer, 12, ("input_ids", "attention_mask", "token_type_ids"))
    texts = ["a good film", "", "what " * 40, "New York?"]

    batch = encoder(texts)

    expected = tokenizer(
        texts, padding="longest", truncation=True, max_length=12, return_tensors="pt"
    )
    for name, values in batch.inputs.items():
        assert (expected[name] == values).all()
    assert batch.inputs.keys() <= expected.keys()
    for row, text in enumerate(texts):
        ids = tokenizer(text, truncation=True, max_length=12)["input_ids"]
        assert tokenizer.convert_ids_to_tokens(ids) == batch.tokens(row)


def test_the_tokenizer_itself_is_left_as_it_was(tiny_model: TinyModel) -> None:
    tokenizer = load(tiny_model("bert", "sequence_classification"), max_length=4).tokenizer

    assert len(tokenizer("a good film was it")["input_ids"]) == 7


def test_pairs_have_types_and_are_cut_together(tiny_model: TinyModel) -> None:
    tokenizer = load(tiny_model("bert", "question_answering")).tokenizer
    encoder = Encoder(tokenizer, 10, ("input_ids", "attention_mask", "token_type_ids"))

    batch = encoder([("who " * 30, "a film " * 30)], offsets=True)

    assert len(batch.tokens(0)) == 10
    assert sorted(batch.inputs["token_type_ids"][0].tolist())[-1] == 1
