from __future__ import annotations

from typing import Any

import pytest
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import ask, load

from marserve.handlers.explain_html import render, wants_html
from marserve.handlers.transformer import TransformerHandler


def explained(handler: TransformerHandler, body: Any) -> dict[str, Any]:
    (result,) = ask(handler, [body], explain=True)
    return dict(result)


class TestWords:
    def test_pieces_are_summed(self, tiny_model: TinyModel) -> None:
        explain = {"words": True, "n_steps": 8}
        handler = load(tiny_model("bert", "sequence_classification"), explain=explain)

        result = explained(handler, "Zebras, in New York")

        pieces = "[CLS] z ##e ##b ##r ##a ##s , in new york [SEP]"
        each = result["importances"]
        assert pieces == " ".join(result["words"])
        assert ["Zebras", ",", "in", "New", "York"] == result["merged_words"]
        assert [sum(each[1:7]), *each[7:11]] == pytest.approx(result["merged_importances"])

    @pytest.mark.parametrize("kind", ["gpt2", "llama"])
    def test_of_bytes_too(self, tiny_model: TinyModel, kind: str) -> None:
        explain = {"words": True, "n_steps": 4}
        handler = load(tiny_model(kind, "text_generation"), explain=explain)

        result = explained(handler, "é new film")

        assert ["é", "new", "film"] == result["merged_words"]
        total = sum(result["importances"])
        assert total == pytest.approx(sum(result["merged_importances"]), abs=1e-5)

    @pytest.mark.parametrize("kind", ["bert", "roberta"])
    def test_of_two_texts(self, tiny_model: TinyModel, kind: str) -> None:
        explain = {"words": True, "n_steps": 4}
        handler = load(tiny_model(kind, "question_answering"), explain=explain)

        result = explained(handler, {"question": "where is", "context": "is it film"})

        assert ["where", "is", "is", "it", "film"] == result["merged_words"]
        for end in ("start", "end"):
            assert len(result[f"merged_importances_answer_{end}"]) == 5

    def test_are_left_out_unless_asked_for(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "sequence_classification"), explain={"n_steps": 4})

        assert ["words", "importances", "delta"] == list(explained(handler, "a film"))


class TestPage:
    def ask(self, handler: TransformerHandler, bodies: list[Any], accept: str) -> list[Any]:
        headers = [{"explain": "True", "Accept": accept} for _ in bodies]
        handler.context.begin([str(at) for at in range(len(bodies))], headers)
        return handler.handle([{"body": body} for body in bodies], handler.context)

    def test_is_for_those_who_accept_it(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "sequence_classification"), explain={"n_steps": 4})

        refused, page = self.ask(handler, [{"x": 1}, {"text": "<b>good</b> film"}], "text/html")

        types = [handler.context.get_response_content_type(at) for at in range(2)]
        assert [None, "text/html; charset=utf-8"] == types
        assert "x" in refused.message
        assert ">film</span>" in page
        assert "<b>" not in page
        assert "&lt;" in page

    def test_has_a_part_for_each_end_of_an_answer(self, tiny_model: TinyModel) -> None:
        handler = load(tiny_model("bert", "question_answering"), explain={"n_steps": 4})
        request = {"question": "where?", "context": "in new york"}

        (page,) = self.ask(handler, [request], "text/html,application/xhtml+xml,*/*;q=0.8")

        assert "answer start" in page
        assert "answer end" in page

    def test_colours_say_how_much_and_which_way(self) -> None:
        page = render(
            {"merged_words": ["a", "b", "c"], "merged_importances": [0.5, -1.0, 0.0], "target": "T"}
        )

        assert 'rgba(46, 160, 67, 0.5)" title="0.5000">a<' in page
        assert 'rgba(218, 54, 51, 1.0)" title="-1.0000">b<' in page
        assert 'rgba(46, 160, 67, 0.0)" title="0.0000">c<' in page
        assert "for T" in page

    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ({}, False),
            ({"Accept": "*/*"}, False),
            ({"Accept": "application/json"}, False),
            ({"accept": "text/html"}, True),
            ({"ACCEPT": "Text/HTML;q=0.9, */*"}, True),
            ({"Accept": "application/json, text/html"}, False),
            ({"Accept": "text/html, application/json"}, True),
        ],
    )
    def test_clients_say_whether_they_want_it(
        self, headers: dict[str, str], expected: bool
    ) -> None:
        assert expected == wants_html(headers)
