// The used part of cuBLASLt's interface, on the CPU, to test how it is called. Column by column,
// float32 sums; what a real library would refuse is refused (status 7).
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef long long i64;

struct Description { int compute, scale, operations[2]; unsigned epilogue; void* bias; };
struct Layout { int type; uint64_t rows, columns; i64 leading; int batch; i64 stride; };
struct Wish { uint64_t workspace; unsigned reductions, alignments[4]; };
struct Choice { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; };

static const int REFUSED = 7;
static unsigned choices;
static int failing, alive;  // descriptions that are not destroyed

static float half_to_float(uint16_t b) {
    int exponent = b >> 10 & 31, fraction = b & 1023;
    if (exponent) fraction |= 1024;
    float x = ldexpf((float)fraction, exponent ? exponent - 25 : -24);
    return b & 0x8000 ? -x : x;
}

static float read(const void* p, i64 at, int type) {
    if (type == 0) return ((const float*)p)[at];
    uint16_t b = ((const uint16_t*)p)[at];
    if (type == 2) return half_to_float(b);
    uint32_t bits = (uint32_t)b << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// A float32 rounded to TF32 (10 bits behind the point, to nearest) where the product asks for it.
static float rounded(float x, const struct Description* d) {
    if (d->compute != 77) return x;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}

static void write(void* p, i64 at, int type, float x) {
    if (type == 0) { ((float*)p)[at] = x; return; }
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t out = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    if (type == 2) {
        int exponent;
        frexpf(fabsf(x), &exponent);
        exponent = exponent < -13 ? -13 : exponent;
        int steps = (int)nearbyintf(ldexpf(fabsf(x), 11 - exponent));
        out = x == 0 ? 0 : (uint16_t)(steps + ((exponent + 13) << 10));
        if (x < 0) out |= 0x8000;
    }
    ((uint16_t*)p)[at] = out;
}

extern "C" {

unsigned stub_choices() { return choices; }
void stub_fail(int now) { failing = now; }
int stub_alive() { return alive; }

int cublasLtMatmulDescDestroy(Description* d) {
    if (!d) return REFUSED;
    free(d);
    --alive;
    return 0;
}

int cublasLtMatrixLayoutDestroy(Layout* l) {
    if (!l) return REFUSED;
    free(l);
    --alive;
    return 0;
}

int cublasLtCreate(void** handle) { *handle = (void*)1; return 0; }

int cublasLtMatmulDescCreate(Description** made, int compute, int scale) {
    if ((compute != 68 && compute != 77) || scale != 0) return REFUSED;
    *made = (Description*)calloc(1, sizeof(Description));
    ++alive;
    (*made)->compute = compute;
    (*made)->epilogue = 1;
    return 0;
}

int cublasLtMatmulDescSetAttribute(Description* d, int attribute, const void* value, size_t size) {
    if ((attribute == 3 || attribute == 4) && size == 4) {
        d->operations[attribute - 3] = *(const int*)value;
    } else if (attribute == 7 && size == 4) {
        d->epilogue = *(const unsigned*)value;
    } else if (attribute == 8 && size == 8) {
        d->bias = *(void* const*)value;
    } else {
        return REFUSED;
    }
    return 0;
}

int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, i64 ld) {
    bool known = type == 0 || type == 2 || type == 14;
    if (!known || !rows || !columns || ld < (i64)rows) return REFUSED;
    *made = (Layout*)calloc(1, sizeof(Layout));
    ++alive;
    **made = Layout{type, rows, columns, ld, 1, 0};
    return 0;
}

int cublasLtMatrixLayoutSetAttribute(Layout* l, int attribute, const void* value, size_t size) {
    if (attribute == 5 && size == 4) l->batch = *(const int*)value;
    else if (attribute == 6 && size == 8) l->stride = *(const i64*)value;
    else return REFUSED;
    return 0;
}

int cublasLtMatmulPreferenceCreate(Wish** made) {
    *made = (Wish*)calloc(1, sizeof(Wish));
    (*made)->reductions = 7;  // all of them, by default
    return 0;
}

int cublasLtMatmulPreferenceDestroy(Wish* wish) { free(wish); return 0; }

int cublasLtMatmulPreferenceSetAttribute(Wish* w, int attribute, const void* value, size_t size) {
    if (attribute == 1 && size == 8) w->workspace = *(const uint64_t*)value;
    else if (attribute == 3 && size == 4) w->reductions = *(const unsigned*)value;
    else if (attribute >= 5 && attribute <= 8 && size == 4) {
        w->alignments[attribute - 5] = *(const unsigned*)value;
    } else return REFUSED;
    return 0;
}

// Epilogues that are a sum: nothing, relu 2, gelu 32, a bias 4; or alone: sums of a's rows (256).
static bool known(unsigned epilogue) {
    return epilogue == 256 || !(epilogue & ~38u) || epilogue == 1;
}

static int fits(const Description* d, const Layout* a, const Layout* b, const Layout* y) {
    bool turned = d->operations[0], also = d->operations[1];
    uint64_t m = turned ? a->columns : a->rows, k = turned ? a->rows : a->columns;
    uint64_t k2 = also ? b->columns : b->rows, n = also ? b->rows : b->columns;
    if (!known(d->epilogue) || (d->epilogue == 256 && a->batch > 1)) return 0;
    if (d->compute == 77 && y->type != 0) return 0;  // TF32 is a way to multiply float32
    return m == y->rows && n == y->columns && k == k2 && a->type == y->type && b->type == y->type &&
           a->batch == y->batch && b->batch == y->batch;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, Description* d, Layout* a, Layout* b, Layout* c,
                                   Layout* y, Wish* wish, int wanted, Choice* found, int* count) {
    *count = 0;
    if (!handle || wanted < 1 || !fits(d, a, b, y) || c != y) return REFUSED;
    // In place (1) and in the dtype of the result (4): 16-bit results would be summed in 16 bits.
    if (wish->reductions & 5 || !(wish->reductions & 2)) return REFUSED;
    for (unsigned alignment : wish->alignments) {
        if (!alignment || alignment & (alignment - 1)) return REFUSED;
    }
    if (failing) return 0;
    ++choices;
    found->algorithm[0] = 42;
    found->workspace = 1024;
    found->state = 0;
    *count = 1;
    return 0;
}

int cublasLtMatmul(void* handle, Description* d, const float* alpha, const void* a, Layout* la,
                   const void* b, Layout* lb, const float* beta, const void* c, Layout* lc, void* y,
                   Layout* ly, const Choice* choice, void* workspace, size_t size, void*) {
    if (!handle || !fits(d, la, lb, ly) || lc != ly || (c != y && *beta == 0)) return REFUSED;
    if (*beta != 0 && d->epilogue != 1) return REFUSED;  // ours adds an array to a bare product
    if (choice->algorithm[0] != 42 || size < 1024 || !workspace) return REFUSED;
    memset(workspace, 0x7f, size);
    i64 inner = d->operations[0] ? la->rows : la->columns;
    for (i64 i = 0; d->epilogue == 256 && i < (i64)ly->rows; ++i) {
        float total = 0;
        for (i64 k = 0; k < inner; ++k) {
            total += read(a, d->operations[0] ? k + i * la->leading : i + k * la->leading, la->type);
        }
        write(d->bias, i, ly->type, total);
    }
    for (int e = 0; e < ly->batch; ++e)
        for (i64 j = 0; j < (i64)ly->columns; ++j)
            for (i64 i = 0; i < (i64)ly->rows; ++i) {
                float total = 0;
                for (i64 k = 0; k < inner; ++k) {
                    i64 in_a = d->operations[0] ? k + i * la->leading : i + k * la->leading;
                    i64 in_b = d->operations[1] ? j + k * lb->leading : k + j * lb->leading;
                    total += rounded(read(a, e * la->stride + in_a, la->type), d) *
                             rounded(read(b, e * lb->stride + in_b, lb->type), d);
                }
                total *= *alpha;
                i64 place = e * ly->stride + i + j * ly->leading;
                if (*beta != 0) total += *beta * read(c, place, ly->type);
                if (d->epilogue & 4) total += read(d->bias, i, ly->type);
                if (d->epilogue & 2) total = total > 0 ? total : 0;
                if (d->epilogue & 32) {
                    float t = tanhf(0.7978845608f * total * (1 + 0.044715f * total * total));
                    total = 0.5f * total * (1 + t);
                }
                write(y, place, ly->type, total);
            }
    return 0;
}

}
