"""A handler as TorchServe users write them: subclass BaseHandler, override what differs."""

import json
from pathlib import Path

import torch
from ts.torch_handler.base_handler import BaseHandler


class WordCountHandler(BaseHandler):
    """Scores a text by the weights of its words, read from `word_weights.json`."""

    def initialize(self, context):
        """Load the weights that were packed as an extra file."""
        properties = context.system_properties
        self.manifest = context.manifest
        weights = Path(properties["model_dir"]) / "word_weights.json"
        self.weights = json.loads(weights.read_text(encoding="utf-8"))
        self.threshold = context.model_yaml_config["handler"]["threshold"]
        self.initialized = True

    def preprocess(self, data):
        """Turn each request of the batch into the weights of its words."""
        rows = []
        for item in data:
            text = item.get("data") or item.get("body")
            if isinstance(text, (bytes, bytearray)):
                text = text.decode("utf-8")
            if isinstance(text, dict):
                text = text["text"]
            words = [word.strip(".,;:!?").lower() for word in text.split()]
            rows.append(torch.tensor([self.weights.get(word, 0.0) for word in words]))
        return rows

    def inference(self, data, *args, **kwargs):
        """Add them up."""
        return [float(row.sum()) for row in data]

    def postprocess(self, data):
        """Answer one JSON object per request, in the order of the batch."""
        return [{"score": round(score, 3), "flagged": score > self.threshold} for score in data]
