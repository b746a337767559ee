"""The code of helpers, and of callers that offer shares to them; see `team`.

The state (64-bit words, on separate cache lines) holds a ticket: the number of the offer, and the
numbers of shares that the caller and helpers have taken. A thread that increments it from a value
that it has read owns a share. The caller takes shares from the first on, helpers from the last on.
So each thread reads the same weights in the next run, and its processor's cache may still hold
them. The offer changes only while the ticket is closed.
"""

from __future__ import annotations

from kerasish.backends.static.codegen.driver_code import WALK, lists_at_once
from kerasish.backends.static.codegen.kernels import KernelText
from kerasish.backends.static.codegen.vector_math import TABLE_OPENMP
from kerasish.backends.static.machine.assembly import words_of

# Words of the state.
TICKET, COUNT, FUNCTION, ARGUMENT = 0, 8, 9, 10
DONE, ASLEEP, OWNER, HELPERS, STOP, SYSCALL, UNTIL, PENALTY = 16, 24, 32, 40, 41, 42, 43, 44
CALLER = 45  # the processor of the caller that has woken helpers
LENGTH = 46  # bytes of the set of processors that a single helper had before it was woken; 0: none
CLOCKS, MOST_CLOCKS = 48, 8  # the CPU clocks of the first helpers
ALLOWED, _MASK = CLOCKS + MOST_CLOCKS, 16  # that set, and the words of a set
WORDS = ALLOWED + _MASK
TAKEN = 16  # bits of a ticket that count the caller's shares; 16 more count those of helpers
SHARES = 2 * TAKEN
CLOSED = (1 << TAKEN) - 1
# A helper spins for this time, about 600 microseconds, before it sleeps: the parts of a training
# step that one thread runs are shorter, and waking a helper takes as long as a small part.
CYCLES = 1_500_000
LONG_WAIT = 250_000  # cycles of a wait after which a caller checks whether its helpers ran
# Cycles for which callers make no offers after waits for helpers that did not run: none after the
# first wait, then doubled each time. After offers without such a wait the number decreases by 1 / 8
# of their time. After two callers collide, they make no offers for the first number.
FIRST_PENALTY, MOST_PENALTY, FORGIVEN = 1 << 22, 1 << 28, 3
LOOKS, WAITS = 64, 1 << 9  # polls between two yields of the processor: several microseconds
FUTEX, YIELD, WAIT, WAKE = 202, 24, 128, 129  # Linux on x86-64; "private" futexes
GET_TIME, MONOTONIC, CPU_CLOCK = 228, 1, 6  # `clock_gettime`; bits of a thread's CPU clock
GET_CPU, SET_AFFINITY, GET_AFFINITY = 309, 203, 204


CLOCK = ("declare i64 @llvm.readcyclecounter()", "declare void @llvm.x86.sse2.pause()")
# While a thread spins, the other hardware thread of its core should run.
_PAUSE = "  call void @llvm.x86.sse2.pause()"
# Of the ticket %t: the shares of the caller, those of helpers, and whether any of %n remain.
_LEFT = f"""  %front = and i64 %t, {CLOSED}
  %back.high = lshr i64 %t, {TAKEN}
  %back = and i64 %back.high, {CLOSED}
  %taken = add i64 %front, %back
  %left = icmp slt i64 %taken, %n"""


def _at(name: str, word: int) -> str:
    return f"  %{name} = getelementptr i64, ptr %state, i64 {word}"


