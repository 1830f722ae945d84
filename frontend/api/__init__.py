"""The HTTP surfaces: every one parses to an InferenceRequest and renders Chunks."""
