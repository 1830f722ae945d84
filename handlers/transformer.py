"""The generalized transformer handler: one handler for all tasks and modes of execution.

Its settings are the ``handler`` section of model-config.yaml, with the keys of TorchServe's Hugging
Face example. Everything it loads is in the archive; nothing is fetched.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.execution import Execution, find_execution
from marserve.archiver.handler_options import HandlerOptions
from marserve.archiver.model_config import ModelConfig, parse_model_config
from marserve.handlers import pretrained
from marserve.handlers.base import BaseHandler
from marserve.handlers.errors import RequestError
from marserve.handlers.explain import GRADIENT_FREE, Explainer
from marserve.handlers.explain_html import CONTENT_TYPE, render, wants_html
from marserve.handlers.explain_words import without_words
from marserve.handlers.freed_memory import keep_freed_memory
from marserve.handlers.labels import FILE_NAME, class_names, load_label_mapping
from marserve.handlers.runners import load_runner
from marserve.handlers.runners.base import Runner, RunnerOptions
from marserve.handlers.tasks import find_task
from marserve.handlers.tasks.base import Item, Task, TaskSettings
from marserve.handlers.timing import timed

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Batch:
    """The requests of one batch between the stages.

    Args:
        results: One place a request; a malformed one already holds its error.
        rows: Places of the well-formed requests.
        items: Their fields.
        tokens: Their tokens, or pixels, or sound; None if there are none.
        outputs: What the model said of them.
    """

    results: list[Any]
    rows: list[int]
    items: list[Item]
    tokens: Any = None
    outputs: Any = None

    def merge(self, answers: list[Any]) -> list[Any]:
        """Returns one result a request, the answers at the places of their requests."""
        for row, answer in zip(self.rows, answers, strict=True):
            self.results[row] = answer
        return self.results


class TransformerHandler(BaseHandler):
    """Serves a Hugging Face model for the task and in the mode that its configuration names.

    Attributes:
        options: The ``handler`` section.
        tokenizer: The archive's tokenizer; None if the task needs none.
        task: Parses requests and forms answers.
        runner: Runs the model.
    """

    options: HandlerOptions
    tokenizer: Any
    task: Task[Any]
    runner: Runner
    _explainer: Explainer | None = None

    def initialize(self, context: Any) -> None:
        """Loads tokenizer, labels and model from the archive and warms the model up.

        Raises:
            HandlerLoadError: If something is missing or does not fit.
            ConfigError: If model-config.yaml is wrong.
        """
        self._begin(context)
        keep_freed_memory()
        directory = Path(context.system_properties["model_dir"])
        config = parse_model_config(self.model_yaml_config)
        self.options = config.handler
        model_config = pretrained.load_config(directory)
        task_name = pretrained.find_mode(self.options.mode, model_config)
        task_class = find_task(task_name).fitting(model_config)
        serialized_file = self.manifest["model"].get("serializedFile")
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        execution = find_execution(config, serialized_file, task_name, ranks=ranks)
        if execution.parallel and execution.ranks < 2:
            _log.warning("model_parallel: true, but no second GPU to share with: one process")
        self._execution = execution
        self.tokenizer = task_class.load_tokenizer(directory, self.options)
        self._runner_options = self._plan(directory, config, execution, model_config, task_class)
        self.runner = load_runner(execution.runner, self._runner_options)
        self.model = self.runner.module or self.runner
        self.mapping = load_label_mapping(directory / FILE_NAME)
        self.task = task_class(
            self._settings(task_class, model_config, directory), self.runner.input_names
        )
        self.runner.warm_up()
        self.initialized = True

    def rank_follower(self) -> Callable[[], None] | None:
        """Returns what the other ranks of this model do, if it is spread over several."""
        follow: Callable[[], None] | None = getattr(self.runner, "follow", None)
        return follow

    @timed
    def preprocess(self, data: list[Any]) -> Batch:
        """Parses the requests and tokenizes the well-formed ones together."""
        batch = Batch([None] * len(data), [], [])
        explaining = self._is_explain()
        for row, value in enumerate(data):
            try:
                item = self.task.parse(self.task.read(value))
                batch.items.append(self.task.check_target(item) if explaining else item)
                batch.rows.append(row)
            except RequestError as error:
                batch.results[row] = error
        if batch.items:
            batch.tokens = self.task.encode(batch.items, offsets=explaining)
        return batch

    @timed
    def inference(self, data: Batch, *args: Any, **kwargs: Any) -> Batch:
        """Runs the model once for the whole batch."""
        if data.tokens is not None:
            data.outputs = self.task.run(self.runner, data.tokens, data.items)
        return data

    @timed
    def postprocess(self, data: Batch) -> list[Any]:
        """Returns one answer a request, or the ``RequestError`` of a malformed one."""
        if data.tokens is None:
            return data.results
        return data.merge(self.task.answers(data.outputs, data.tokens, data.items))

    def explain_handle(self, data_preprocess: Batch, raw_data: list[Any]) -> list[Any]:
        """Returns one explanation a request, or the ``RequestError`` of a malformed one."""
        if data_preprocess.tokens is None:
            return data_preprocess.results
        explanations = self.get_insights(data_preprocess, raw_data)
        pairs = zip(data_preprocess.rows, explanations, strict=True)
        return data_preprocess.merge([self._shown(row, each) for row, each in pairs])

    def get_insights(self, tensor_data: Batch, _: Any, target: Any = 0) -> list[Any]:
        """Returns an explanation of every well-formed request of a batch.

        Raises:
            RequestError: If the task has no explanations, or the archive not what they need.
        """
        if not self.task.explains:
            raise RequestError(
                "this model's task has no explanations: its answer is no single score that words"
                " could be credited with",
                501,
            )
        explainer = self._explainer = self._explainer or self._load_explainer()
        if tensor_data.tokens is None:
            return []
        explainer.begin()
        tokens = tensor_data.tokens.to(explainer.device)
        return self.task.explain(explainer, tokens, tensor_data.items)

    def _plan(
        self,
        directory: Path,
        config: ModelConfig,
        execution: Execution,
        model_config: Any,
        task: type[Task[Any]],
    ) -> RunnerOptions:
        options = self.options
        return RunnerOptions(
            directory=directory,
            auto_class=task.auto_class,
            output_names=task.output_names,
            device=self.device,
            config=model_config,
            weights_file=self.manifest["model"].get("serializedFile"),
            dtype=options.dtype or "auto",
            attn_implementation=options.attn_implementation,
            compile_options=dict(config.pt2.options) if config.pt2 else {},
            transforms=execution.transforms,
            quantization=execution.quantization,
            parallel=execution.parallel,
            ranks=execution.ranks,
            per_token=task.per_token,
            decodes=task.decodes,
            input_names=task.input_names,
            spare_weights=task.spare_weights,
            compile_cache=options.compile_cache,
            compile_in_background=bool(options.compile_in_background),
        )

    def _settings(self, task: type[Task[Any]], model_config: Any, directory: Path) -> TaskSettings:
        options = self.options
        labels: list[str] = []
        if task.labelled:
            pretrained.check_num_labels(options.num_labels, model_config)
            labels = class_names(self.mapping, model_config.id2label)
        return TaskSettings(
            tokenizer=self.tokenizer,
            config=model_config,
            labels=labels,
            max_length=pretrained.find_max_length(options.max_length, model_config, self.tokenizer),
            top_k=options.top_k,
            generation=options.generation or {},
            options=options,
            directory=directory,
            limit_pixels=self.context.system_properties.get("limit_max_image_pixels", True),
        )

    def _shown(self, row: int, explanation: Any) -> Any:
        """An explanation as its client wants to see it: JSON as TorchServe has it, or a page."""
        if not isinstance(explanation, dict):
            return explanation
        context = self.context
        # Behind an envelope several rows may be one request, which has one form for all of them.
        if row < len(context.request_processor) and wants_html(context.get_all_request_header(row)):
            context.set_response_content_type(row, CONTENT_TYPE)
            return render(explanation)
        explain = self.options.explain
        return explanation if explain and explain.words else without_words(explanation)

    def _load_explainer(self) -> Explainer:
        """Gradients need eager weights: the runner's own, else those that the archive has."""
        options = self.options
        model: Any = self.runner
        if options.explain is None or options.explain.method != GRADIENT_FREE:
            model = self._eager_module()
        return Explainer.configured(
            model, options.embedding_name, self.tokenizer.pad_token_id, options.explain
        )

    def _eager_module(self) -> Any:
        from marserve.handlers.runners.weights import load_module

        planned = self._runner_options
        if self.runner.module is not None and planned.quantization is None and planned.ranks == 1:
            return self.runner.module
        begin = time.monotonic()
        try:
            own_weights = self._execution.source == "pretrained"
            beside = replace(planned, weights_file=None, dtype="auto")
            module = load_module(planned if own_weights else beside)
        except HandlerLoadError as error:
            raise RequestError(
                f"explanations need the model's eager weights: {error}; pack them with"
                " --extra-files, or set explain.method: occlusion, which does without them",
                501,
            ) from error
        _log.warning(
            "the first explanation: loaded the model's eager weights, which stay beside its %s form"
            " (%.1f s)",
            self._execution.source if not own_weights else planned.quantization or "parallel",
            time.monotonic() - begin,
        )
        return module
