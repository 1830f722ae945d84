"""gRPC: TorchServe's services and V2, on the core of HTTP. Imported only where gRPC is served."""