# The system often wakes a thread on the processor of the thread that wakes it. Both would then
# alternate for milliseconds, and the caller would compute all shares.
# i64 SYMBOL.away(syscall, thread, cpu, all): removes a processor from those of a thread and stores
# the previous set; returns the bytes of the set, or 0 if the thread may run on no other processor.
_AWAY = f"""define internal i64 @SYMBOL.away(ptr %syscall, i64 %thread, i64 %cpu, ptr %all) #0 {{
entry:
  %others = alloca [{_MASK} x i64], align 16
  %known = icmp ult i64 %cpu, {64 * _MASK}
  br i1 %known, label %ask, label %exit
ask:
  %bytes = call i64 (i64, ...) %syscall(i64 {GET_AFFINITY}, i64 %thread, i64 {8 * _MASK}, ptr %all)
  %good = icmp sgt i64 %bytes, 0
  br i1 %good, label %take, label %exit
take:
  %set = load [{_MASK} x i64], ptr %all, align 8
  store [{_MASK} x i64] %set, ptr %others, align 16
  %place = lshr i64 %cpu, 6
  %word.at = getelementptr i64, ptr %others, i64 %place
  %word = load i64, ptr %word.at, align 8
  %shift = and i64 %cpu, 63
  %bit = shl i64 1, %shift
  %rest = xor i64 %bit, -1
  %without = and i64 %word, %rest
  store i64 %without, ptr %word.at, align 8
  %failed = call i64 (i64, ...) %syscall(i64 {SET_AFFINITY}, i64 %thread, i64 %bytes, ptr %others)
  %moved = icmp eq i64 %failed, 0
  %result = select i1 %moved, i64 %bytes, i64 0
  ret i64 %result
exit:
  ret i64 0
}}"""
# i64 SYMBOL.time(syscall, clock): nanoseconds.
# i64 SYMBOL.idle(state, syscall): nanoseconds, less twice the CPU time of all helpers. If it
# grows, helpers have had less than half of a processor.
# void SYMBOL.wait(state, word, wanted, start): waits until the word has the expected value, and
# updates the penalty by the length of the wait. `start` is the time at which the work started.
_WAIT = f"""define internal i64 @SYMBOL.time(ptr %syscall, i64 %clock) #0 {{
entry:
  %at = alloca [2 x i64], align 16
  %unused = call i64 (i64, ...) %syscall(i64 {GET_TIME}, i64 %clock, ptr %at)
  %nano.at = getelementptr i64, ptr %at, i64 1
  %seconds = load i64, ptr %at, align 8
  %nano = load i64, ptr %nano.at, align 8
  %scaled = mul i64 %seconds, 1000000000
  %time = add i64 %scaled, %nano
  ret i64 %time
}}
define internal i64 @SYMBOL.idle(ptr %state, ptr %syscall, i64 %helpers) #0 {{
entry:
  %clocks = getelementptr i64, ptr %state, i64 {CLOCKS}
  %few = icmp slt i64 %helpers, {MOST_CLOCKS}
  %count = select i1 %few, i64 %helpers, i64 {MOST_CLOCKS}
  %now = call i64 @SYMBOL.time(ptr %syscall, i64 {MONOTONIC})
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %sum = phi i64 [ %now, %entry ], [ %less, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %exit
body:
  %clock.at = getelementptr i64, ptr %clocks, i64 %i
  %clock = load i64, ptr %clock.at, align 8
  %used = call i64 @SYMBOL.time(ptr %syscall, i64 %clock)
  %twice = shl i64 %used, 1
  %less = sub i64 %sum, %twice
  %next = add i64 %i, 1
  br label %head
exit:
  ret i64 %sum
}}
define internal void @SYMBOL.wait(ptr %state, ptr %word, i64 %wanted, i64 %start) #0 {{
entry:
{_at("helpers.at", HELPERS)}
{_at("syscall.at", SYSCALL)}
{_at("until.at", UNTIL)}
{_at("penalty.at", PENALTY)}
  %syscall = load ptr, ptr %syscall.at, align 8
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  %began = call i64 @llvm.readcyclecounter()
  br label %wait
wait:
  %looks = phi i64 [ 1, %entry ], [ %looks.next, %on ]
  %idle = phi i64 [ 0, %entry ], [ %idle.now, %on ]
  %done = load atomic i64, ptr %word acquire, align 8
  %all = icmp eq i64 %done, %wanted
  br i1 %all, label %ready, label %polite
polite:
{_PAUSE}
  %looks.next = add i64 %looks, 1
  %some = and i64 %looks, {WAITS - 1}
  %yields = icmp eq i64 %some, 0
  br i1 %yields, label %yield, label %on
yield:
  %first.time = icmp eq i64 %looks, {WAITS}
  br i1 %first.time, label %note, label %give
note:
  %idle.first = call i64 @SYMBOL.idle(ptr %state, ptr %syscall, i64 %helpers)
  br label %give
give:
  %idle.noted = phi i64 [ %idle, %yield ], [ %idle.first, %note ]
  %yielded = call i64 (i64, ...) %syscall(i64 {YIELD})
  br label %on
on:
  %idle.now = phi i64 [ %idle, %polite ], [ %idle.noted, %give ]
  br label %wait
ready:
  %ended = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %ended, %began
  %penalty = load atomic i64, ptr %penalty.at monotonic, align 8
  %long = icmp sgt i64 %waited, {LONG_WAIT}
  %noted = icmp sgt i64 %looks, {WAITS}
  %asks = and i1 %long, %noted
  br i1 %asks, label %judge, label %forgive
judge:
  %idle.last = call i64 @SYMBOL.idle(ptr %state, ptr %syscall, i64 %helpers)
  %late = icmp sgt i64 %idle.last, %idle
  br i1 %late, label %avoid, label %forgive
avoid:
  %twice = shl i64 %penalty, 1
  %short = icmp slt i64 %twice, {FIRST_PENALTY}
  %at.least = select i1 %short, i64 {FIRST_PENALTY}, i64 %twice
  %huge = icmp sgt i64 %at.least, {MOST_PENALTY}
  %longer = select i1 %huge, i64 {MOST_PENALTY}, i64 %at.least
  store atomic i64 %longer, ptr %penalty.at monotonic, align 8
  %end = add i64 %ended, %penalty
  store atomic i64 %end, ptr %until.at monotonic, align 8
  ret void
forgive:
  %took = sub i64 %ended, %start
  %part = ashr i64 %took, {FORGIVEN}
  %rest = sub i64 %penalty, %part
  %some.left = icmp sgt i64 %rest, 0
  %fewer = select i1 %some.left, i64 %rest, i64 0
  store atomic i64 %fewer, ptr %penalty.at monotonic, align 8
  ret void
}}"""
# void SYMBOL.offer(state, function, argument, shares): function(argument, share, shares) for all.
OFFER = (
    _AWAY
    + "\n"
    + _WAIT
    + f"""
define internal void @SYMBOL.offer(ptr %state, ptr %function, ptr %arg, i64 %n) #0 {{
entry:
{_at("ticket.at", TICKET)}
{_at("count.at", COUNT)}
{_at("function.at", FUNCTION)}
{_at("arg.at", ARGUMENT)}
{_at("done.at", DONE)}
{_at("asleep.at", ASLEEP)}
{_at("owner.at", OWNER)}
{_at("helpers.at", HELPERS)}
{_at("syscall.at", SYSCALL)}
{_at("until.at", UNTIL)}
{_at("caller.at", CALLER)}
{_at("length.at", LENGTH)}
{_at("allowed.at", ALLOWED)}
{_at("clock.at", CLOCKS)}
  %syscall = load ptr, ptr %syscall.at, align 8
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  %helped = icmp sgt i64 %helpers, 0
  br i1 %helped, label %ask, label %alone
ask:
  %until = load atomic i64, ptr %until.at monotonic, align 8
  %start = call i64 @llvm.readcyclecounter()
  %left.alone = sub i64 %until, %start
  %free = icmp sle i64 %left.alone, 0
  br i1 %free, label %own, label %alone
own:
  %pair = cmpxchg ptr %owner.at, i64 0, i64 1 acquire monotonic
  %owned = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %owned, label %offer, label %met
met:
  %apart = add i64 %start, {FIRST_PENALTY}
  store atomic i64 %apart, ptr %until.at monotonic, align 8
  br label %alone
alone:
  br label %alone.head
alone.head:
  %a = phi i64 [ 0, %alone ], [ %a.next, %alone.body ]
  %a.more = icmp slt i64 %a, %n
  br i1 %a.more, label %alone.body, label %exit
alone.body:
  call void %function(ptr %arg, i64 %a, i64 %n)
  %a.next = add i64 %a, 1
  br label %alone.head
offer:
  store atomic i64 %n, ptr %count.at monotonic, align 8
  store atomic ptr %function, ptr %function.at monotonic, align 8
  store atomic ptr %arg, ptr %arg.at monotonic, align 8
  store atomic i64 0, ptr %done.at monotonic, align 8
  %old = load atomic i64, ptr %ticket.at monotonic, align 8
  %old.number = ashr i64 %old, {SHARES}
  %number = add i64 %old.number, 1
  %first = shl i64 %number, {SHARES}
  %before = atomicrmw xchg ptr %ticket.at, i64 %first seq_cst
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %wake, label %take
wake:
  %got = call i64 (i64, ...) %syscall(i64 {GET_CPU}, ptr %caller.at, ptr null, ptr null)
  %single = icmp eq i64 %helpers, 1
  br i1 %single, label %send, label %call
send:
  %caller = load i64, ptr %caller.at, align 8
  %clock = load i64, ptr %clock.at, align 8
  %thread.not = ashr i64 %clock, 3
  %thread = xor i64 %thread.not, -1
  %length = call i64 @SYMBOL.away(ptr %syscall, i64 %thread, i64 %caller, ptr %allowed.at)
  store atomic i64 %length, ptr %length.at release, align 8
  br label %call
call:
  store atomic i32 0, ptr %asleep.at seq_cst, align 4
  %woken = call i64 (i64, ...) %syscall(i64 {FUTEX}, ptr %asleep.at, i64 {WAKE}, i64 %helpers)
  br label %take
take:
  %t = load atomic i64, ptr %ticket.at monotonic, align 8
{_LEFT}
  br i1 %left, label %try, label %begin.wait
try:
  %t.next = add i64 %t, 1
  %t.pair = cmpxchg ptr %ticket.at, i64 %t, i64 %t.next acq_rel monotonic
  %mine = extractvalue {{ i64, i1 }} %t.pair, 1
  br i1 %mine, label %work, label %take
work:
  call void %function(ptr %arg, i64 %front, i64 %n)
  %unused = atomicrmw add ptr %done.at, i64 1 acq_rel
  br label %take
begin.wait:
  call void @SYMBOL.wait(ptr %state, ptr %done.at, i64 %n, i64 %start)
  %closed = or i64 %first, {CLOSED}
  store atomic i64 %closed, ptr %ticket.at release, align 8
  store atomic i64 0, ptr %owner.at release, align 8
  br label %exit
exit:
  ret void
}}"""
)

