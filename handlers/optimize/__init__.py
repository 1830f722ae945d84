"""Optimize: every mode of an archive measured against eager, and the best one found."""
