"""``ts.version``: the release whose names these are."""

__version__ = "0.12.0"
