"""Pipelines made from ``parameters.extra``: where the model is, and what runs it."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.mlserver_settings import MODEL_FILE

_log = logging.getLogger(__name__)
_WRITTEN = ("summarization", "text2text-generation", "translation")
_WHERE = f"{MODEL_FILE}: $.parameters.extra"
_PROCESSORS = {
    "image_processor": ("preprocessor_config.json", "processor_config.json"),
    "feature_extractor": ("preprocessor_config.json",),
}


def media_of(task: str) -> str | None:
    """Returns ``image`` or ``audio`` for a task whose requests are files; None for texts."""
    if "image" in task or task in ("object-detection", "depth-estimation", "mask-generation"):
        return "image"
    return "audio" if "audio" in task or "speech" in task else None


def task_of(extra: dict[str, Any]) -> str:
    """Returns the task with its suffix."""
    task = str(extra["task"])
    return task + str(extra.get("task_suffix") or "") if task == "translation" else task


def find_model(name: str | None, uri: str | None, directory: Path, key: str) -> Path:
    """Returns the folder of a saved model.

    Args:
        name: A path, relative to the settings' folder, or the name of an installed package that
            holds the model; None for ``uri``.
        uri: ``parameters.uri``; None for the settings' own folder.
        directory: Of the settings.
        key: That gave the name, for messages.

    Raises:
        HandlerLoadError: If there is no such folder; nothing is fetched from a hub.
    """
    given = name or (uri.removeprefix("file://") if uri else ".")
    path = directory / given
    if (path / "config.json").is_file() or (path / "tokenizer_config.json").is_file():
        return path.resolve()
    if (found := _in_package(given)) is not None:
        return found
    where = f"{_WHERE}.{key}" if name else f"{MODEL_FILE}: $.parameters.uri"
    raise HandlerLoadError(
        f"{where}: {given!r} is no folder with a config.json, nor an installed package with one;"
        " models are not fetched from a hub: save it with save_pretrained beside the file"
    )


def build_pipeline(extra: dict[str, Any], uri: str | None, directory: Path, batch_size: int) -> Any:
    """Returns the pipeline, on the device that was asked for, whose calls can be joined.

    Args:
        extra: ``parameters.extra``.
        uri: ``parameters.uri``.
        directory: Of the settings.
        batch_size: Rows that go through the model together.

    Raises:
        HandlerLoadError: If task or model cannot be served.
    """
    from transformers.utils import logging as messages

    messages.set_verbosity_error()
    messages.disable_progress_bar()
    from marserve.handlers.mlserver.huggingface.joining import joinable

    model = find_model(extra.get("pretrained_model"), uri, directory, "pretrained_model")
    name = extra.get("pretrained_tokenizer")
    tokenizer = find_model(name, uri, directory, "pretrained_tokenizer") if name else model
    try:
        pipe = _build(task_of(extra), model, tokenizer, extra)
    except (KeyError, ValueError, OSError) as error:
        raise HandlerLoadError(f"{_WHERE}: {error}") from error
    pipe.__class__ = joinable(type(pipe))
    pipe._batch_size = batch_size if _pads(pipe) else 1
    return pipe


def _build(task: str, model: Path, tokenizer: Path, extra: dict[str, Any]) -> Any:
    device = _device(extra.get("device"))
    made: Any = str(model)
    if extra.get("optimum_model"):
        from marserve.handlers.mlserver.huggingface.graph import load_graph, runs_as_graph

        if runs_as_graph(task):
            made, device = load_graph(task, model), "cpu"
        else:
            text = "optimum_model: %s writes its answers step by step, and runs in PyTorch"
            _log.warning(text, task)
    more = dict(extra.get("model_kwargs") or {})
    if task == "question-answering" or task.startswith(_WRITTEN):
        return _of_our_own(task, made, tokenizer, device, more)
    import transformers

    make: Any = transformers.pipeline
    pieces: dict[str, Any] = {}
    if _has(tokenizer, "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        pieces["tokenizer"] = str(tokenizer)
    if not isinstance(made, str):
        for piece, files in _PROCESSORS.items():
            if _has(model, *files):
                pieces[piece] = str(model)
    return make(task, model=made, device=device, model_kwargs=more, **pieces)


def _of_our_own(task: str, made: Any, tokenizer: Path, device: Any, more: dict[str, Any]) -> Any:
    """A task that transformers has no pipeline for."""
    import transformers

    from marserve.handlers.mlserver.huggingface.answering import QuestionAnswering
    from marserve.handlers.mlserver.huggingface.written_tasks import TextToText

    answers = task == "question-answering"
    auto = "AutoModelForQuestionAnswering" if answers else "AutoModelForSeq2SeqLM"
    if isinstance(made, str):
        made = getattr(transformers, auto).from_pretrained(made, local_files_only=True, **more)
    kind: Any = QuestionAnswering if answers else TextToText
    words = transformers.AutoTokenizer.from_pretrained(str(tokenizer), local_files_only=True)
    return kind(model=made.eval(), tokenizer=words, task=task, device=device)


def _device(given: Any) -> Any:
    return "cpu" if given is None or given == -1 else given


def _has(folder: Path, *names: str) -> bool:
    return any((folder / name).is_file() for name in names)


def _in_package(name: str) -> Path | None:
    """The folder of a package, or one directly in it, that holds a saved model."""
    if not name.replace("-", "_").isidentifier():
        return None
    spec = importlib.util.find_spec(name.replace("-", "_"))
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        root = Path(place)
        folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
        found = next((each for each in folders if _has(each, "config.json")), None)
        if found is not None:
            return found
    return None


def _pads(pipe: Any) -> bool:
    """Rows of several lengths need a token to pad with; any will do under the mask."""
    tokenizer = pipe.tokenizer
    if tokenizer is None:
        return True
    if tokenizer.pad_token_id is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer.pad_token_id is not None
