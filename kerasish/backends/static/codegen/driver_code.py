"""The LLVM code of the driver's own functions: the loop over records, and calls of libraries."""

from __future__ import annotations

from collections.abc import Sequence

from kerasish.backends.static.codegen.kernels import KernelText
from kerasish.backends.static.codegen.vector_math import TABLE_OPENMP
from kerasish.backends.static.machine.assembly import words_of

INTERRUPTED = -1
# Statuses: an index out of range; a condition that does not hold; a strict memory check failed.
OUT_OF_RANGE, UNMET, UNWRITTEN = 2, 1000, 1001

# Runs share(arg, t, n) for t in 0 .. n-1 on OpenMP's threads; arg's first word is the table's
# address. If there are fewer threads than requested, they take several shares each, so that the
# result does not change.
PARALLEL = KernelText(
    f"""define internal void @SYMBOL.share(ptr %job) #0 {{
entry:
{words_of("job", "ptr function", "ptr arg", "i64 n")}
  %table = load ptr, ptr %arg, align 8
  %me.at = getelementptr i64, ptr %table, i64 {TABLE_OPENMP + 1}
  %me.function = load ptr, ptr %me.at, align 8
  %count.at = getelementptr i64, ptr %table, i64 {TABLE_OPENMP + 2}
  %count.function = load ptr, ptr %count.at, align 8
  %me32 = call i32 %me.function()
  %count32 = call i32 %count.function()
  %me = sext i32 %me32 to i64
  %count = sext i32 %count32 to i64
  br label %head
head:
  %t = phi i64 [ %me, %entry ], [ %next, %body ]
  %more = icmp slt i64 %t, %n
  br i1 %more, label %body, label %exit
body:
  call void %function(ptr %arg, i64 %t, i64 %n)
  %next = add i64 %t, %count
  br label %head
exit:
  ret void
}}
define void @SYMBOL(ptr %function, ptr %arg, i64 %n) #0 {{
entry:
  %job = alloca [3 x i64], align 16
  %table = load ptr, ptr %arg, align 8
  %openmp.at = getelementptr i64, ptr %table, i64 {TABLE_OPENMP}
  %openmp = load ptr, ptr %openmp.at, align 8
  %there = icmp ne ptr %openmp, null
  br i1 %there, label %many, label %head
many:
  %arg.at = getelementptr i64, ptr %job, i64 1
  %n.at = getelementptr i64, ptr %job, i64 2
  store ptr %function, ptr %job, align 8
  store ptr %arg, ptr %arg.at, align 8
  store i64 %n, ptr %n.at, align 8
  %n32 = trunc i64 %n to i32
  call void %openmp(ptr @SYMBOL.share, ptr %job, i32 %n32, i32 0)
  ret void
head:
  %t = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %t, %n
  br i1 %more, label %body, label %exit
body:
  call void %function(ptr %arg, i64 %t, i64 %n)
  %next = add i64 %t, 1
  br label %head
exit:
  ret void
}}"""
)

_WALK = """define {linkage}i32 @{name}({arguments}) #0 {{
entry:
{loads}  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %twice = shl i64 %i, 1
{note_time}  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %good
body:
  %at = getelementptr i64, ptr %records, i64 %twice
  %arg.at = getelementptr i64, ptr %at, i64 1
  %function = load ptr, ptr %at, align 8
  %arg = load ptr, ptr %arg.at, align 8
  %status = call i32 %function(ptr %arg)
  %next = add i64 %i, 1
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %head, label %bad
bad:
  store i64 %i, ptr %failed, align 8
  ret i32 %status
good:
  ret i32 0
}}"""


_PLAIN = {
    "linkage": "", "arguments": "ptr %records, i64 %count, ptr %failed", "loads": "",
    "note_time": "",
}  # fmt: skip
RUN = KernelText(_WALK.format(name="SYMBOL", **_PLAIN))
# i32 SYMBOL.walk(records, their number, address for the number of a record that fails)
WALK = _WALK.format(name="SYMBOL.walk", **{**_PLAIN, "linkage": "internal "})

