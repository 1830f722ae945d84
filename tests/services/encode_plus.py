"""A handler in the style of TorchServe's Hugging Face example: it calls what transformers 5 lacks.

The body is a text; the answer ``{"label", "version"}``, the version that of transformers.
"""

import torch
import transformers
from ts.torch_handler.base_handler import BaseHandler


class TransformersHandler(BaseHandler):
    def initialize(self, ctx):
        directory = ctx.system_properties["model_dir"]
        settings = ctx.model_yaml_config["handler"]
        self.max_length = settings["max_length"]
        auto = transformers.AutoModelForSequenceClassification
        self.model = auto.from_pretrained(directory).eval()
        self.tokenizer = transformers.BertTokenizer.from_pretrained(directory, do_lower_case=True)
        self.initialized = True

    def preprocess(self, requests):
        texts = [row.get("data") or row.get("body") for row in requests]
        texts = [t.decode() if isinstance(t, (bytes, bytearray)) else t for t in texts]
        encoded = [
            self.tokenizer.encode_plus(
                text,
                max_length=self.max_length,
                padding="max_length",
                truncation=True,
                add_special_tokens=True,
                return_tensors="pt",
            )
            for text in texts
        ]
        return [
            torch.cat([each[key] for each in encoded]) for key in ("input_ids", "attention_mask")
        ]

    def inference(self, inputs):
        with torch.inference_mode():
            return self.model(*inputs).logits

    def postprocess(self, logits):
        labels = logits.argmax(1).tolist()
        return [{"label": label, "version": transformers.__version__} for label in labels]
