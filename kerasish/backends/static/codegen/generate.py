"""Kernel -> LLVM IR: the worker for each thread's share, the closing part, the entry function.

`generate(kernel, symbol, target)` returns the text of `i32 symbol(ptr arguments)`, the function of
a record. The code contains no addresses: it reaches everything through the argument block (see
`arguments`).
"""

from __future__ import annotations

from kerasish.backends.static.codegen import arguments as words
from kerasish.backends.static.codegen.closing import Closing
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.codegen.worker import Worker
from kerasish.backends.static.machine.assembly import Target, entry_function


def generate(kernel: Kernel, symbol: str, target: Target) -> tuple[str, set[str]]:
    """The LLVM IR of a kernel's functions, and the intrinsics to declare.

    Args:
        symbol: name of the record's function, `i32 symbol(ptr arguments)`: 0, or a status.
    """
    plan = plan_loops(kernel)
    worker = Worker(plan, target)
    parts = [
        f"define internal void @{symbol}.worker(ptr %args, i64 %t, i64 %n) #0 "
        f"{{\n{worker.write()}\n}}"
    ]
    declared = set(worker.w.declared)
    closing_call = ""
    at_status = f"  %status.at = getelementptr i64, ptr %args, i64 {words.STATUS}\n"
    if Closing.needed(plan):
        closing = Closing(plan, target)
        parts.append(
            f"define internal void @{symbol}.closing(ptr %args) #0 {{\n{closing.write()}\n}}"
        )
        declared |= closing.w.declared
        closing_call = f"  call void @{symbol}.closing(ptr %args)\n"
    before = f"{at_status}  store i64 0, ptr %status.at, align 8\n"
    after = f"""{closing_call}  %status = load i64, ptr %status.at, align 8
  %code = trunc i64 %status to i32
  ret i32 %code"""
    parts.append(entry_function(symbol, before, after))
    return "\n".join(parts), declared
