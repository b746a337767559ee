"""Fused loops: what they compute (`description`), how it becomes LLVM IR (`generate`)."""
