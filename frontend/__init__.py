"""The server process: surfaces, batching and worker supervision. Never imports torch."""
