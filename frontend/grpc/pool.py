"""The pool of our own message types, apart from the one that clients' packages share."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
"""Of the protocols whose names clients define too: one process can have both."""
