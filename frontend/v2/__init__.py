"""The Open Inference Protocol (V2): tensors as clients write them. Pure functions, no I/O."""
