"""HTTP/2, the server's side of it, as gRPC needs it: on asyncio, in callbacks."""
