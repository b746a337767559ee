// Runs the package's CUDA kernels on the CPU, to test them: every thread of a block is a fiber.
//
// Checked: each access to memory (the array, its ends, the alignment of packs), barriers and warp
// exchanges that not all threads reach, the masks of exchanges, and shared memory: between two
// barriers an element belongs to the thread that wrote it, or to those that read it, and it is not
// read before it is written. With a seed, warps run in a shuffled order, and one of them as far ahead
// of the others as barriers let it.
#pragma once
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define ON_CPU
#define __device__
#define __launch_bounds__(threads, blocks)
#define __forceinline__ inline

struct Dim3 { unsigned x, y, z; };

namespace cu {

typedef long long i64;

// --- fibers ------------------------------------------------------------------------------------

enum State { READY, AT_BARRIER, AT_WARP, DONE };

struct Fiber {
    State state;
    int site;
    unsigned number;
    Dim3 thread;
    uint64_t value;
    char* stack;
#if defined(__x86_64__)
    void* context;
#else
    ucontext_t context;
#endif
};

const size_t STACK = 128 << 10;
static Fiber* current;
static Fiber fibers[1024];
static unsigned fiber_count;
static Dim3 block_index, block_size, grid_size;
static void (*body)(void**);
static void** arguments;
static char message[512];
static bool failed;

#if defined(__x86_64__)
static void* scheduler;
extern "C" void cu_switch(void** from, void* to);
asm(".text\n"
    ".globl cu_switch\n"
    ".hidden cu_switch\n"
    ".type cu_switch, @function\n"
    "cu_switch:\n"
    "  pushq %rbx\n  pushq %rbp\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbp\n  popq %rbx\n"
    "  ret\n");
static void leave() { cu_switch(&current->context, scheduler); }
static void enter() { cu_switch(&scheduler, current->context); }
#else
static ucontext_t scheduler;
static void leave() { swapcontext(&current->context, &scheduler); }
static void enter() { swapcontext(&scheduler, &current->context); }
#endif

static void start() {
    body(arguments);
    current->state = DONE;
    leave();
}

static void prepare(Fiber& f) {
    if (!f.stack) f.stack = (char*)aligned_alloc(64, STACK);
#if defined(__x86_64__)
    void** top = (void**)(f.stack + STACK - 64);
    *--top = nullptr;  // where `start` would return to: it never does
    *--top = (void*)start;
    for (int k = 0; k < 6; ++k) *--top = nullptr;
    f.context = top;
#else
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = nullptr;
    makecontext(&f.context, start, 0);
#endif
}

// Ends the launch: no fiber runs after this.
static void fail(const char* format, ...) {
    if (!failed) {
        char what[384];
        va_list rest;
        va_start(rest, format);
        vsnprintf(what, sizeof what, format, rest);
        va_end(rest);
        snprintf(message, sizeof message, "%s, block (%u, %u, %u), thread (%u, %u, %u)", what,
                 block_index.x, block_index.y, block_index.z, current->thread.x,
                 current->thread.y, current->thread.z);
    }
    failed = true;
    leave();
    abort();
}

static void wait_for(State what, int site) {
    current->state = what;
    current->site = site;
    leave();
}

// --- pointers that know their array --------------------------------------------------------------

template <class T>
struct Checked {
    T *at, *low, *high;
    void look(i64 count, size_t alignment) const {
        if (at < low || at + count > high) {
            fail("access to [%lld, %lld) of %lld elements", (i64)(at - low),
                 (i64)(at - low) + count, (i64)(high - low));
        }
        if ((uintptr_t)at % alignment) fail("access not aligned to %zu bytes", alignment);
    }
    T& operator*() const { look(1, alignof(T)); return *at; }
    T& operator[](i64 k) const { return *(*this + k); }
    Checked operator+(i64 k) const { return {at + k, low, high}; }
    template <class U>
    operator Checked<const U>() const { return {at, low, high}; }
};

struct Buffer { void* address; i64 bytes; };

// What an argument of a launch points to: a value, or for a pointer its address and size.
template <class T>
struct Argument { static T get(void* from) { return *(T*)from; } };
template <class T>
struct Argument<Checked<T>> {
    static Checked<T> get(void* from) {
        Buffer b = *(Buffer*)from;
        T* start = (T*)b.address;
        return {start, start, start + b.bytes / (i64)sizeof(T)};
    }
};

// The arrays whose addresses stand in tables among the arguments.
static const Buffer* known;
static i64 known_count;

template <class T>
Checked<T> pointer_at(unsigned long long address) {
    for (i64 k = 0; k < known_count; ++k) {
        if ((unsigned long long)known[k].address == address) {
            Buffer b = known[k];
            return Argument<Checked<T>>::get(&b);
        }
    }
    return {(T*)address, nullptr, nullptr};
}

// --- shared memory -------------------------------------------------------------------------------

const size_t SHARED_BYTES = 48 << 10;
alignas(64) static char shared_bytes[SHARED_BYTES];
// For each element (by its first byte): the thread that wrote it, and one that read it, since the
// last barrier, as number + 1; ANYONE: several did. And whether it was ever written.
const int ANYONE = 1 << 20;
static int writer_of[SHARED_BYTES], reader_of[SHARED_BYTES];
static bool written[SHARED_BYTES];

static void forget_owners() {
    memset(writer_of, 0, sizeof writer_of);
    memset(reader_of, 0, sizeof reader_of);
}

static void note_write(size_t place) {
    int own = (int)current->number + 1;
    if (writer_of[place] && writer_of[place] != own) {
        fail("shared memory at byte %zu: written by threads %d and %d without a barrier between",
             place, writer_of[place] - 1, own - 1);
    }
    if (reader_of[place] && reader_of[place] != own) {
        fail("shared memory at byte %zu: read by thread %d, written by %d without a barrier "
             "between", place, reader_of[place] - 1, own - 1);
    }
    writer_of[place] = own;
    written[place] = true;
}

static void note_read(size_t place) {
    int own = (int)current->number + 1;
    if (!written[place]) fail("shared memory at byte %zu: read before it is written", place);
    if (writer_of[place] && writer_of[place] != own) {
        fail("shared memory at byte %zu: written by thread %d, read by %d without a barrier "
             "between", place, writer_of[place] - 1, own - 1);
    }
    if (reader_of[place] == 0) reader_of[place] = own;
    else if (reader_of[place] != own) reader_of[place] = ANYONE;
}

// An element of shared memory: assigned to, or read as a number.
template <class T>
struct Element {
    T* at;
    size_t place() const { return (char*)at - shared_bytes; }
    operator T() const { note_read(place()); return *at; }
    const Element& operator=(T value) const { note_write(place()); *at = value; return *this; }
    const Element& operator=(const Element& other) const { return *this = (T)other; }
    const Element& operator+=(T value) const { return *this = (T)*this + value; }
};

template <class T>
struct Shared {
    T *at, *low, *high;
    Element<T> operator*() const {
        if (at < low || at >= high) {
            fail("access to %lld of %lld elements of shared memory", (i64)(at - low),
                 (i64)(high - low));
        }
        return {at};
    }
    Element<T> operator[](i64 k) const { return *(*this + k); }
    Shared operator+(i64 k) const { return {at + k, low, high}; }
};
static size_t shared_used;
const int SLOTS = 64;
static struct { int slot; size_t place; } shared_slots[SLOTS];
static int shared_count;

template <class T>
Shared<T> shared(int slot, i64 count) {
    size_t place = 0;
    bool found = false;
    for (int k = 0; k < shared_count; ++k) {
        if (shared_slots[k].slot == slot) { place = shared_slots[k].place; found = true; }
    }
    if (!found) {
        place = shared_used;
        shared_used += (count * sizeof(T) + 15) / 16 * 16;
        if (shared_used > SHARED_BYTES) fail("%zu bytes of shared memory", shared_used);
        if (shared_count == SLOTS) fail("more than %d arrays in shared memory", SLOTS);
        shared_slots[shared_count++] = {slot, place};
    }
    T* at = (T*)(shared_bytes + place);
    return {at, at, at + count};
}

// --- a block, a launch ---------------------------------------------------------------------------

// Lets the warps go on whose threads have all come to the same exchange.
static bool release_warps(unsigned from, unsigned count) {
    bool moved = false;
    for (unsigned first = from; first < count; first += 32) {
        unsigned end = first + 32 < count ? first + 32 : count, waiting = 0, site = 0;
        bool apart = false, gone = false;
        for (unsigned k = first; k < end; ++k) {
            gone = gone || fibers[k].state == DONE;
            if (fibers[k].state != AT_WARP) continue;
            apart = apart || (waiting && (int)site != fibers[k].site);
            site = fibers[k].site;
            ++waiting;
        }
        if (!waiting) continue;
        current = &fibers[first];
        if (gone || (apart && waiting == end - first)) {
            if (!failed) {
                snprintf(message, sizeof message, "threads of a warp apart at line %d, block %u",
                         site, block_index.x);
            }
            failed = true;
            return false;
        }
        if (waiting < end - first) continue;
        for (unsigned k = first; k < end; ++k) fibers[k].state = READY;
        moved = true;
    }
    return moved;
}

static bool release_block(unsigned count) {
    unsigned waiting = 0, done = 0;
    int site = 0;
    bool apart = false;
    for (unsigned k = 0; k < count; ++k) {
        done += fibers[k].state == DONE;
        if (fibers[k].state != AT_BARRIER) continue;
        apart = apart || (waiting && site != fibers[k].site);
        site = fibers[k].site;
        ++waiting;
    }
    if (done == count) return false;
    if (waiting == count && !apart) {
        for (unsigned k = 0; k < count; ++k) fibers[k].state = READY;
        forget_owners();
        return true;
    }
    snprintf(message, sizeof message,
             "barrier at line %d reached by %u of %u threads (%u are done), block %u", site,
             waiting, count, done, block_index.x);
    failed = true;
    return false;
}

static unsigned draw(unsigned* seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

// Whether no thread can go on without a barrier.
static bool at_barrier(unsigned count) {
    for (unsigned k = 0; k < count; ++k) {
        if (fibers[k].state == READY || fibers[k].state == AT_WARP) return false;
    }
    return true;
}

static void run_block(unsigned seed) {
    unsigned count = block_size.x * block_size.y * block_size.z;
    fiber_count = count;
    memset(shared_bytes, 0xff, sizeof shared_bytes);
    memset(written, 0, sizeof written);
    forget_owners();
    shared_used = 0;
    shared_count = 0;
    for (unsigned k = 0; k < count; ++k) {
        Fiber& f = fibers[k];
        f.state = READY;
        f.number = k;
        f.thread = {k % block_size.x, k / block_size.x % block_size.y,
                    k / (block_size.x * block_size.y)};
        prepare(f);
    }
    if (!seed) {
        while (!failed) {
            for (unsigned k = 0; k < count && !failed; ++k) {
                current = &fibers[k];
                if (current->state == READY) enter();
            }
            if (failed) return;
            bool moved = release_warps(0, count);
            if (failed) return;
            if (!moved && !release_block(count)) return;
        }
        return;
    }
    // Warps in a shuffled order, each as far as the next barrier before another one runs.
    unsigned warps = (count + 31) / 32, order[32];
    while (!failed) {
        for (unsigned w = 0; w < warps; ++w) order[w] = w;
        for (unsigned w = warps; w > 1; --w) {
            unsigned other = draw(&seed) % w, kept = order[w - 1];
            order[w - 1] = order[other];
            order[other] = kept;
        }
        bool ran = false;
        for (unsigned w = 0; w < warps && !failed; ++w) {
            unsigned first = order[w] * 32, end = first + 32 < count ? first + 32 : count;
            do {
                unsigned offset = draw(&seed), stride = (draw(&seed) << 1) | 1u;
                for (unsigned k = 0; k < end - first && !failed; ++k) {
                    // An odd stride visits all of 2^k; a smaller warp runs from an offset on.
                    unsigned lane = end - first == 32 ? (k * stride + offset) % 32
                                                      : (k + offset) % (end - first);
                    current = &fibers[first + lane];
                    if (current->state == READY) { enter(); ran = true; }
                }
                if (failed) return;
            } while (release_warps(first, end) && !failed);
        }
        if (failed) return;
        if (!ran || at_barrier(count)) {
            if (!release_block(count)) return;
        }
    }
}

// Runs the blocks of a launch; with 0 < most < all only the first and the last ones. Returns 0.
static int launch(const unsigned* shape, unsigned seed, i64 most, const Buffer* buffers,
                  i64 buffer_count, void (*kernel)(void**), void** given) {
    grid_size = {shape[0], shape[1], shape[2]};
    block_size = {shape[3], shape[4], shape[5]};
    body = kernel;
    arguments = given;
    known = buffers;
    known_count = buffer_count;
    failed = false;
    i64 all = (i64)grid_size.x * grid_size.y * grid_size.z;
    for (i64 b = 0; b < all && !failed; ++b) {
        if (most && most < all && b == most / 2) b = all - most / 2;
        block_index = {(unsigned)(b % grid_size.x), (unsigned)(b / grid_size.x % grid_size.y),
                       (unsigned)(b / grid_size.x / grid_size.y)};
        run_block(seed ? seed + (unsigned)b : 0);
    }
    return failed;
}

// --- exchanges in a warp -------------------------------------------------------------------------

template <class T>
T exchange_xor(unsigned mask, T x, int apart, int site) {
    unsigned first = current->number / 32 * 32, lanes = fiber_count - first;
    unsigned all = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1;
    if (!(mask >> current->number % 32 & 1)) fail("an exchange whose mask leaves out its thread");
    if ((mask & all) != all) fail("an exchange with the mask %08x of the threads %08x", mask, all);
    if (mask & ~all) fail("an exchange with the mask %08x, beyond the threads %08x", mask, all);
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    current->value = bits;
    wait_for(AT_WARP, site);
    unsigned other = current->number ^ (unsigned)apart;
    if (other >= fiber_count) fail("exchange with thread %u, which is not there", other);
    bits = fibers[other].value;
    wait_for(AT_WARP, site);  // no thread writes again before all have read
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float float_of(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static uint32_t bits_of(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

}  // namespace cu

extern "C" const char* cu_message() { return cu::message; }

#define threadIdx (cu::current->thread)
#define blockIdx (cu::block_index)
#define blockDim (cu::block_size)
#define gridDim (cu::grid_size)
#define __syncthreads() cu::wait_for(cu::AT_BARRIER, __LINE__)
#define __shfl_xor_sync(mask, x, apart) cu::exchange_xor(mask, x, apart, __LINE__)

#define IN(T) cu::Checked<const T>
#define OUT(T) cu::Checked<T>
#define SHARED(T, name, count) auto name = cu::shared<T>(__COUNTER__, count)
#define AT(T, address) cu::pointer_at<T>(address)

template <class T, int N>
struct Pack { T at[N]; };

template <int N, class T>
Pack<typename std::remove_const<T>::type, N> read_pack(cu::Checked<T> from) {
    from.look(N, N * sizeof(T) < 16 ? N * sizeof(T) : 16);
    Pack<typename std::remove_const<T>::type, N> values;
    for (int k = 0; k < N; ++k) values.at[k] = from.at[k];
    return values;
}

template <int N, class T>
void write_pack(cu::Checked<T> to, const Pack<T, N>& values) {
    to.look(N, N * sizeof(T) < 16 ? N * sizeof(T) : 16);
    for (int k = 0; k < N; ++k) to.at[k] = values.at[k];
}

static inline float __int_as_float(int bits) { return cu::float_of((uint32_t)bits); }
static inline int __float_as_int(float x) { return (int)cu::bits_of(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }

static inline float half_to_float(unsigned short bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return cu::float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    uint32_t fraction = (rest & 0x3ffu) | (rest >> 10 ? 0x400u : 0);
    int exponent = (int)(rest >> 10 ? rest >> 10 : 1) - 25;
    return cu::float_of(sign | cu::bits_of(ldexpf((float)fraction, exponent)));
}

static inline unsigned short float_to_half(float x) {
    uint32_t bits = cu::bits_of(x);
    unsigned short sign = (unsigned short)(bits >> 16 & 0x8000u);
    float size = fabs(x);
    if (x != x) return sign | 0x7e00u;
    if (size == 0.0f) return sign;
    if (size >= 65520.0f) return sign | 0x7c00u;
    int exponent;
    frexp(size, &exponent);
    exponent = exponent < -13 ? -13 : exponent;  // below 2^-14 the steps stay 2^-24
    // In steps of the last place, to the nearest, ties to even.
    uint32_t steps = (uint32_t)nearbyint(ldexp(size, 11 - exponent));
    return (unsigned short)(sign | (steps + ((uint32_t)(exponent + 13) << 10)));
}
