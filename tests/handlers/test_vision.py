"""Built-in handlers of images, on tiny models loaded from files as an archive holds them."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from marserve.handlers.context import Context
from marserve.handlers.densenet_handler import DenseNetHandler
from marserve.handlers.errors import RequestError
from marserve.handlers.image_classifier import ImageClassifier
from marserve.handlers.image_segmenter import ImageSegmenter
from marserve.handlers.images import CenterCrop, Resize, ToTensor, imagenet_steps, open_image
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.object_detector import ObjectDetector
from marserve.handlers.vision_handler import VisionHandler

COLOURS = """
import torch
class Colours(torch.nn.Module):
    def forward(self, images):
        return images.mean(dim=(2, 3)) * 10
"""
PIXELS = """
import torch
class Pixels(torch.nn.Module):
    def forward(self, images):
        return {"out": images * 10}
"""
BOXES = """
import torch
class Boxes(torch.nn.Module):
    def forward(self, images):
        return [
            {
                "boxes": torch.tensor([[0.0, 0.0, image.shape[2], image.shape[1]], [1, 1, 2, 2]]),
                "labels": torch.tensor([1, 2]),
                "scores": torch.tensor([0.75, 0.25]),
            }
            for image in images
        ]
"""


def png(colour: Any, size: tuple[int, int] = (64, 32), mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size, colour).save(stream, "png")
    return stream.getvalue()


RED, GREEN = png((255, 0, 0)), png((0, 255, 0))


def loaded(handler: Any, code: str, directory: Path, labels: Any = None) -> tuple[Any, Context]:
    (directory / "tiny_vision_model.py").write_text(code)
    if labels:
        (directory / "index_to_name.json").write_text(json.dumps(labels))
    manifest = {"model": {"modelName": "m", "modelFile": "tiny_vision_model.py"}}
    context = Context("m", str(directory), manifest, metrics=HandlerMetrics("m"))
    handler.initialize(context)
    return handler, context


def ask(handler: Any, context: Context, *values: Any, **headers: str) -> list[Any]:
    context.begin([str(i) for i in range(len(values))], [headers for _ in values])
    answers: list[Any] = handler.handle([{"body": value} for value in values], context)
    return answers


def test_a_classifier_names_the_best_classes_first(tmp_path: Path) -> None:
    labels = {"0": "red", "1": ["n1", "green"], "2": "blue"}
    handler, context = loaded(ImageClassifier(), COLOURS, tmp_path, labels)

    red, green = ask(handler, context, bytearray(RED), base64.b64encode(GREEN).decode())
    handler.set_max_result_classes(1)
    [best] = ask(handler, context, RED)

    assert "red" == next(iter(red))
    assert "green" == next(iter(green))
    assert 1 == pytest.approx(sum(red.values()))
    assert ["red"] == list(best)


@pytest.mark.parametrize(
    ("mode", "colour"),
    [("L", 255), ("RGBA", (255, 0, 0, 9)), ("P", 3), ("1", 1), ("LA", (9, 9)), ("I;16", 9)],
)
def test_every_kind_of_image_becomes_three_channels(mode: str, colour: Any, tmp_path: Path) -> None:
    handler, context = loaded(ImageClassifier(), COLOURS, tmp_path)

    [answer] = ask(handler, context, png(colour, mode=mode))

    assert {"0", "1", "2"} == set(answer)


def test_a_tensor_as_nested_lists_is_taken_as_it_is(tmp_path: Path) -> None:
    handler, context = loaded(ImageClassifier(), COLOURS, tmp_path)

    [answer] = ask(handler, context, [[[1.0]], [[0.0]], [[0.0]]])

    assert "0" == next(iter(answer))


def test_an_explanation_has_the_shape_of_the_image(tmp_path: Path) -> None:
    handler, context = loaded(ImageClassifier(), COLOURS, tmp_path)

    [explanation] = ask(handler, context, RED, explain="True")
    values = torch.tensor(explanation)

    assert (3, 224, 224) == values.shape
    assert 0 < values[0].sum()
    assert 0 == values[1:].abs().sum()  # the other channels add nothing to the score of class 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"no image", "is no readable image: of no format that Pillow knows"),
        (RED[:50], "is no readable image"),
        ("%%%", "no base64"),
        ([[1.0], [1.0, 2.0]], "are no tensor"),
        ({"a": 1}, "holds dict; expected an image file"),
        (None, "holds NoneType"),
    ],
)
def test_what_is_no_image_is_refused(value: Any, reason: str, tmp_path: Path) -> None:
    handler, context = loaded(ImageClassifier(), COLOURS, tmp_path)

    with pytest.raises(RequestError, match=reason):
        ask(handler, context, value)


def test_images_of_different_sizes_are_no_batch_without_a_resize(tmp_path: Path) -> None:
    handler, context = loaded(VisionHandler(), COLOURS, tmp_path)

    with pytest.raises(RequestError, match=r"must have one shape, got \(3, 32, 64\), \(3, 4, 4\)"):
        ask(handler, context, RED, png((0, 0, 0), (4, 4)))


def test_a_detector_finds_boxes_in_images_of_any_size(tmp_path: Path) -> None:
    handler, context = loaded(ObjectDetector(), BOXES, tmp_path, {"1": "cat", "2": "dog"})

    answers = ask(handler, context, RED, png((0, 0, 0), (8, 4)))
    handler.threshold = 0.1
    [all_of_them] = ask(handler, context, RED)

    assert [
        [{"cat": [0.0, 0.0, 64.0, 32.0], "score": 0.75}],
        [{"cat": [0.0, 0.0, 8.0, 4.0], "score": 0.75}],
    ] == answers
    assert ["cat", "dog"] == [next(iter(each)) for each in all_of_them]


def test_a_segmenter_names_the_class_of_every_pixel(tmp_path: Path) -> None:
    handler, context = loaded(ImageSegmenter(), PIXELS, tmp_path)

    red, green = ask(handler, context, RED, GREEN)

    assert (224, 224, 2) == torch.tensor(red).shape
    assert {0.0} == {pair[0] for row in red for pair in row}
    assert {1.0} == {pair[0] for row in green for pair in row}
    assert all(1 / 3 < pair[1] <= 1 for pair in red[0])


def test_tensors_in_tensors_out(tmp_path: Path) -> None:
    handler, context = loaded(DenseNetHandler(), COLOURS, tmp_path)
    stream = io.BytesIO()
    torch.save(torch.ones(3, 2, 2), stream)

    [answer] = ask(handler, context, stream.getvalue())

    assert [10.0, 10.0, 10.0] == answer.tolist()
    with pytest.raises(RequestError, match="holds no tensor"):
        ask(handler, context, b"no tensor")


def test_the_steps_scale_and_cut() -> None:
    image = Image.new("RGB", (400, 100))

    assert (1024, 256) == Resize(256)(image).size
    assert (224, 224) == CenterCrop(224)(image).size
    assert (3, 224, 224) == imagenet_steps()(image).shape
    assert [0.0, 1.0] == ToTensor()(Image.frombytes("L", (2, 1), b"\x00\xff")).flatten().tolist()


def test_a_bomb_is_refused_unless_the_limit_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)

    with pytest.raises(RequestError, match="too large") as raised:
        open_image(RED)
    without_limit = open_image(RED, limit_pixels=False)

    assert 413 == raised.value.status
    assert (64, 32) == without_limit.size
