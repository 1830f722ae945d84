"""V2 over gRPC: Triton's client, blocking and asyncio, and grpc itself, against a real server."""

from __future__ import annotations

import queue
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tests.e2e.grpc_clients import LIMIT_S, UNLIMITED, failure
from tests.e2e.running import SERVICES, Running, running
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException, shared_memory

Code = grpc.StatusCode
PROPERTIES = "default_workers_per_model=1\nallow_client_shm=true\nmax_request_size=30000000\n"
PROPERTIES += "max_response_size=30000000"
WORDS = {
    "BOOL": np.bool_,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for server in running(tmp_path_factory.mktemp("v2"), properties=PROPERTIES):
        for name in ("tensors", "tensor_sleep"):
            server.pack(name, name)
        for name in ("add", "decoupled"):
            shutil.copytree(SERVICES / "triton" / name, server.store / "repository" / name)
        yield server.start()


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    with triton.InferenceServerClient(address(server)) as made:
        yield made


@pytest.fixture(scope="module")
def stub(server: Running) -> Iterator[Any]:
    with grpc.insecure_channel(address(server), UNLIMITED) as channel:
        made: Any = service_pb2_grpc
        yield made.GRPCInferenceServiceStub(channel)


def address(server: Running) -> str:
    return f"127.0.0.1:{server.grpc_ports['inference']}"


def tensor(name: str, array: Any, word: str | None = None) -> Any:
    words = {np.dtype(kind).name: each for each, kind in WORDS.items()} | {"object": "BYTES"}
    made = triton.InferInput(name, list(array.shape), word or words[array.dtype.name])
    made.set_data_from_numpy(array)
    return made


def refusal(ask: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        ask()
    return str(caught.value.status()), str(caught.value.message())


def asked(model: str, *inputs: tuple[str, str, list[int], dict[str, Any]]) -> Any:
    """A request whose contents are typed."""
    message = pb.ModelInferRequest(model_name=model)
    for name, datatype, shape, contents in inputs:
        made = message.inputs.add(name=name, datatype=datatype, shape=shape)
        for field, values in contents.items():
            getattr(made.contents, field).extend(values)
    return message


# -- one question, one answer ----------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_raw_tensors_come_back_as_they_were(client: Any, word: str) -> None:
    array: Any = np.arange(6).reshape(2, 3).astype(WORDS[word])
    answer = client.infer("tensors", [tensor("x", array)], request_id="mine")

    assert np.array_equal(array, answer.as_numpy("x"))
    assert array.dtype == answer.as_numpy("x").dtype
    assert [f"x[2, 3]{array.dtype}".encode()] == list(answer.as_numpy("shapes"))
    assert ("tensors", "1.0", "mine") == (
        answer.get_response().model_name,
        answer.get_response().model_version,
        answer.get_response().id,
    )


@pytest.mark.parametrize("rows", [2, 3000])  # of 36 kB: parsed in another way than small ones
@pytest.mark.parametrize("wanted", [(), ("y", "x"), ("x", "shapes", "y")])
def test_messages_that_differ_in_their_bytes_alone(
    client: Any, rows: int, wanted: tuple[str, ...]
) -> None:
    generator = np.random.default_rng(1)
    outputs = [triton.InferRequestedOutput(name) for name in wanted] or None
    for turn in range(4):
        arrays = {name: generator.random((rows, 3)).astype(np.float32) for name in ("x", "y")}
        inputs = [tensor(name, array) for name, array in arrays.items()]
        answer = client.infer("tensors", inputs, outputs=outputs, request_id="n" if turn else "")
        names = [each.name for each in answer.get_response().outputs]
        assert list(wanted or ("x", "y", "shapes")) == names
        assert all(np.array_equal(arrays[name], answer.as_numpy(name)) for name in arrays)
        if "shapes" in names:
            texts = [f"{name}[{rows}, 3]float32".encode() for name in arrays]
            assert texts == list(answer.as_numpy("shapes"))


def test_messages_that_are_alike_but_fail(client: Any, stub: Any) -> None:
    fine, bad = np.ones((1, 2), np.float32), np.full((1, 2), -1, np.float32)
    for values, right in ((fine, True), (bad, False), (fine, True), (bad, False), (fine, True)):
        inputs = [tensor("A", values), tensor("B", fine)]
        if right:
            assert [[4, 4]] == client.infer("add", inputs).as_numpy("SUM").tolist()
        else:
            _, text = refusal(lambda given=inputs: client.infer("add", given))
            assert "A may not be -1" in text
    message = pb.ModelInferRequest(model_name="tensors", raw_input_contents=[bytes(8)])
    message.inputs.add(name="x", datatype="INT32", shape=[2])
    for content, right in ((bytes(8), True), (b"12345678", True), (bytes(4), False)):
        message.raw_input_contents[0] = content
        if right:
            assert content == stub.ModelInfer(message, timeout=LIMIT_S).raw_output_contents[0]
        else:
            failed = failure(lambda: stub.ModelInfer(message, timeout=LIMIT_S))
            assert failed[0] is Code.INVALID_ARGUMENT


def test_texts_and_several_inputs(client: Any) -> None:
    texts = np.array([b"one", "zwölf".encode(), b"", bytes(300)], dtype=object)
    empty = np.zeros((0, 4), np.float32)
    answer = client.infer("tensors", [tensor("text", texts), tensor("none", empty)])

    assert list(texts) == list(answer.as_numpy("text"))
    assert (0, 4) == answer.as_numpy("none").shape


def test_large_tensors(client: Any) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random((1024, 1024), np.float32), rng.integers(0, 255, 5 << 20, np.uint8)
    answer = client.infer("tensors", [tensor("a", first), tensor("b", second)])

    assert np.array_equal(first, answer.as_numpy("a"))
    assert np.array_equal(second, answer.as_numpy("b"))


def test_compressed_messages(client: Any) -> None:
    array = np.zeros(100_000, np.int64)
    for how in ("gzip", "deflate"):
        answer = client.infer("tensors", [tensor("x", array)], compression_algorithm=how)
        assert np.array_equal(array, answer.as_numpy("x"))


def test_outputs_that_are_asked_for_and_a_version(client: Any) -> None:
    inputs = [tensor("a", np.zeros(1, np.int8)), tensor("b", np.ones(1, np.int8))]
    only = [triton.InferRequestedOutput("b")]
    answer = client.infer("tensors", inputs, model_version="1.0", outputs=only)
    wrong = [triton.InferRequestedOutput("c")]

    assert ["b"] == [each.name for each in answer.get_response().outputs]
    assert (
        "StatusCode.INVALID_ARGUMENT",
        "output 'c' is unknown; the model gave: a, b, shapes",
    ) == (refusal(lambda: client.infer("tensors", inputs, outputs=wrong)))


TYPED: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-300, 300]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [0.5, -2.0]),
    "FP64": ("fp64_contents", [0.1, -1e300]),
    "BYTES": ("bytes_contents", [b"a", b"\xff\x00"]),
}


