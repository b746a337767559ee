"""File formats: model archives, weights, legacy HDF5 models, safetensors, resume states."""
