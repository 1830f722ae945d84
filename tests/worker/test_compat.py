"""The names of TorchServe's package, imported as handlers do, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marserve.handlers.context import Context
from marserve.handlers.errors import RequestError
from marserve.handlers.metrics import HandlerMetrics
from marserve.worker import compat
from marserve.worker.loader import load_handler

SERVICES = Path(__file__).parent.parent / "services"
# Left out: those that are broken or hang by intention, those that leave an event loop open, and
# the one that needs ranks.
UNLOADABLE = (
    "asynchronous",
    "broken_",
    "chaos",
    "continuous",
    "custom_ranks",
    "encode_plus",
    "hanging_",
    "loop_bound",
    "meeting",
    "torchrun_",
    "unspeakable_load",
)
LOADABLE = sorted(
    file.name for file in SERVICES.glob("*.py") if not file.stem.startswith(UNLOADABLE)
)
IMPORTS = [
    "import ts; assert ts.__version__ == ts.version.__version__ == '0.12.0'",
    "from ts.context import Context, RequestProcessor",
    "from ts.handler_utils.distributed.deepspeed import get_ds_engine",
    "from ts.handler_utils.distributed.pt_pippy import get_pipeline_driver, initialize_rpc_workers",
    "from ts.handler_utils.hf_batch_streamer import TextIteratorStreamerBatch",
    "from ts.handler_utils.micro_batching import HANDLER_METHODS, MicroBatching",
    "from ts.handler_utils.timer import timed",
    "from ts.handler_utils.utils import import_class, send_intermediate_predict_response",
    "from ts.metrics.caching_metric import CachingMetric",
    "from ts.metrics.dimension import Dimension",
    "from ts.metrics.metric import Metric",
    "from ts.metrics.metric_cache_errors import MetricsCacheKeyError",
    "from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl",
    "from ts.metrics.metric_type_enum import MetricTypes",
    "from ts.metrics.metrics_store import MetricsStore",
    "from ts.metrics.process_memory_metric import check_process_mem_usage, get_cpu_usage",
    "from ts.metrics.unit import Units",
    "from ts.protocol.otf_message_handler import send_intermediate_predict_response",
    "from ts.service import PredictionException, emit_metrics",
    "from ts.torch_handler.base_handler import BaseHandler",
    "from ts.torch_handler.dali_handler import DALIHandler",
    "from ts.torch_handler.densenet_handler import DenseNetHandler",
    "from ts.torch_handler.distributed.base_deepspeed_handler import BaseDeepSpeedHandler",
    "from ts.torch_handler.distributed.base_pippy_handler import BasePippyHandler",
    "from ts.torch_handler.image_classifier import ImageClassifier",
    "from ts.torch_handler.image_segmenter import ImageSegmenter",
    "from ts.torch_handler.object_detector import ObjectDetector",
    "from ts.torch_handler.request_envelope.base import BaseEnvelope",
    "from ts.torch_handler.request_envelope.body import BodyEnvelope",
    "from ts.torch_handler.request_envelope.json import JSONEnvelope",
    "from ts.torch_handler.request_envelope.kserve import KserveEnvelope",
    "from ts.torch_handler.request_envelope.kservev2 import KServev2Envelope",
    "from ts.torch_handler.text_classifier import TextClassifier",
    "from ts.torch_handler.text_handler import TextHandler",
    "from ts.torch_handler.unit_tests.test_utils.mock_context import MockContext",
    "from ts.torch_handler.vision_handler import VisionHandler",
    "from ts.utils.util import PredictionException, list_classes_from_module",
    "from ts.utils.util import CLEANUP_REGEX, check_valid_pt2_backend",
    "from ts.utils.util import load_label_mapping, map_class_to_label",
]
# What one import must find is the very object that our own code uses.
SAME = """
import ts.service, ts.utils.util, ts.context, ts.torch_handler.base_handler
import ts.metrics.metrics_store, ts.torch_handler.image_classifier
import marserve.handlers.base, marserve.handlers.context, marserve.handlers.errors
from marserve.handlers.metrics import HandlerMetrics
assert ts.service.PredictionException is ts.utils.util.PredictionException
assert issubclass(ts.service.PredictionException, marserve.handlers.errors.RequestError)
assert ts.context.Context is marserve.handlers.context.Context
assert ts.torch_handler.base_handler.BaseHandler is marserve.handlers.base.BaseHandler
assert issubclass(ts.torch_handler.image_classifier.ImageClassifier,
                  ts.torch_handler.base_handler.BaseHandler)
assert issubclass(ts.metrics.metrics_store.MetricsStore, HandlerMetrics)
"""
# Nothing that is slow to import, or absent, comes along before it is used.
LIGHT = """
import sys
import ts.torch_handler.object_detector, ts.torch_handler.text_classifier
import ts.torch_handler.image_segmenter, ts.torch_handler.distributed.base_deepspeed_handler
assert not {"captum", "torchvision", "PIL", "deepspeed"} & set(sys.modules)
"""
REFUSALS = """
from ts.torch_handler.unit_tests.test_utils.mock_context import MockContext
from ts.torch_handler.distributed.base_pippy_handler import BasePippyHandler
from ts.torch_handler.distributed.base_deepspeed_handler import BaseDeepSpeedHandler
from ts.handler_utils.distributed.pt_pippy import get_pipeline_driver
from ts.handler_utils.distributed.deepspeed import get_ds_engine
context = MockContext()
for use, package in [
    (lambda: BasePippyHandler().initialize(context), "torchpippy"),
    (lambda: get_pipeline_driver(None, 2, context), "torchpippy"),
    (lambda: BaseDeepSpeedHandler().initialize(context), "deepspeed"),
    (lambda: get_ds_engine(None, context), "deepspeed"),
]:
    try:
        use()
    except Exception as error:
        assert f"needs the package {package}" in str(error), error
    else:
        raise AssertionError(package)
