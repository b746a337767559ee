// Random words by Philox4x32-10, and dropout that draws its mask in the same pass.
//
// Word e is word e % 4 of block e / 4; block i is Philox of the counter (i % 2^32, i / 2^32, draw,
// 0) with the key (seed, 0): the same words as everywhere else in this package.
// Source: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.

struct Words {
    u32 at[4];
};

__device__ __forceinline__ Words philox(i64 block, u32 seed, u32 draw) {
    u32 c0 = (u32)block, c1 = (u32)((u64)block >> 32), c2 = draw, c3 = 0, k0 = seed, k1 = 0;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Words words = {{c0, c1, c2, c3}};
    return words;
}

// state is (seed, draw), on the device: a captured graph draws again when it changes.
extern "C" __global__ void random_words(IN(u32) state, OUT(u32) words, i64 count, int packed) {
    u32 seed = state[0], draw = state[1];
    for (i64 block = first_element(); block * 4 < count; block += element_step()) {
        Words w = philox(block, seed, draw);
        if (packed && block * 4 + 4 <= count) {
            Pack<u32, 4> pack = {{w.at[0], w.at[1], w.at[2], w.at[3]}};
            write_pack<4>(words + block * 4, pack);
        } else {
            for (int k = 0; k < 4 && block * 4 + k < count; ++k) words[block * 4 + k] = w.at[k];
        }
    }
}

// y = 0 where the element's word is below `threshold`, x * scale elsewhere.
extern "C" __global__ void dropout(
    IN(Scalar) x, IN(u32) state, OUT(Scalar) y, u32 threshold, float scale, i64 count,
    int packed) {
    u32 seed = state[0], draw = state[1];
    for (i64 block = first_element(); block * 4 < count; block += element_step()) {
        Words w = philox(block, seed, draw);
        i64 at = block * 4;
        if (packed && at + 4 <= count) {
            Numbers<4> v = load<4>(x + at);
#pragma unroll
            for (int k = 0; k < 4; ++k) v.at[k] = w.at[k] < threshold ? 0.0f : v.at[k] * scale;
            store<4>(y + at, v);
        } else {
            for (int k = 0; k < 4 && at + k < count; ++k) {
                put(y + at + k, w.at[k] < threshold ? 0.0f : get(x + at + k) * scale);
            }
        }
    }
}
