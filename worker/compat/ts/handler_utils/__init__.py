"""``ts.handler_utils``, as handlers import it."""