# Words: 0 address of float32 numbers, 1 their number, 2 records that run if one of them is not 0, 3
# their number, 4 records that run if all are 0, 5 their number.
_CHOICE_WORDS = (
    "ptr numbers", "i64 count", "ptr some", "i64 some.count", "ptr none", "i64 none.count",
)  # fmt: skip
CHOOSE = KernelText(
    WALK
    + f"""
define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", *_CHOICE_WORDS)}
  %failed = alloca i64, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %nothing
body:
  %at = getelementptr float, ptr %numbers, i64 %i
  %number = load float, ptr %at, align 4
  %next = add i64 %i, 1
  %counts = fcmp une float %number, 0.0
  br i1 %counts, label %something, label %head
something:
  %status = call i32 @SYMBOL.walk(ptr %some, i64 %some.count, ptr %failed)
  ret i32 %status
nothing:
  %none.status = call i32 @SYMBOL.walk(ptr %none, i64 %none.count, ptr %failed)
  ret i32 %none.status
}}"""
)


def lists_at_once(
    first: str, launch: str, before: str = "", declared: Sequence[str] = ()
) -> KernelText:
    """A function that runs lists of records at the same time: SYMBOL(args) -> status.

    Words of its argument: 0 see `first`, 1 the number of lists, 2 for each list its address and
    length, 3 two words per list: its status, and the number of the record that failed.

    Args:
        first: the type and name of word 0.
        launch: the code that calls SYMBOL.list(args, t, lists) for each t below `lists`.
        before: functions that `launch` calls.
        declared: declarations that `before` needs.
    """
    words = words_of("args", first, "i64 lists", "ptr tables", "ptr statuses")
    source = f"""
define internal void @SYMBOL.list(ptr %args, i64 %t, i64 %n) #0 {{
entry:
{words}
  %twice = shl i64 %t, 1
  %status.at = getelementptr i64, ptr %statuses, i64 %twice
  %failed = getelementptr i64, ptr %status.at, i64 1
  %at = getelementptr i64, ptr %tables, i64 %twice
  %count.at = getelementptr i64, ptr %at, i64 1
  %records = load ptr, ptr %at, align 8
  %count = load i64, ptr %count.at, align 8
  %status32 = call i32 @SYMBOL.walk(ptr %records, i64 %count, ptr %failed)
  %status = sext i32 %status32 to i64
  store i64 %status, ptr %status.at, align 8
  ret void
}}
define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words}
{launch}
  br label %head
head:
  %t = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %t, %lists
  br i1 %more, label %body, label %good
body:
  %twice = shl i64 %t, 1
  %status.at = getelementptr i64, ptr %statuses, i64 %twice
  %status = load i64, ptr %status.at, align 8
  %next = add i64 %t, 1
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %head, label %bad
bad:
  %status32 = trunc i64 %status to i32
  ret i32 %status32
good:
  ret i32 0
}}"""
    return KernelText(WALK + before + source, tuple(declared))


# Word 0: the table. The lists run on OpenMP's threads.
CONCURRENT = lists_at_once(
    "ptr table",
    """  %parallel = load ptr, ptr %table, align 8
  call void %parallel(ptr @SYMBOL.list, ptr %args, i64 %lists)""",
)

# Words: 0 records, 1 their number, 2 clock_gettime, 3 its clock, 4 two words per record and two
# more, for the times (seconds, nanoseconds) before each record and after the last one, 5 the record
# that failed.
_TIMED_WORDS = (
    "ptr records", "i64 count", "ptr clock.get", "i32 clock", "ptr times", "address failed",
)  # fmt: skip
_NOTE_TIME = """  %time = getelementptr i64, ptr %times, i64 %twice
  %unused = call i32 %clock.get(i32 %clock, ptr %time)
"""
RUN_TIMED = KernelText(
    _WALK.format(
        name="SYMBOL", linkage="", arguments="ptr %job", note_time=_NOTE_TIME,
        loads=words_of("job", *_TIMED_WORDS) + "\n",
    )
)  # fmt: skip

