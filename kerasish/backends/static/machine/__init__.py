"""The machine: LLVM's JIT, machine code in memory and files, guard pages."""