# i32 SYMBOL(state): takes shares until the word `stop` is set.
# void SYMBOL.leave(state, syscall): leaves the processor of the caller that has woken the thread,
# if the system has placed it there, and restores the set of all its processors.
HELP = KernelText(
    _AWAY
    + f"""
define internal void @SYMBOL.leave(ptr %state, ptr %syscall) #0 {{
entry:
{_at("caller.at", CALLER)}
{_at("length.at", LENGTH)}
{_at("allowed.at", ALLOWED)}
  %cpu.at = alloca i64, align 16
  %all = alloca [{_MASK} x i64], align 16
  %length = atomicrmw xchg ptr %length.at, i64 0 acq_rel
  %sent = icmp sgt i64 %length, 0
  br i1 %sent, label %allow, label %look
allow:
  %done = call i64 (i64, ...) %syscall(i64 {SET_AFFINITY}, i64 0, i64 %length, ptr %allowed.at)
  ret void
look:
  store i64 0, ptr %cpu.at, align 8
  %got = call i64 (i64, ...) %syscall(i64 {GET_CPU}, ptr %cpu.at, ptr null, ptr null)
  %cpu = load i64, ptr %cpu.at, align 8
  %caller = load atomic i64, ptr %caller.at monotonic, align 8
  %same = icmp eq i64 %cpu, %caller
  br i1 %same, label %move, label %exit
move:
  %bytes = call i64 @SYMBOL.away(ptr %syscall, i64 0, i64 %cpu, ptr %all)
  %moved = icmp sgt i64 %bytes, 0
  br i1 %moved, label %back, label %exit
back:
  %unused = call i64 (i64, ...) %syscall(i64 {SET_AFFINITY}, i64 0, i64 %bytes, ptr %all)
  br label %exit
exit:
  ret void
}}
define i32 @SYMBOL(ptr %state) #0 {{
entry:
{_at("ticket.at", TICKET)}
{_at("count.at", COUNT)}
{_at("function.at", FUNCTION)}
{_at("arg.at", ARGUMENT)}
{_at("done.at", DONE)}
{_at("asleep.at", ASLEEP)}
{_at("stop.at", STOP)}
{_at("syscall.at", SYSCALL)}
  br label %rested
rested:
  %since = call i64 @llvm.readcyclecounter()
  br label %head
head:
  %start = phi i64 [ %since, %rested ], [ %start, %on ], [ %start, %try ], [ %now.done, %work ]
  %looks = phi i64 [ 1, %rested ], [ %looks.next, %on ], [ %looks, %try ], [ 1, %work ]
  %t = load atomic i64, ptr %ticket.at acquire, align 8
  %n = load atomic i64, ptr %count.at monotonic, align 8
{_LEFT}
  br i1 %left, label %try, label %look
try:
  %function = load atomic ptr, ptr %function.at monotonic, align 8
  %arg = load atomic ptr, ptr %arg.at monotonic, align 8
  %t.next = add i64 %t, {1 << TAKEN}
  %t.pair = cmpxchg ptr %ticket.at, i64 %t, i64 %t.next acq_rel monotonic
  %mine = extractvalue {{ i64, i1 }} %t.pair, 1
  br i1 %mine, label %work, label %head
work:
  %last = sub i64 %n, 1
  %share = sub i64 %last, %back
  call void %function(ptr %arg, i64 %share, i64 %n)
  %unused = atomicrmw add ptr %done.at, i64 1 acq_rel
  %now.done = call i64 @llvm.readcyclecounter()
  br label %head
look:
  %now = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %now, %start
  %long = icmp sgt i64 %waited, {CYCLES}
  br i1 %long, label %rest, label %polite
polite:
{_PAUSE}
  %looks.next = add i64 %looks, 1
  %some = and i64 %looks, {LOOKS - 1}
  %yields = icmp eq i64 %some, 0
  br i1 %yields, label %yield, label %on
yield:
  %yield.syscall = load ptr, ptr %syscall.at, align 8
  %yielded = call i64 (i64, ...) %yield.syscall(i64 {YIELD})
  br label %on
on:
  br label %head
rest:
  store atomic i32 1, ptr %asleep.at seq_cst, align 4
  %again = load atomic i64, ptr %ticket.at seq_cst, align 8
  %same = icmp eq i64 %again, %t
  br i1 %same, label %ask, label %rested
ask:
  %stop = load atomic i64, ptr %stop.at seq_cst, align 8
  %stops = icmp ne i64 %stop, 0
  br i1 %stops, label %exit, label %sleep
sleep:
  %syscall = load ptr, ptr %syscall.at, align 8
  %slept = call i64 (i64, ...) %syscall(i64 {FUTEX}, ptr %asleep.at, i64 {WAIT}, i64 1, ptr null)
  call void @SYMBOL.leave(ptr %state, ptr %syscall)
  br label %rested
exit:
  ret i32 0
}}""",
    CLOCK,
)

