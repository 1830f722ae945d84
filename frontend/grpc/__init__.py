"""gRPC: TorchServe's services, on the same core as HTTP. Imported only where gRPC is served."""