# Words: 0 records, 1 their number, 2 steps to do, 3 address of the interrupt byte, 4 steps done, 5
# advances (address of a word, amount), 6 their number, 7 the record that failed, 8 clock_gettime or
# 0, 9 its clock, 10 the time, in that clock's nanoseconds, after which no step starts.
_STEPS_WORDS = (
    "ptr records", "i64 count", "i64 steps", "ptr flag", "address done.at", "ptr advances",
    "i64 pairs", "address failed", "ptr clock.get", "i32 clock", "i64 last",
)  # fmt: skip
RUN_STEPS = KernelText(
    WALK
    + f"""
define i32 @SYMBOL(ptr %job) #0 {{
entry:
{words_of("job", *_STEPS_WORDS)}
  %now.at = alloca [2 x i64], align 16
  %timed = icmp ne ptr %clock.get, null
  br label %head
head:
  %s = phi i64 [ 0, %entry ], [ %s.next, %finish ], [ %s.next, %look ]
  %more = icmp slt i64 %s, %steps
  br i1 %more, label %ask, label %good
ask:
  %stop = load atomic volatile i8, ptr %flag monotonic, align 1
  %go = icmp eq i8 %stop, 0
  br i1 %go, label %step, label %interrupted
step:
  %status = call i32 @SYMBOL.walk(ptr %records, i64 %count, ptr %failed)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %advance, label %bad
advance:
  %p = phi i64 [ 0, %step ], [ %p.next, %move ]
  %p.more = icmp slt i64 %p, %pairs
  br i1 %p.more, label %move, label %finish
move:
  %p2 = shl i64 %p, 1
  %pair = getelementptr i64, ptr %advances, i64 %p2
  %by.at = getelementptr i64, ptr %pair, i64 1
  %where = load ptr, ptr %pair, align 8
  %by = load i64, ptr %by.at, align 8
  %before = load i64, ptr %where, align 8
  %now = add i64 %before, %by
  store i64 %now, ptr %where, align 8
  %p.next = add i64 %p, 1
  br label %advance
finish:
  %done = load i64, ptr %done.at, align 8
  %done.next = add i64 %done, 1
  store atomic volatile i64 %done.next, ptr %done.at monotonic, align 8
  %s.next = add i64 %s, 1
  br i1 %timed, label %look, label %head
look:
  %unused = call i32 %clock.get(i32 %clock, ptr %now.at)
  %nano.at = getelementptr i64, ptr %now.at, i64 1
  %seconds = load i64, ptr %now.at, align 8
  %nano = load i64, ptr %nano.at, align 8
  %scaled = mul i64 %seconds, 1000000000
  %time = add i64 %scaled, %nano
  %late = icmp sge i64 %time, %last
  br i1 %late, label %good, label %head
interrupted:
  ret i32 {INTERRUPTED}
bad:
  ret i32 %status
good:
  ret i32 0
}}"""
)


def library_call(kinds: str, result: str = "i32") -> KernelText:
    """A function that calls word 0 with the words after it.

    Args:
        kinds: of each word: p pointer, i int, l int64, f the bits of a float.
    """
    types = {"p": "ptr", "i": "i32", "l": "i64", "f": "float"}
    given = [f"{types[kind]} %v{n}" for n, kind in enumerate(kinds)]
    loads = words_of("args", "ptr f", *(value.replace("%", "") for value in given))
    call = f"call {result} %f({', '.join(given)})"
    end = (
        f"  %status = {call}\n  ret i32 %status"
        if result == "i32"
        else f"  {'%unused = ' if result != 'void' else ''}{call}\n  ret i32 0"
    )
    return KernelText(f"define i32 @SYMBOL(ptr %args) #0 {{\nentry:\n{loads}\n{end}\n}}")


# dnnl_primitive_execute(primitive, stream, nargs, args) -> status
CALL_DNNL = library_call("ppip")
# cblas_sgemm(order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
CALL_CBLAS = library_call("iiiiiifpipifpi", "void")
# Fortran's sgemm: every argument by address
CALL_BLAS = library_call("p" * 13, "void")
# omp_set_num_threads(threads)
CALL_THREADS = library_call("i", "void")
# memmove(to, from, bytes)
CALL_COPY = library_call("ppl", "ptr")


IDLE_TESTS = 100  # tests without progress before the first pause
FIRST_PAUSE, LONGER, LONGEST_PAUSE = 20, 4, 300  # microseconds; each pause is longer than the last

