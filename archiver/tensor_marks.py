"""Two words that server and handlers share: what marks a part, and an answer, as tensors."""

MARK = "V2 "
"""Media types that begin so stand for tensors, ``V2 FP32 2,3``; a client's never have capitals."""
LAYOUT = "V2-Outputs"
"""Header of an answer that says, as JSON, which tensors its body consists of."""
