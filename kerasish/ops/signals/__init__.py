"""Signal processing: Fourier transforms and window functions."""
