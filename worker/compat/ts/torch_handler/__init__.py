"""``ts.torch_handler``, as handlers import it."""
