"""ONNX files read as models."""
