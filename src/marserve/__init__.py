"""marserve: serves PyTorch models packed as ``.mar`` archives, over HTTP, from worker processes."""

__version__ = "0.1.0"
