"""Code generation: descriptions of fused loops, products and recurrent cells become LLVM IR."""
