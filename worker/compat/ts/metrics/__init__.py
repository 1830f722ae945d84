"""``ts.metrics``, as handlers import it."""