@pytest.mark.parametrize("word", TYPED)
def test_typed_contents_are_answered_by_typed_ones(stub: Any, word: str) -> None:
    field, values = TYPED[word]
    answer = stub.ModelInfer(asked("tensors", ("x", word, [2], {field: values})), timeout=LIMIT_S)
    found, shapes = answer.outputs

    assert values == list(getattr(found.contents, field))
    assert 1 == len(shapes.contents.bytes_contents)
    assert not answer.raw_output_contents


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model_name": ""}, "model_name is empty; expected the name of a model."),
        ({"model_name": "nothing"}, "Model not found: nothing"),
        ({"model_version": "7"}, "Model version: 7 does not exist for model: tensors"),
    ],
)
def test_a_model_that_is_not_there(stub: Any, change: dict[str, str], text: str) -> None:
    message = asked("tensors", ("x", "INT32", [1], {"int_contents": [1]}))
    for name, value in change.items():
        setattr(message, name, value)
    code, found = failure(lambda: stub.ModelInfer(message, timeout=LIMIT_S))

    assert found == text
    assert code == (Code.INVALID_ARGUMENT if not message.model_name else Code.NOT_FOUND)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (("x", "FP99", [1], {"fp32_contents": [1]}), "FP99 has no typed field"),
        (("x", "FP16", [1], {"fp32_contents": [1]}), "FP16 has no typed field; send it raw"),
        (("x", "INT32", [1], {"fp32_contents": [1]}), "belong in int_contents, not fp32_contents"),
        (("x", "INT8", [1], {"int_contents": [128]}), "contents are not INT8"),
        (("x", "INT32", [2], {"int_contents": [1]}), "shape [2]"),
        (("x", "INT32", [-1], {"int_contents": [1]}), "negative"),
        (("x", "BYTES", [2], {"bytes_contents": [b"a"]}), "shape [2]"),
    ],
)
def test_contents_that_do_not_fit(stub: Any, one: Any, text: str) -> None:
    code, found = failure(lambda: stub.ModelInfer(asked("tensors", one), timeout=LIMIT_S))

    assert Code.INVALID_ARGUMENT == code
    assert found.startswith("input 'x'")
    assert text in found


