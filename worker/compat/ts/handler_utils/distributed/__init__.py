"""``ts.handler_utils.distributed``, as handlers import it."""
