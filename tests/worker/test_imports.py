from __future__ import annotations

from marserve.worker.imports import mentioned


def test_imports_are_found_wherever_they_stand() -> None:
    source = (
        "import json, torch.nn\n"
        "from transformers import AutoModel, AutoTokenizer as T\n"
        "class H:\n"
        "    def initialize(self, ctx):\n"
        "        from PIL import Image\n"
        "        from .torch import nothing\n"
        "        import torchlike\n"
    )

    assert list(mentioned(source)) == [
        ("torch.nn", []),
        ("transformers", ["AutoModel", "AutoTokenizer"]),
        ("PIL", ["Image"]),
    ]


def test_a_broken_file_mentions_nothing() -> None:
    assert list(mentioned("import torch\ndef (")) == []
    assert list(mentioned("import torch\x00")) == []
