"""HDF5: a bounded reader of our own for untrusted files, and a writer that cannot fail halfway."""
