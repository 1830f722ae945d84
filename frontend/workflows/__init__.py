"""Workflows: several models and functions behind one address."""