def test_raw_contents_that_do_not_fit(stub: Any) -> None:
    def refused(message: Any) -> str:
        code, text = failure(lambda: stub.ModelInfer(message, timeout=LIMIT_S))
        assert Code.INVALID_ARGUMENT == code
        return text

    both = asked("tensors", ("x", "INT32", [1], {"int_contents": [1]}))
    both.raw_input_contents.append(bytes(4))
    few = asked("tensors", ("x", "INT32", [1], {}), ("y", "INT32", [1], {}))
    few.raw_input_contents.append(bytes(4))
    short = asked("tensors", ("x", "INT32", [1], {}))
    short.raw_input_contents.append(bytes(3))
    twice = asked("tensors", ("x", "INT8", [0], {}), ("x", "INT8", [0], {}))

    assert "raw_input_contents as well" in refused(both)
    assert "1 entries for 2 inputs" in refused(few)
    assert "input 'x': 3 bytes" in refused(short)
    assert "input 'x' is there more than once" in refused(twice)
    assert '"inputs" is empty' in refused(asked("tensors"))


def test_a_handler_that_fails(client: Any) -> None:
    code, text = refusal(lambda: client.infer("tensors", [tensor("break", np.zeros(1, np.int8))]))

    assert "StatusCode.INTERNAL" == code
    assert "broken on request" in text


def test_a_model_of_many_answers_is_for_streams(client: Any) -> None:
    code, text = refusal(
        lambda: client.infer("decoupled", [tensor("COUNT", np.array([2], np.int32))])
    )

    assert "StatusCode.UNIMPLEMENTED" == code
    assert "ModelStreamInfer" in text


# -- time and cancellation -------------------------------------------------------------------------


def seconds(value: float) -> Any:
    return tensor("IN", np.array([value], np.float32))


def test_a_deadline_and_a_timeout_parameter_are_the_requests(client: Any, server: Running) -> None:
    before = begins(server)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.infer, "tensor_sleep", [seconds(2)])
        server.until(lambda: begins(server) == before + 1, "it does not run")
        late = refusal(lambda: client.infer("tensor_sleep", [seconds(0)], client_timeout=0.2))
        short = refusal(lambda: client.infer("tensor_sleep", [seconds(0)], timeout=200_000))
        first.result()

    assert "StatusCode.DEADLINE_EXCEEDED" == late[0]
    assert "StatusCode.DEADLINE_EXCEEDED" == short[0]
    assert begins(server) == before + 1


def begins(server: Running) -> int:
    return server.console.count("batch of 1 begins")


def test_a_cancelled_call_frees_its_place(client: Any, server: Running) -> None:
    before = begins(server)
    done: queue.Queue[Any] = queue.Queue()

    def told(result: Any, error: Any) -> None:
        done.put(error or result)

    client.async_infer("tensor_sleep", [seconds(1)], callback=told)
    server.until(lambda: begins(server) == before + 1, "it does not run")
    waiting = [client.async_infer("tensor_sleep", [seconds(30)], callback=told) for _ in range(3)]
    for call in waiting:
        call.cancel()
    answer = client.infer("tensor_sleep", [seconds(0)])

    assert [0] == list(answer.as_numpy("OUT"))
    assert 3 == sum(isinstance(done.get(timeout=LIMIT_S), Exception) for _ in range(4))