# Word 0: the state. The lists run on the calling thread and on helpers.
TOGETHER = lists_at_once(
    "ptr state",
    "  call void @SYMBOL.offer(ptr %state, ptr @SYMBOL.list, ptr %args, i64 %lists)",
    OFFER,
    CLOCK,
)


# Runs share(arg, t, n) for t in 0 .. n-1, like `PARALLEL` of the driver, on the calling thread and
# on helpers; arg's first word is the address of a table whose word after the functions of the
# library is the state.
PARALLEL = KernelText(
    OFFER
    + f"""
define void @SYMBOL(ptr %function, ptr %arg, i64 %n) #0 {{
entry:
  %table = load ptr, ptr %arg, align 8
  %state.at = getelementptr i64, ptr %table, i64 {TABLE_OPENMP}
  %state = load ptr, ptr %state.at, align 8
  %several = icmp sgt i64 %n, 1
  br i1 %several, label %many, label %one
one:
  call void %function(ptr %arg, i64 0, i64 1)
  ret void
many:
  call void @SYMBOL.offer(ptr %state, ptr %function, ptr %arg, i64 %n)
  ret void
}}""",
    CLOCK,
)

# Words: 0 the state, 1 the address of a word, 2 records, 3 their number, 4 whether it waits. The
# first thread runs the records: the word is 0 before, then TAKEN_UP, finally FINISHED. A later
# thread waits for that, or does nothing.
TAKEN_UP, FINISHED = 1, 2
ONCE = KernelText(
    WALK
    + "\n"
    + _WAIT
    + f"""
define i32 @SYMBOL(ptr %args) #0 {{
entry:
{words_of("args", "ptr state", "ptr word", "ptr records", "i64 count", "i64 waits")}
  %failed = alloca i64, align 8
  %pair = cmpxchg ptr %word, i64 0, i64 {TAKEN_UP} acq_rel acquire
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %work, label %taken
work:
  %status = call i32 @SYMBOL.walk(ptr %records, i64 %count, ptr %failed)
  store atomic i64 {FINISHED}, ptr %word release, align 8
  ret i32 %status
taken:
  %stays = icmp ne i64 %waits, 0
  br i1 %stays, label %stay, label %exit
stay:
  %start = call i64 @llvm.readcyclecounter()
  call void @SYMBOL.wait(ptr %state, ptr %word, i64 {FINISHED}, i64 %start)
  br label %exit
exit:
  ret i32 0
}}""",
    CLOCK,
)
