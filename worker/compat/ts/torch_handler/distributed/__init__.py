"""``ts.torch_handler.distributed``, as handlers import it."""