"""


def run(code: str, activate: bool = True) -> subprocess.CompletedProcess[str]:
    start = "from marserve.worker import compat; compat.activate()\n" if activate else ""
    return subprocess.run(
        [sys.executable, "-I", "-c", start + code], capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def worker_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process imports as a worker does, and forgets it afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    compat.activate()
    yield
    services = {file.stem for file in SERVICES.glob("*.py")}
    for name in [each for each in sys.modules if each.partition(".")[0] in {"ts", *services}]:
        del sys.modules[name]


def context_of(directory: Path, name: str = "m") -> Context:
    manifest = {"model": {"modelName": name, "modelVersion": "1.0"}}
    return Context(name, str(directory), manifest, metrics=HandlerMetrics(name))


def test_every_name_that_handlers_import_is_there() -> None:
    done = run("\n".join(IMPORTS))

    assert (0, "") == (done.returncode, done.stderr)


def test_the_names_are_ours_light_and_clear_about_what_is_missing() -> None:
    done = run(LIGHT + SAME + REFUSALS)

    assert (0, "") == (done.returncode, done.stderr)


def test_nothing_is_importable_before_it_is_asked_for() -> None:
    done = run("import ts", activate=False)

    assert done.returncode == 1
    assert "No module named 'ts'" in done.stderr


@pytest.mark.usefixtures("worker_imports")
def test_activating_twice_changes_nothing() -> None:
    before = list(sys.path)

    compat.activate()

    assert before == sys.path


@pytest.mark.usefixtures("worker_imports")
@pytest.mark.parametrize("file", LOADABLE)
def test_handlers_as_users_write_them_load(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # one of them leaves a mark there
    context = context_of(SERVICES)

    handle = load_handler(file, str(SERVICES), context)

    assert callable(handle)


@pytest.mark.usefixtures("worker_imports")
def test_a_subclass_of_the_base_handler_answers_and_explains() -> None:
    context = context_of(SERVICES)
    handle = load_handler("base_style", str(SERVICES), context)
    rows: list[dict[str, Any]] = [{"body": [1, 2]}, {"data": {"instances": [3]}}]

    context.begin(["a", "b"], [{}, {}])
    predictions = handle(rows, context)
    context.begin(["c"], [{"explain": "True"}])
    explanations = handle(rows[:1], context)
    context.begin(["d"], [{"describe": "True"}])
    description = handle([{}], context)

    assert [[2.0, 4.0], [6.0]] == predictions
    assert [[2.0, 2.0]] == explanations
    assert [{"multiplies_by": 2, "device": "cpu"}] == description


@pytest.mark.usefixtures("worker_imports")
def test_a_prediction_exception_carries_its_status() -> None:
    context = context_of(SERVICES)
    handle = load_handler("raising", str(SERVICES), context)
    context.begin(["a"], [{}])

    with pytest.raises(RequestError, match="Some Prediction Error") as raised:
        handle([{"body": "prediction"}], context)

    assert raised.value.status == 599


@pytest.mark.usefixtures("worker_imports")
def test_a_streaming_handler_sends_pieces_to_their_requests() -> None:
    context = context_of(SERVICES)
    handle = load_handler("streaming", str(SERVICES), context)
    sent: list[tuple[int, object]] = []
    context.begin(["a", "b"], [{}, {}], lambda index, value: sent.append((index, value)))

    results = handle([{"body": "1"}, {"body": bytearray(b"2")}], context)

    assert [(0, "hello 0 "), (1, "hello 0 "), (0, ""), (1, "hello 1 ")] == sent
    assert ["done", "done"] == results


@pytest.mark.usefixtures("worker_imports")
def test_a_handler_counts_through_its_context() -> None:
    context = context_of(SERVICES, "counted")
    handle = load_handler("counting", str(SERVICES), context)
    at_load = context.metrics.drain()
    context.metrics.set_request_ids("a,b")
    context.begin(["a", "b"], [{}, {}])

    handle([{"body": "four"}, {"body": "seven.."}], context)
    drained = {(values[0], values[5]): values for values in context.metrics.drain()}

    level = [("ModelName", "counted"), ("Level", "Model")]
    assert [("InitCount", 1.0, "count", "counter", level, "")] == at_load
    assert [("Kind", "plain"), *level] == drained["RequestsCounted", "a,b"][4]
    assert ("Lengths", 4.0, "count", "histogram", level, "a") == drained["Lengths", "a"]
    assert ("InputSize", 11.0, "B", "gauge", level, "a,b") == drained["InputSize", "a,b"]


@pytest.mark.usefixtures("worker_imports")
@pytest.mark.parametrize(
    "name", ["image_classifier", "object_detector", "image_segmenter", "text_classifier"]
)
def test_a_built_in_handler_asks_for_its_model(name: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="No model weights could be loaded"):
        load_handler(name, str(tmp_path), context_of(tmp_path))
