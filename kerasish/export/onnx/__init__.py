"""ONNX: models written as ONNX files, and ONNX files read as models."""
