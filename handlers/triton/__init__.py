"""Triton's backends: models of its repositories, run in our workers."""
