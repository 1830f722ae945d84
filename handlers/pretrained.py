"""What the archive of a Hugging Face model says about it: config, tokenizer, mode and lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.pretrained import TASKS, saved_task

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
_DEFAULT_MAX_LENGTH = 512


def load_config(directory: Path) -> Any:
    """Reads the archive's ``config.json``.

    Raises:
        HandlerLoadError: If it is missing, damaged or of a kind that transformers does not know.
    """
    from transformers import AutoConfig

    if not (directory / "config.json").is_file():
        raise HandlerLoadError(
            "the archive has no config.json, which says what kind of model it holds; pack it with"
            " --extra-files config.json"
        )
    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HandlerLoadError(f"config.json: {error}") from error


def load_generation_config(directory: Path, config: Any) -> Any:
    """Reads what the archive says of generation: generation_config.json, else its config.json.

    Raises:
        HandlerLoadError: If it is damaged.
    """
    from transformers import GenerationConfig

    if not (directory / "generation_config.json").is_file():
        return GenerationConfig.from_model_config(config)
    try:
        return GenerationConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HandlerLoadError(f"generation_config.json: {error}") from error


def load_tokenizer(directory: Path, do_lower_case: bool | None = None, *, fast: bool = True) -> Any:
    """Loads the archive's tokenizer.

    Args:
        directory: The unpacked archive.
        do_lower_case: Whether text is lower-cased, for tokenizers that can; None for their own
            setting.
        fast: Whether it must have a fast backend; what only decodes needs none.

    Returns:
        A transformers tokenizer with a padding token.

    Raises:
        HandlerLoadError: If its files are missing or damaged.
    """
    from transformers import AutoTokenizer

    if not any((directory / name).is_file() for name in _TOKENIZER_FILES):
        raise HandlerLoadError(
            "the archive has no tokenizer: expected tokenizer.json (or vocab.txt, or vocab.json and"
            " merges.txt); save it with tokenizer.save_pretrained and pack its files with"
            " --extra-files"
        )
    options = {} if do_lower_case is None else {"do_lower_case": do_lower_case}
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, **options)
    except Exception as error:  # the tokenizers library raises Exception itself
        raise HandlerLoadError(f"the archive's tokenizer cannot be loaded: {error}") from error
    if fast and getattr(tokenizer, "backend_tokenizer", None) is None:
        raise HandlerLoadError(
            f"{type(tokenizer).__name__} has no fast backend; save the tokenizer with a"
            " tokenizer.json and pack that"
        )
    _ensure_padding(tokenizer)
    return tokenizer


def _ensure_padding(tokenizer: Any) -> None:
    """GPT-2 and its like have no padding token; under the mask any token will do."""
    if tokenizer.pad_token_id is None:
        substitute = tokenizer.eos_token or tokenizer.unk_token
        if substitute is None:
            raise HandlerLoadError(
                "the tokenizer has neither a padding nor an end token; set pad_token in"
                " tokenizer_config.json"
            )
        tokenizer.pad_token = substitute


def find_mode(mode: str | None, config: Any) -> str:
    """Returns the task of a model: the configured one, else what its config says it was saved for.

    Raises:
        HandlerLoadError: If neither says.
    """
    if mode is not None:
        return mode
    if (saved := saved_task(getattr(config, "architectures", None) or ())) is not None:
        return saved
    raise HandlerLoadError(
        "model-config.yaml: $.handler.mode: missing, and config.json does not tell; expected one of"
        f" {', '.join(TASKS)}"
    )


def check_num_labels(num_labels: int | None, config: Any) -> None:
    """Compares the configured number of classes with the model's own.

    Raises:
        HandlerLoadError: If they differ.
    """
    if num_labels is not None and num_labels != config.num_labels:
        raise HandlerLoadError(
            f"model-config.yaml: $.handler.num_labels: {num_labels}, but the model has"
            f" {config.num_labels} classes"
        )


def context_length(config: Any) -> int | None:
    """Returns the number of positions that a model has, None if it is not limited."""
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if positions is None or positions <= 0:
        return None
    if "roberta" in config.model_type or config.model_type == "camembert":
        return positions - (config.pad_token_id or 0) - 1  # the first ones stand for padding
    return positions


def find_max_length(max_length: int | None, config: Any, tokenizer: Any) -> int:
    """Returns the longest input in tokens.

    Raises:
        HandlerLoadError: If the configured length is more than the model has positions for.
    """
    positions = context_length(config)
    if max_length is None:
        limit = getattr(tokenizer, "model_max_length", _DEFAULT_MAX_LENGTH)
        return min(positions or _DEFAULT_MAX_LENGTH, int(limit))
    if positions is not None and max_length > positions:
        raise HandlerLoadError(
            f"model-config.yaml: $.handler.max_length: {max_length}, but the model has positions"
            f" for {positions} tokens"
        )
    return max_length
