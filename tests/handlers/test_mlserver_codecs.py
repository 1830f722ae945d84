"""What runtimes import from mlserver: records, codecs, their precedence, and type hints."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from marserve.handlers.mlserver import codecs
from marserve.handlers.mlserver.batches import cut, groups, joined
from marserve.handlers.mlserver.codecs import decode_args
from marserve.handlers.mlserver.errors import CodecError, CodecNotFound, MLServerError
from marserve.handlers.mlserver.model import MLModel
from marserve.handlers.mlserver.records import ValidationError
from marserve.handlers.mlserver.settings import ModelSettings
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
    TensorData,
)


def given(
    name: str, datatype: str, shape: list[int], data: Any, content_type: str | None = None
) -> RequestInput:
    parameters = Parameters(content_type=content_type) if content_type else None
    tensor = TensorData(data)
    return RequestInput(
        name=name, datatype=datatype, shape=shape, data=tensor, parameters=parameters
    )


def model(kind: type[MLModel] = MLModel, **more: Any) -> Any:
    return kind(ModelSettings(implementation=kind, name="m", parameters={"version": "v1"}, **more))


class TestRecords:
    def test_plain_values_become_records(self) -> None:
        request = InferenceRequest.model_validate(
            {"inputs": [{"name": "a", "shape": [1], "datatype": "FP32", "data": [1]}]}
        )

        assert request.inputs[0].data.root == [1]
        assert request.inputs[0].datatype == "FP32"
        assert request.model_dump(exclude_none=True) == {
            "inputs": [{"name": "a", "shape": [1], "datatype": "FP32", "data": [1]}]
        }
        assert InferenceRequest.model_validate_json(request.model_dump_json()) == request

    @pytest.mark.parametrize(
        ("values", "named"),
        [
            ({"shape": [1], "datatype": "FP32", "data": []}, "RequestInput.name: is missing"),
            ({"name": 1, "shape": [], "datatype": "FP32", "data": []}, "name: expected str"),
            ({"name": "a", "shape": ["x"], "datatype": "FP32", "data": []}, "shape[0]"),
            ({"name": "a", "shape": 1, "datatype": "FP32", "data": []}, "expected a list"),
        ],
    )
    def test_what_cannot_be_is_refused_by_field(self, values: dict[str, Any], named: str) -> None:
        with pytest.raises(ValidationError) as caught:
            RequestInput(**values)
        assert named in str(caught.value)

    def test_parameters_have_any_name(self) -> None:
        parameters = Parameters.model_validate({"content_type": "np", "temperature": 0.5})

        assert parameters.temperature == 0.5  # type: ignore[attr-defined]
        assert parameters.model_extra == {"temperature": 0.5}
        assert parameters.model_dump(exclude_none=True) == {
            "content_type": "np",
            "temperature": 0.5,
        }
        with pytest.raises(ValueError, match="has no field 'colour'"):
            given("a", "FP32", [1], [1]).colour = 1

    def test_a_copy_is_another_record(self) -> None:
        output = RequestOutput(name="a")
        other = output.model_copy(update={"name": "b"})

        assert (output.name, other.name) == ("a", "b")
        assert output != other


class TestCodecs:
    @pytest.mark.parametrize(
        ("payload", "datatype", "shape", "data"),
        [
            (np.arange(3, dtype="float32"), "FP32", [3, 1], [0, 1, 2]),
            (np.ones((2, 2)), "FP64", [2, 2], [1, 1, 1, 1]),
            (np.float32(3), "FP32", [1], [3]),
            (np.array([True]), "BOOL", [1, 1], [True]),
            (np.array(["a", "b"]), "BYTES", [2, 1], [b"a", b"b"]),
            (np.zeros((0, 2)), "FP64", [0, 2], []),
        ],
    )
    def test_arrays_are_written(
        self, payload: Any, datatype: str, shape: list[int], data: list[Any]
    ) -> None:
        output = codecs.NumpyCodec.encode_output("o", payload)

        assert (output.datatype, output.shape, output.data.root) == (datatype, shape, data)
        assert output.parameters == Parameters(content_type="np")

    @pytest.mark.parametrize(
        ("content_type", "values", "texts"),
        [
            ("str", ["a", "ü"], [b"a", "ü".encode()]),
            ("base64", [b"\xff"], [b"/w=="]),
            ("datetime", [datetime(2024, 1, 2, 3, 4)], [b"2024-01-02T03:04:00"]),
        ],
    )
    def test_texts_go_both_ways(
        self, content_type: str, values: list[Any], texts: list[bytes]
    ) -> None:
        codec: Any = codecs.find_input_codec(content_type)
        output = codec.encode_output("o", values)

        assert output.data.root == texts
        assert output.shape == [len(values), 1]
        assert codec.decode_output(output) == values
        assert codecs.find_input_codec(payload=values) is codec

    def test_null_is_nan_and_wrong_data_is_the_client_s_error(self) -> None:
        decode = codecs.NumpyCodec.decode_input

        assert np.isnan(decode(given("a", "FP32", [2], [1, None]))[1])
        with pytest.raises(CodecError, match="input 'a' as an array") as caught:
            decode(given("a", "FP32", [3], [1, 2]))
        assert caught.value.status == 400

    def test_arrays_are_not_copied_on_their_way_in(self) -> None:
        array = np.ones((2, 2), "float32")

        assert np.shares_memory(
            codecs.NumpyCodec.decode_input(given("a", "FP32", [2, 2], array)), array
        )

    def test_the_request_says_more_than_the_metadata_and_that_more_than_the_default(self) -> None:
        declared = {"name": "a", "datatype": "BYTES", "shape": [-1]}
        plain = model()
        knowing = model(inputs=[{**declared, "parameters": {"content_type": "base64"}}])
        own = given("a", "BYTES", [1], ["YQ=="], "str")
        silent = given("a", "BYTES", [1], ["YQ=="])

        assert knowing.decode(own) == ["YQ=="]
        assert knowing.decode(silent) == [b"a"]
        assert plain.decode(given("a", "BYTES", [1], ["x"]), default_codec=codecs.StringCodec) == [
            "x"
        ]
        assert plain.decode(given("a", "INT32", [2], [1, 2])).root == [1, 2]

    def test_an_unknown_content_type_leaves_the_data_alone(self) -> None:
        assert model().decode(given("a", "INT32", [1], [1], "no-such")).root == [1]

    def test_whole_requests(self) -> None:
        request = InferenceRequest(inputs=[given("a", "INT32", [2], [1, 2])])
        named = request.model_copy(update={"parameters": Parameters(content_type="np")})

        assert model().decode_request(named).tolist() == [1, 2]
        assert model().decode_request(request) is request
        two = InferenceRequest(inputs=[*request.inputs, *request.inputs])
        with pytest.raises(CodecError, match="single input tensor"):
            model().decode_request(two, default_codec=codecs.NumpyRequestCodec)

    def test_what_nothing_can_write_is_named(self) -> None:
        with pytest.raises(CodecNotFound, match="output field with name 'q'"):
            model().encode({"a": 1}, RequestOutput(name="q"))

    def test_frames_have_a_column_a_tensor(self) -> None:
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
        answer = model().encode_response(frame)

        assert [(o.name, o.datatype, o.shape) for o in answer.outputs] == [
            ("a", "INT64", [2, 1]),
            ("b", "BYTES", [2, 1]),
        ]
        assert codecs.PandasCodec.decode_response(answer).to_dict("list") == {
            "a": [1, 2],
            "b": ["x", "y"],
        }


class Hinted(MLModel):
    @decode_args
    async def predict(
        self, numbers: np.ndarray[Any, Any] | None, names: list[str]
    ) -> tuple[np.ndarray[Any, Any], list[str]]:
        assert numbers is not None
        return numbers * 2, names


class TestTypeHints:
    def predict(self, *inputs: RequestInput) -> InferenceResponse:
        found: InferenceResponse = asyncio.run(
            model(Hinted).predict(InferenceRequest(inputs=list(inputs)))
        )
        return found

    def test_they_read_and_write(self) -> None:
        answer = self.predict(
            given("numbers", "INT32", [2], [1, 2]), given("names", "BYTES", [1], ["x"])
        )

        assert (answer.model_name, answer.model_version) == ("m", "v1")
        assert [(o.name, o.data.root) for o in answer.outputs] == [
            ("output-0", [2, 4]),
            ("output-1", [b"x"]),
        ]

    def test_inputs_without_an_argument_and_arguments_without_an_input(self) -> None:
        with pytest.raises(MLServerError, match=r"'other' was not found\. Available inputs are"):
            self.predict(given("other", "INT32", [1], [1]))
        with pytest.raises(MLServerError, match="Input 'names' is missing"):
            self.predict(given("numbers", "INT32", [1], [1]))

    def test_a_hint_that_nothing_can_read_is_refused_at_once(self) -> None:
        async def predict(self: Any, a: dict[str, int]) -> np.ndarray[Any, Any]:
            raise AssertionError

        with pytest.raises(CodecNotFound, match="input field with name 'a'"):
            decode_args(predict)


class TestRowsJoined:
    def request(self, rows: int, width: int = 2, **more: Any) -> InferenceRequest:
        array = np.full((rows, width), rows, "float32")
        return InferenceRequest(
            id=str(rows), inputs=[given("a", "FP32", [rows, width], array)], **more
        )

    def test_those_that_are_alike_up_to_the_most_rows(self) -> None:
        requests = [
            self.request(1),
            self.request(2, 3),
            self.request(3),
            self.request(1, parameters=Parameters.model_validate({"k": 1})),
            self.request(2),
            self.request(1, parameters=Parameters(headers={"a": "b"})),
        ]

        assert groups(requests, 4) == [[0, 2], [1], [3], [4, 5]]

    def test_answers_have_their_rows_and_ids(self) -> None:
        requests = [self.request(1), self.request(2)]
        both = joined(requests)
        assert both.inputs[0].shape == [3, 2]
        response = InferenceResponse(
            model_name="m",
            outputs=[
                ResponseOutput(name="o", shape=[3, 2], datatype="FP32", data=both.inputs[0].data),
                ResponseOutput(
                    name="t", shape=[3, 1], datatype="BYTES", data=TensorData([b"a", b"b", b"c"])
                ),
            ],
        )
        one, two = cut(response, requests) or []

        assert (one.id, two.id) == ("1", "2")
        assert one.outputs[0].data.root == [1, 1]
        assert two.outputs[0].data.root == [2, 2, 2, 2]
        assert [each.outputs[1].data.root for each in (one, two)] == [[b"a"], [b"b", b"c"]]

    def test_an_answer_of_other_rows_is_not_cut(self) -> None:
        requests = [self.request(1), self.request(2)]
        output = ResponseOutput(name="o", shape=[1], datatype="FP32", data=TensorData([1]))

        assert cut(InferenceResponse(model_name="m", outputs=[output]), requests) is None
