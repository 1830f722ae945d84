"""``ts.utils``, as handlers import it."""
