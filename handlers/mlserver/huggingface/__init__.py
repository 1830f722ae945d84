"""MLServer's Hugging Face runtime: transformers pipelines by configuration alone."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the hub's client is imported: before that
