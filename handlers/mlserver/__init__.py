"""MLServer's runtimes: what their code imports, and the handler that hosts them."""
