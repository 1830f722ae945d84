"""``ts``: the names that handlers written for TorchServe import; all of them live elsewhere."""

from .version import __version__

__all__ = ["__version__"]
