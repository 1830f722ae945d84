"""``ts.protocol``, as handlers import it."""
