"""Tasks of images, sound, and models with an encoder and a decoder, against transformers itself."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from tests.handlers.serving import ask, load
from tests.media_models import image, save, tone, wav

from marserve.archiver.errors import ConfigError, HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.transformer import TransformerHandler

Media = Callable[[str], Path]
LIBRARY: Any = transformers  # its own types are about how it is called by name
SHORT = {"max_new_tokens": 8}


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Media:
    """Returns the directory of a tiny model: kind -> Path."""
    built: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in built:
            built[kind] = save(kind, tmp_path_factory.mktemp(kind))
        return built[kind]

    return get


class TestImages:
    def test_answers_are_those_of_the_pipeline(self, media: Media) -> None:
        handler = load(media("vit"))
        pictures = [image(), image((10, 200, 90), (31, 64))]

        answers = ask(handler, pictures)

        processor = LIBRARY.AutoImageProcessor.from_pretrained(media("vit"), backend="pil")
        classify = LIBRARY.pipeline(
            "image-classification",
            model=handler.model,
            image_processor=processor,
        )
        for picture, answer in zip(pictures, answers, strict=True):
            expected = classify(Image.open(io.BytesIO(picture)))
            assert [each["label"] for each in expected] == [each["label"] for each in answer]
            assert [each["score"] for each in expected] == pytest.approx(
                [each["score"] for each in answer], abs=1e-5
            )

    def test_an_image_may_come_in_several_ways(self, media: Media) -> None:
        handler = load(media("vit"), top_k=2)
        encoded = base64.b64encode(image()).decode()

        first, *others = ask(
            handler,
            [
                bytearray(image()),
                encoded,
                f"data:image/png;base64,{encoded}",
                {"image": encoded},
                {"b64": encoded},
                b'{"image": "' + encoded.encode() + b'"}',
            ],
        )

        assert len(first) == 2
        for other in others:
            assert [each["label"] for each in first] == [each["label"] for each in other]

    def test_a_forms_fields_are_read(self, media: Media) -> None:
        handler = load(media("vit"))
        handler.context.begin(["r"], [{"explain": "False"}])

        (answer,) = handler.handle([{"image": image(), "top_k": b"3"}], handler.context)

        assert len(answer) == 3

    def test_what_is_no_image_fails_alone(self, media: Media) -> None:
        bad = [b"GIF89a", "no base64!", {"picture": ""}, {"image": [1]}, b"", b"{", {"image": 1}]

        *refused, answer = ask(load(media("vit")), [*bad, image()])

        assert all(isinstance(each, RequestError) and each.status == 400 for each in refused)
        assert isinstance(answer, list)

    def test_without_a_processor_it_does_not_load(self, media: Media, tmp_path: Path) -> None:
        directory = shutil.copytree(media("vit"), tmp_path / "model")
        (directory / "preprocessor_config.json").unlink()

        with pytest.raises(HandlerLoadError, match="preprocessor_config"):
            load(directory)


class TestLabelledSpeech:
    def test_answers_are_those_of_the_pipeline(self, media: Media) -> None:
        handler = load(media("wav2vec2"))
        sounds = [tone(1.0), tone(0.5, hertz=90), tone(1.0, hertz=1000)]

        answers = ask(handler, [wav(sound) for sound in sounds])

        recognize = _recognizer(handler)
        for sound, answer in zip(sounds, answers, strict=True):
            samples = handler.task.samples({"audio": wav(sound)})  # type: ignore[attr-defined]
            assert recognize(samples) == answer
            assert answer["text"]

    def test_sound_may_come_in_several_ways(self, media: Media) -> None:
        handler = load(media("wav2vec2"))
        file = wav(tone(0.4))
        array = [round(each * 32767) / 32768 for each in tone(0.4)]

        answers = ask(
            handler,
            [
                bytearray(file),
                base64.b64encode(file).decode(),
                {"audio": base64.b64encode(file).decode()},
                {"array": array, "sampling_rate": 16000},
                wav(tone(0.4), channels=2),
            ],
        )

        assert answers == [answers[0]] * 5

    def test_what_is_no_sound_fails_alone(self, media: Media) -> None:
        file = wav(tone(0.4))
        bad = [
            b"ID3 an mp3",
            file[:30],
            wav([]),
            wav(tone(0.01)),
            {"array": [0.0] * 9000},
            {"array": ["a"], "sampling_rate": 16000},
            {"array": [[[0.0]]], "sampling_rate": 16000},
            {"audio": 1},
        ]

        *refused, answer = ask(load(media("wav2vec2")), [*bad, file])

        assert all(isinstance(each, RequestError) and each.status == 400 for each in refused)
        assert answer["text"]


class TestWhisper:
    def test_answers_are_those_of_the_library(self, media: Media) -> None:
        handler = load(media("whisper"), generation=SHORT)
        file = wav(tone(1.0))
        encoded = base64.b64encode(file).decode()
        french = {"audio": encoded, "language": "fr", "task": "translate"}

        answers = ask(handler, [file, french, {"audio": encoded, "max_new_tokens": 3}])

        expected = [
            _written(handler, file, **SHORT),
            _written(handler, file, **SHORT, language="fr", task="translate"),
            _written(handler, file, max_new_tokens=3),
        ]
        assert [{"text": text} for text in expected] == answers
        assert all(expected)

    def test_a_long_recording_is_heard_in_parts(self, media: Media) -> None:
        handler = load(media("whisper"), generation=SHORT)
        samples = tone(2.5)

        (whole,) = ask(handler, [wav(samples)])

        parts = ask(handler, [wav(samples[:32000]), wav(samples[32000:])])
        assert "".join(part["text"] for part in parts) == whole["text"]

    def test_what_is_not_known_is_refused(self, media: Media) -> None:
        encoded = base64.b64encode(wav(tone(0.2))).decode()
        handler = load(media("whisper"), generation=SHORT)

        refused = ask(
            handler,
            [{"audio": encoded, "language": "xx"}, {"audio": encoded, "task": "sing"}, b"no sound"],
        )

        assert all(isinstance(each, RequestError) for each in refused)


class TestTextToText:
    TEXTS = ("the film is good", "it was bad in new york : the film")

    @pytest.mark.parametrize("kind", ["t5", "bart"])
    @pytest.mark.parametrize("mode", ["summarization", "translation"])
    def test_answers_are_those_of_the_library(self, media: Media, kind: str, mode: str) -> None:
        handler = load(media(kind), mode=mode, generation=SHORT)
        prefix = "summarize : " if (kind, mode) == ("t5", "summarization") else ""
        forced = 1 if kind == "bart" else 0  # the library counts the first word, which is forced

        answers = ask(handler, list(self.TEXTS))

        for text, answer in zip(self.TEXTS, answers, strict=True):
            inputs = handler.tokenizer(
                prefix + text, return_tensors="pt", return_token_type_ids=False
            )
            module: Any = handler.model
            ids = module.generate(**inputs, max_new_tokens=8 + forced, do_sample=False)
            assert handler.tokenizer.decode(ids[0], skip_special_tokens=True) == answer
        assert any(answers)

    def test_a_configured_prefix_is_put_first(self, media: Media) -> None:
        plain = load(media("t5"), mode="translation", generation=SHORT)
        prefixed = load(media("t5"), mode="translation", generation=SHORT, prefix="translate : ")

        assert ask(plain, ["translate : the film"]) == ask(prefixed, ["the film"])

    def test_each_request_has_its_own_parameters(self, media: Media) -> None:
        handler = load(media("t5"), generation=SHORT)
        text = self.TEXTS[0]

        long, short, drawn, again, refused = ask(
            handler,
            [
                text,
                {"text": text, "max_new_tokens": 2},
                {"text": text, "do_sample": True, "seed": 3, "temperature": 9.0},
                {"text": text, "do_sample": True, "seed": 3, "temperature": 9.0},
                {"text": text, "beams": 4},
            ],
        )

        assert long.startswith(short)
        assert long != short
        assert drawn == again
        assert drawn != long
        assert isinstance(refused, RequestError)

    def test_other_sources_are_refused(self, media: Media) -> None:
        with pytest.raises(ConfigError, match="save_mode: pretrained"):
            load(media("t5"), mode="summarization", save_mode="torchscript")


def _recognizer(handler: TransformerHandler) -> Any:
    return LIBRARY.pipeline(
        "automatic-speech-recognition",
        model=handler.model,
        tokenizer=handler.tokenizer,
        feature_extractor=handler.task.processor,  # type: ignore[attr-defined]
    )


def _written(handler: TransformerHandler, file: bytes, **options: Any) -> str:
    task: Any = handler.task
    features = task.features(task.samples({"audio": file}), "input_features")
    module: Any = handler.model
    with torch.no_grad():
        ids = module.generate(features[None], **options)
    text: str = handler.tokenizer.decode(ids[0], skip_special_tokens=True)
    return text
