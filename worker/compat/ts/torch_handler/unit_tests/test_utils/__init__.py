"""``ts.torch_handler.unit_tests.test_utils``, as handlers import it."""
