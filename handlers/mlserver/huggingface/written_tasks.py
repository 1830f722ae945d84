"""Tasks of an encoder with a decoder, which transformers has no pipelines for any more."""

from __future__ import annotations

from typing import Any

from transformers import Pipeline

_NAMES = {"summarization": "summary", "text2text-generation": "generated"}


_Pipeline: Any = Pipeline  # what it says of its attributes is not what its subclasses have


class TextToText(_Pipeline):  # type: ignore[misc]
    """A text in, a text out: summarization, translation and text2text-generation."""

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _pipeline_calls_generate = True

    def _sanitize_parameters(
        self,
        truncation: Any = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        return_tensors: bool = False,
        return_text: bool = True,
        **generation: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        before = {"truncation": truncation, "src_lang": src_lang, "tgt_lang": tgt_lang}
        after: dict[str, Any] = {"tensors": True} if return_tensors else {}
        if clean_up_tokenization_spaces is not None:
            after["clean"] = clean_up_tokenization_spaces
        return {k: v for k, v in before.items() if v is not None}, generation, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns one dict a text; a list for one text as well."""
        found = super().__call__(*args, **kwargs)
        inputs = args[0] if args else kwargs.get("inputs")
        if isinstance(inputs, list) and all(len(each) == 1 for each in found):
            return [each[0] for each in found]
        return found

    def preprocess(self, input_: Any, **options: Any) -> Any:
        """Returns the tokens of a text, behind the words that the model expects in front of it."""
        truncation = options.get("truncation", False)
        text = f"{self._task_options().get('prefix') or ''}{input_}"
        languages = {k: v for k, v in options.items() if k != "truncation"}
        builder = getattr(self.tokenizer, "_build_translation_inputs", None)
        if languages and builder is not None:
            return builder(text, return_tensors="pt", truncation=truncation, **languages)
        tokens = self.tokenizer(text, return_tensors="pt", truncation=truncation)
        tokens.pop("token_type_ids", None)
        return tokens

    def _forward(self, input_tensors: Any, **generation: Any) -> dict[str, Any]:
        rows = input_tensors["input_ids"].shape[0]
        known = {"prefix", "early_stopping_patience"}
        own = {k: v for k, v in self._task_options().items() if k not in known}
        settings = self._prepare_generate_kwargs({**own, **generation})
        ids = self.model.generate(**input_tensors, **settings)
        return {"output_ids": ids.reshape(rows, ids.shape[0] // rows, *ids.shape[1:])}

    def postprocess(
        self, model_outputs: Any, tensors: bool = False, clean: bool | None = None
    ) -> list[dict[str, Any]]:
        """Returns what was written, once for each sequence that was asked for."""
        name = _NAMES.get(self.task, "translation")
        if tensors:
            return [{f"{name}_token_ids": ids} for ids in model_outputs["output_ids"][0]]
        more = {} if clean is None else {"clean_up_tokenization_spaces": clean}
        return [
            {f"{name}_text": self.tokenizer.decode(ids, skip_special_tokens=True, **more)}
            for ids in model_outputs["output_ids"][0]
        ]

    def _task_options(self) -> dict[str, Any]:
        """What the model's configuration says of the task, by its name."""
        given = getattr(self.model.config, "task_specific_params", None) or {}
        options: dict[str, Any] = given.get(self.task) or {}
        return options
