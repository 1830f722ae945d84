"""Everything of transformers is Any to pyright: its own index imports all of its 2,800 files.

mypy reads the annotations of the library itself.
"""

from typing import Any

def __getattr__(name: str) -> Any: ...