# -- streams ---------------------------------------------------------------------------------------


class Streamed:
    """A stream of Triton's client, and what came on it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.came: queue.Queue[Any] = queue.Queue()

    def __enter__(self) -> Streamed:
        self.client.start_stream(lambda result, error: self.came.put(error or result))
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop_stream()

    def ask(self, model: str, *inputs: Any, **more: Any) -> None:
        self.client.async_stream_infer(model, list(inputs), **more)

    def next(self) -> Any:
        return self.came.get(timeout=LIMIT_S)


def test_answers_without_an_id_come_in_the_order_of_the_questions(client: Any) -> None:
    with Streamed(client) as stream:
        for number in range(200):
            stream.ask("tensors", tensor("x", np.array([number])))
        found = [int(stream.next().as_numpy("x")[0]) for _ in range(200)]

    assert list(range(200)) == found


def test_what_fails_is_said_in_its_answer_and_the_stream_lives_on(client: Any) -> None:
    with Streamed(client) as stream:
        stream.ask("tensors", tensor("break", np.zeros(1, np.int8)))
        stream.ask("nothing", tensor("x", np.zeros(1, np.int8)))
        stream.ask("tensors", tensor("x", np.ones(1, np.int8)))
        broken, unknown, last = stream.next(), stream.next(), stream.next()

    assert "broken on request" in str(broken)
    assert "Model not found: nothing" in str(unknown)
    assert [1] == list(last.as_numpy("x"))


def test_a_question_with_an_id_does_not_wait_for_others(client: Any) -> None:
    with Streamed(client) as stream:
        stream.ask("tensor_sleep", seconds(2), request_id="slow")
        stream.ask("tensors", tensor("x", np.ones(1, np.int8)), request_id="quick")
        order = [stream.next().get_response().id, stream.next().get_response().id]

    assert ["quick", "slow"] == order


def final(answer: Any) -> bool:
    return bool(answer.get_response().parameters["triton_final_response"].bool_param)


def test_many_answers_to_one_question(client: Any) -> None:
    with Streamed(client) as stream:
        several = tensor("COUNT", np.array([3], np.int32))
        stream.ask("decoupled", several, enable_empty_final_response=True)
        answers: list[Any] = []
        while not answers or not final(answers[-1]):
            answers.append(stream.next())
        stream.ask("tensors", tensor("x", np.ones(1, np.int8)), enable_empty_final_response=True)
        lone = stream.next()

    assert [False, False, False, True] == [final(each) for each in answers]
    assert [1, 1, 1, 0] == [len(each.get_response().outputs) for each in answers]
    assert final(lone)
    assert 2 == len(lone.get_response().outputs)


def test_bytes_that_are_no_message(server: Running, stub: Any) -> None:
    path = "/inference.GRPCInferenceService/"
    good = asked("tensors", ("x", "INT8", [1], {"int_contents": [1]})).SerializeToString()
    with grpc.insecure_channel(address(server)) as channel:
        unary: Any = channel.unary_unary(path + "ModelInfer")
        code, text = failure(lambda: unary(b"\xff\xff\xff", timeout=LIMIT_S))
        many: Any = channel.stream_stream(path + "ModelStreamInfer")
        first, second = many(iter([b"\xff" * 40_000, good]), timeout=LIMIT_S)

    assert (Code.INVALID_ARGUMENT, "The 3 bytes of the request are no such message.") == (
        code,
        text,
    )
    assert "no such message" in pb.ModelStreamInferResponse.FromString(first).error_message
    assert pb.ModelStreamInferResponse.FromString(second).infer_response.model_name == "tensors"


async def test_asyncio(server: Running) -> None:
    async with triton_aio.InferenceServerClient(address(server)) as client:
        array = np.arange(3)
        answer = await client.infer("tensors", [tensor("x", array)])
        assert np.array_equal(array, answer.as_numpy("x"))

        async def questions() -> Any:
            for number in range(5):
                yield {"model_name": "tensors", "inputs": [tensor("x", np.array([number]))]}

        found = []
        async for result, error in client.stream_infer(questions()):
            assert error is None
            found.append(int(result.as_numpy("x")[0]))
        assert [0, 1, 2, 3, 4] == found


# -- everything else -------------------------------------------------------------------------------


def test_the_server_and_its_models(client: Any) -> None:
    metadata = client.get_server_metadata()
    about = client.get_model_metadata("add")
    config = client.get_model_config("add").config
    listed = {each.name: each.state for each in client.get_model_repository_index().models}

    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tensors", "1.0")
    assert not client.is_model_ready("tensors", "2.0")
    assert not client.is_model_ready("nothing")
    assert "marserve" == metadata.name
    assert "statistics" in metadata.extensions
    assert ["A", "B"] == [each.name for each in about.inputs]
    assert {"FP32"} == {each.datatype for each in about.inputs}
    assert ("add", "python") == (config.name, config.backend)
    assert ["A", "B"] == [each.name for each in config.input]
    assert "READY" == listed["tensors"] == listed["add"]
    assert "StatusCode.NOT_FOUND" == refusal(lambda: client.get_model_metadata("nothing"))[0]


def test_statistics(client: Any) -> None:
    def count() -> int:
        found = client.get_inference_statistics("add").model_stats
        return sum(int(each.inference_stats.success.count) for each in found)

    ones, before = np.ones((1, 3), np.float32), count()
    client.infer("add", [tensor("A", ones), tensor("B", ones)])

    assert before + 1 == count()


def test_models_are_loaded_and_unloaded(client: Any) -> None:
    client.unload_model("add")
    gone = client.is_model_ready("add")
    client.load_model("add")

    assert not gone
    assert client.is_model_ready("add")
    assert "StatusCode.NOT_FOUND" == refusal(lambda: client.load_model("nothing"))[0]


def test_settings(client: Any) -> None:
    changed = client.update_trace_settings("tensors", {"trace_rate": "7"}, as_json=True)
    others = client.get_trace_settings(as_json=True)["settings"]
    back = client.update_trace_settings("tensors", {"trace_rate": None}, as_json=True)
    verbose = client.update_log_settings({"log_verbose_level": 1}, as_json=True)["settings"]
    quiet = client.update_log_settings({"log_verbose_level": 0}, as_json=True)["settings"]

    assert ["7"] == changed["settings"]["trace_rate"]["value"]
    assert ["1000"] == others["trace_rate"]["value"] == back["settings"]["trace_rate"]["value"]
    assert [1, 0] == [each["log_verbose_level"]["uint32_param"] for each in (verbose, quiet)]
    assert (
        "StatusCode.INVALID_ARGUMENT"
        == refusal(lambda: client.update_log_settings({"log_nothing": True}))[0]
    )


def test_system_shared_memory(client: Any, server: Running) -> None:
    array = np.arange(8, dtype=np.float32)
    key = f"marserve-test-{server.grpc_ports['inference']}"
    region = shared_memory.create_shared_memory_region("both", key, 2 * array.nbytes)
    try:
        shared_memory.set_shared_memory_region(region, [array])
        client.register_system_shared_memory("both", key, 2 * array.nbytes)
        given, taken = triton.InferInput("x", [8], "FP32"), triton.InferRequestedOutput("x")
        given.set_shared_memory("both", array.nbytes)
        taken.set_shared_memory("both", array.nbytes, array.nbytes)
        shapes = triton.InferRequestedOutput("shapes")
        answer = client.infer("tensors", [given], outputs=[taken, shapes])
        found = shared_memory.get_contents_as_numpy(region, np.float32, [8], array.nbytes)
        status = client.get_system_shared_memory_status(as_json=True)["regions"]
        same = np.array_equal(array, found)
        told = [bytes(each) for each in answer.as_numpy("shapes")]
    finally:
        client.unregister_system_shared_memory("both")
        shared_memory.destroy_shared_memory_region(region)

    assert same
    assert [b"x[8]float32"] == told
    assert key == status["both"]["key"]
    assert {} == client.get_system_shared_memory_status(as_json=True)
    assert "StatusCode.INVALID_ARGUMENT" == refusal(client.get_cuda_shared_memory_status)[0]
