"""``ts.torch_handler.request_envelope``, as handlers import it."""
