"""The section ``handler`` of model-config.yaml: the keys of the transformer handler."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from marserve.archiver.schema import Natural, Positive

Task = Literal[
    "sequence_classification",
    "token_classification",
    "question_answering",
    "text_generation",
    "fill_mask",
    "zero_shot_classification",
    "image_classification",
    "automatic_speech_recognition",
    "summarization",
    "translation",
    "feature_extraction",
    "sentence_similarity",
]
SaveMode = Literal["pretrained", "torchscript", "onnx", "openvino", "aot_inductor", "exported"]
Quantization = Literal["int8_dynamic", "int8_weight_only", "float8_dynamic"]


class Explain(Struct, frozen=True, kw_only=True):
    """How explanations are computed.

    Args:
        method: Name of the method; None for layer integrated gradients.
        n_steps: Steps of the integral.
        internal_batch_size: Rows that go through the model at once.
        words: Whether answers have whole words beside the tokens.
        time_limit_ms: Milliseconds that the explanations of one batch may take; None for any.
    """

    method: Literal["layer_integrated_gradients", "saliency", "occlusion"] | None = None
    n_steps: Positive | None = None
    internal_batch_size: Positive | None = None
    words: bool | None = None
    time_limit_ms: Positive | None = None


class HandlerOptions(Struct, frozen=True, kw_only=True):
    """The ``handler`` section: the transformer handler's keys; ``extra`` has what else is there.

    Args:
        max_length: Longest input in tokens; longer ones are truncated.
        embedding_name: Attribute of the model that holds the embeddings, such as ``bert``.
        generation: Arguments of text generation, such as ``max_new_tokens``.
        save_mode: What kind of file the model is run from; None to tell by its name.
        compile_cache: Directory where compiled code is kept; None for PyTorch's own.
        compile_in_background: Whether the model answers eagerly until it is compiled.
        quantization: Numbers of fewer bits; which ones a mode has, ``execution`` says.
        top_k: Number of classes in an answer; None for the best one alone, as a plain text.
        pooling: How the vectors of a text's tokens become one: their mean, the first token's, or
            not at all.
        normalize: Whether vectors are brought to a length of one.
        prefix: Put before every text, as some models that summarize or translate want it.
        extra: Keys that the schema does not know; they belong to the handler's author.
    """

    model_name: str | None = None
    mode: Task | None = None
    do_lower_case: bool | None = None
    num_labels: Natural | None = None
    save_mode: SaveMode | None = None
    quantization: Quantization | None = None
    max_length: Positive | None = None
    captum_explanation: bool | None = None
    embedding_name: str | None = None
    better_transformer: bool | None = field(name="BetterTransformer", default=None)
    model_parallel: bool | None = None
    hardware: str | None = None
    batch_size: Positive | None = None
    profile: bool | None = None
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = None
    attn_implementation: str | None = None
    compile_cache: str | None = None
    compile_in_background: bool | None = None
    generation: dict[str, Any] | None = None
    explain: Explain | None = None
    top_k: Positive | None = None
    pooling: Literal["mean", "cls", "none"] | None = None
    normalize: bool | None = None
    prefix: str | None = None
    extra: dict[str, Any] = {}
