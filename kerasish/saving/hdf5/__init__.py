"""HDF5: a custom bounded reader for untrusted files, and a writer that cannot fail halfway."""
