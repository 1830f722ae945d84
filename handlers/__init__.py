"""Handlers: what turns requests into answers inside a worker process."""