# Waits until MPI_Test reports that a request is complete: test(request, flag, status). A test that
# moves data takes longer than the shortest one. After many tests that move none, another process is
# late, and a pause precedes each further test, so that the other process can use the core.
WAIT_RESTING = KernelText(
    f"""declare i64 @llvm.readcyclecounter()
define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", "ptr test", "ptr request", "ptr flag", "ptr ignored", "ptr sleep")}
  br label %head
head:
  %idle = phi i64 [ 0, %entry ], [ %waited, %look ], [ %waited, %rest ]
  %least = phi i64 [ {1 << 40}, %entry ], [ %less, %look ], [ %less, %rest ]
  %before = call i64 @llvm.readcyclecounter()
  %status = call i32 %test(ptr %request, ptr %flag, ptr %ignored)
  %after = call i64 @llvm.readcyclecounter()
  %set = load i32, ptr %flag, align 4
  %waits = icmp eq i32 %set, 0
  %good = icmp eq i32 %status, 0
  %on = and i1 %waits, %good
  br i1 %on, label %look, label %exit
look:
  %cycles = sub i64 %after, %before
  %shorter = icmp slt i64 %cycles, %least
  %less = select i1 %shorter, i64 %cycles, i64 %least
  %limit = mul i64 %less, 3
  %worked = icmp sgt i64 %cycles, %limit
  %more = add i64 %idle, 1
  %waited = select i1 %worked, i64 0, i64 %more
  %late = icmp sgt i64 %waited, {IDLE_TESTS}
  br i1 %late, label %rest, label %head
rest:
  %pauses = sub i64 %waited, {IDLE_TESTS}
  %growth = mul i64 %pauses, {LONGER}
  %pause = add i64 %growth, {FIRST_PAUSE - LONGER}
  %short = icmp slt i64 %pause, {LONGEST_PAUSE}
  %bounded = select i1 %short, i64 %pause, i64 {LONGEST_PAUSE}
  %microseconds = trunc i64 %bounded to i32
  %unused = call i32 %sleep(i32 %microseconds)
  br label %head
exit:
  ret i32 %status
}}"""
)


ACTIVE_PAUSE, PASSIVE_PAUSE = 300, 1000  # microseconds between two tests, or two checks

# Until word `stop` is set: tests a request of MPI while word `active` is set, then pauses. It runs
# in a thread next to the one that computes: each test lets MPI make progress.
KEEP_MOVING = KernelText(
    f"""define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", "ptr test", "ptr request", "ptr flag", "ptr ignored", "ptr sleep",
          "ptr active", "ptr stop")}
  br label %head
head:
  %on = load atomic volatile i64, ptr %active monotonic, align 8
  %moves = icmp ne i64 %on, 0
  br i1 %moves, label %move, label %rest
move:
  %status = call i32 %test(ptr %request, ptr %flag, ptr %ignored)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %rest, label %exit
rest:
  %pause = select i1 %moves, i32 {ACTIVE_PAUSE}, i32 {PASSIVE_PAUSE}
  %unused = call i32 %sleep(i32 %pause)
  %stopped = load atomic volatile i64, ptr %stop monotonic, align 8
  %more = icmp eq i64 %stopped, 0
  br i1 %more, label %head, label %exit
exit:
  ret i32 0
}}"""
)  # fmt: skip

# Words: 0 an address, 1 a number that is stored there.
SET_WORD = KernelText(
    f"""define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", "ptr place", "i64 number")}
  store atomic volatile i64 %number, ptr %place monotonic, align 8
  ret i32 0
}}"""
)


def equal_bytes(status: int) -> KernelText:
    """A function that compares bytes: word 0 and 1 are two addresses, word 2 the number of bytes.

    Args:
        status: the result if they differ; it is 0 if they are equal.
    """
    return KernelText(
        f"""define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", "ptr value", "ptr wanted", "i64 count")}
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %good
body:
  %a.at = getelementptr i8, ptr %value, i64 %i
  %b.at = getelementptr i8, ptr %wanted, i64 %i
  %a = load i8, ptr %a.at, align 1
  %b = load i8, ptr %b.at, align 1
  %next = add i64 %i, 1
  %same = icmp eq i8 %a, %b
  br i1 %same, label %head, label %bad
bad:
  ret i32 {status}
good:
  ret i32 0
}}"""
    )


EXPECT = equal_bytes(UNMET)
