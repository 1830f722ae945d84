"""The Open Inference Protocol (V2) over gRPC: GRPCInferenceService, with its extensions."""
