"""One rank of a test: python ranks.py FOLDER; rank 0 prints how far it is from one process."""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers

from marserve.handlers.runners import load_runner
from marserve.handlers.runners.base import INPUT_NAMES, RunnerOptions
from marserve.handlers.runners.parallel import ParallelRunner

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LENGTHS = (9, 4, 6)


def options_of(case: dict[str, Any]) -> RunnerOptions:
    directory = Path(case["directory"])
    return RunnerOptions(
        directory=directory,
        auto_class=case["auto_class"],
        output_names=tuple(case.get("output_names", ["logits"])),
        device=torch.device("cpu"),
        config=transformers.AutoConfig.from_pretrained(directory),
        parallel=case["parallel"],
        ranks=RANKS,
        decodes=case["decodes"],
        input_names=tuple(case.get("input_names", INPUT_NAMES)),
    )


def inputs_of(names: tuple[str, ...], vocabulary: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    rows, longest = len(LENGTHS), max(LENGTHS)
    mask = (torch.arange(longest) < torch.tensor(LENGTHS)[:, None]).long()
    inputs = {
        "input_ids": torch.randint(5, vocabulary, (rows, longest)) * mask,
        "attention_mask": mask,
        "token_type_ids": torch.zeros_like(mask),
        "decoder_input_ids": torch.zeros((rows, 1), dtype=torch.int64),
    }
    return {name: inputs[name] for name in names}


def generated(runner: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The logits of a few steps, with a row less from the third on."""
    decoder, said = runner.decoder(), []
    logits = decoder.start(inputs)
    for step in range(5):
        said.append(logits[-2:])
        if step == 2:
            decoder.keep(torch.tensor([1, 2]))
            logits = logits[1:]
        logits = decoder.step((torch.arange(len(logits)) * 3 + step * 7 + 5) % logits.shape[-1])
    return torch.stack(said)


def difference(case: dict[str, Any], parallel: ParallelRunner, options: RunnerOptions) -> float:
    alone = load_runner("eager", replace(options, parallel=None, ranks=1))
    inputs = inputs_of(parallel.input_names, options.config.vocab_size)
    if case["decodes"]:
        pairs = [(generated(parallel, inputs), generated(alone, inputs)) for _ in range(2)]
    else:
        ours, theirs = parallel(inputs), alone(inputs)
        pairs = [(ours[name], theirs[name]) for name in options.output_names]
    # Rows that are all alike would be equal whatever the ranks did.
    spread = [theirs.std(0).max().item() for _, theirs in pairs]
    assert min(spread) > 1e-2, (case["name"], spread)
    return max((ours - theirs).abs().max().item() for ours, theirs in pairs)


def private_bytes() -> int:
    """Memory of this process that is not a file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for case in json.loads((folder / "cases.json").read_text()):
        options, before = options_of(case), private_bytes()
        runner = load_runner("parallel", options)
        assert isinstance(runner, ParallelRunner)
        runner.warm_up()
        if case.get("weigh"):
            (folder / f"bytes-{RANK}").write_text(str(private_bytes() - before))
        elif RANK == 0:
            found[case["name"]] = difference(case, runner, options)
        if RANK == 0:
            runner.end()
        else:
            runner.follow()
    if RANK == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # an orderly end of the interpreter would wait for the other ranks
