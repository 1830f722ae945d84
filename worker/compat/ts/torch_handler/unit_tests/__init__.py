"""``ts.torch_handler.unit_tests``, as handlers import it."""
