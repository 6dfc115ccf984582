// The prelude as a table, name to definition; later entries may call earlier ones. Inline PTX stands here and nowhere
// else, under `#ifndef SF_HOST`: where that is defined the text runs on a CPU, which brings bodies of its own.
// ScalarOps mean what ir/scalar.h says, so that the bits equal the CPU's.
#include "codegen/cuda/prelude.h"

#include <fmt/format.h>

#include <iterator>
#include <vector>

#include "codegen/cuda/attention_text.h"
#include "codegen/cuda/tiles.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

using ir::ScalarOp;

constexpr CudaPiece kPieces[] = {
    {"sf_floor_div", R"(
template <class T> __device__ T sf_floor_div(T a, T b) { T q = a / b; return a % b != 0 && a < 0 ? q - 1 : q; })"},
    {"sf_floor_mod", R"(
template <class T> __device__ T sf_floor_mod(T a, T b) { T r = a % b; return r < 0 ? r + b : r; })"},
    {"sf_is_nan", R"(
template <class T> __device__ bool sf_is_nan(T a) { return a != a; })"},
    // NaN if either is NaN; the order of zeros is that of their signs.
    {"sf_min", R"(
__device__ float sf_min(float a, float b) { return a != a || b != b ? a + b : a == b ? __uint_as_float(__float_as_uint(a) | __float_as_uint(b)) : a < b ? a : b; }
__device__ double sf_min(double a, double b) { return a != a || b != b ? a + b : a == b ? __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b)) : a < b ? a : b; }
template <class T> __device__ T sf_min(T a, T b) { return a < b ? a : b; })"},
    {"sf_max", R"(
__device__ float sf_max(float a, float b) { return a != a || b != b ? a + b : a == b ? __uint_as_float(__float_as_uint(a) & __float_as_uint(b)) : a > b ? a : b; }
__device__ double sf_max(double a, double b) { return a != a || b != b ? a + b : a == b ? __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b)) : a > b ? a : b; }
template <class T> __device__ T sf_max(T a, T b) { return a > b ? a : b; })"},
    // x / 0 has all bits set, the lowest integer by -1 is itself: nothing traps.
    {"sf_div_signed", R"(
template <class T> __device__ T sf_div_signed(T a, T b) { return b == 0 ? T(-1) : b == T(-1) ? T(0ull - (unsigned long long)a) : T(a / b); })"},
    {"sf_div_unsigned", R"(
template <class T> __device__ T sf_div_unsigned(T a, T b) { return b == 0 ? T(~T(0)) : T(a / b); })"},
    {"sf_rem_signed", R"(
template <class T> __device__ T sf_rem_signed(T a, T b) { return b == 0 ? a : b == T(-1) ? T(0) : T(a % b); })"},
    {"sf_rem_unsigned", R"(
template <class T> __device__ T sf_rem_unsigned(T a, T b) { return b == 0 ? a : T(a % b); })"},
    // Shifts by the width or more leave nothing but the sign. The amount is compared as unsigned.
    {"sf_shl", R"(
template <int Bits, class T> __device__ T sf_shl(T a, unsigned long long by) { return by >= Bits ? T(0) : T((unsigned long long)a << by); })"},
    {"sf_shr", R"(
template <int Bits, class T> __device__ T sf_shr(T a, unsigned long long by) { return by >= Bits ? T(0) : T(a >> by); })"},
    {"sf_sar", R"(
template <int Bits, class T> __device__ T sf_sar(T a, unsigned long long by) { return T(a >> (by >= Bits ? Bits - 1 : by)); })"},
    // NaN is 0; beyond the range is its end. `Lo` and `Past` are powers of two, exact in every float type.
    {"sf_float_to_int", R"(
template <class I, class F> __device__ I sf_float_to_int(F a, F lo, F past, I least, I most) { return a != a ? I(0) : a < lo ? least : a >= past ? most : I(a); })"},
    {"sf_bf16_to_float", R"(
__device__ float sf_bf16_to_float(unsigned short a) { return __uint_as_float((unsigned)a << 16); })"},
    {"sf_float_to_bf16", R"(
__device__ unsigned short sf_float_to_bf16(float a) { unsigned u = __float_as_uint(a); return a != a ? (unsigned short)(u >> 16 | 0x40) : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16); })"},
    {"sf_f16_to_float", R"(
#ifndef SF_HOST
__device__ float sf_f16_to_float(unsigned short a) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); return r; }
#endif)"},
    {"sf_float_to_f16", R"(
#ifndef SF_HOST
__device__ unsigned short sf_float_to_f16(float a) { unsigned short r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
#endif)"},
    // Of five exponent bits there are infinities; of four there are none, and one NaN. A small format is read as an f32 of
    // too small an exponent, which a multiplication mends; below its normal numbers an addition rounds at the last bit.
    {"sf_f8_to_float", R"(
template <int E, int M> __device__ float sf_f8_to_float(unsigned char a) {
  const unsigned magnitude = a & 0x7f, top = ((1u << E) - 1) << M, sign = (unsigned)(a & 0x80) << 24;
  unsigned v = __float_as_uint(__uint_as_float(magnitude << (23 - M)) * __uint_as_float((255u - (1u << (E - 1))) << 23));
  if (E == 5 && magnitude == top) v = 0x7f800000u;
  if (E == 5 ? magnitude > top : magnitude == 0x7f) v = 0x7fc00000u;
  return __uint_as_float(v | sign);
})"},
    {"sf_float_to_f8", R"(
template <int E, int M> __device__ unsigned char sf_float_to_f8(float a) {
  const unsigned bits = __float_as_uint(a), magnitude = bits & 0x7fffffff, bias = (1u << (E - 1)) - 1, top = ((1u << E) - 1) << M;
  const unsigned overflow = E == 5 ? top : 0x7f, nan = E == 5 ? top | 1u << (M - 1) : 0x7f;
  const unsigned normal = (magnitude - ((127u - bias) << 23) + (1u << (22 - M)) - 1 + (magnitude >> (23 - M) & 1)) >> (23 - M);
  const unsigned anchor = (151u - bias - M) << 23;
  const unsigned subnormal = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(anchor)) - anchor;
  unsigned v = magnitude < (128u - bias) << 23 ? subnormal : normal;
  if (v > overflow || magnitude >= 0x7f800000u) v = overflow;
  if (magnitude > 0x7f800000u) v = nan;
  return (unsigned char)(v | bits >> 24 & 0x80);
})"},
    // To odd: the f32 keeps a sticky last bit, so that rounding it again rounds the f64 once.
    {"sf_double_to_odd", R"(
__device__ float sf_double_to_odd(double a) { float r = __double2float_rz(a); return a != a || (double)r == a ? r : __uint_as_float(__float_as_uint(r) | 1); })"},
    {"sf_long_to_odd", R"(
__device__ float sf_long_to_odd(sf_i64 a) { float r = __ll2float_rz(a); return (sf_i64)r == a ? r : __uint_as_float(__float_as_uint(r) | 1); }
__device__ float sf_long_to_odd(sf_u64 a) { float r = __ull2float_rz(a); return (sf_u64)r == a ? r : __uint_as_float(__float_as_uint(r) | 1); })"},

    // ---- a warp: the value of the lane `by` above, where there is one, and of the first lane ----
    {"sf_lane_above", R"(
template <class T> __device__ __forceinline__ T sf_lane_above(T a, int by) { if constexpr (sizeof(T) < 4) return (T)__shfl_down_sync(0xffffffffu, (int)a, by); else return __shfl_down_sync(0xffffffffu, a, by); })"},
    {"sf_first_lane", R"(
template <class T> __device__ __forceinline__ T sf_first_lane(T a) { if constexpr (sizeof(T) < 4) return (T)__shfl_sync(0xffffffffu, (int)a, 0); else return __shfl_sync(0xffffffffu, a, 0); })"},

    // ---- one step of many threads: what is there becomes f of it, whoever comes between ----
    {"sf_update", R"(
template <class Word, class T, class F> __device__ __forceinline__ void sf_update_word(T* p, F f) {
  Word seen = atomicCAS((Word*)p, (Word)0, (Word)0), expected;
  do {
    expected = seen;
    const T after = f(*(const T*)&expected);
    seen = atomicCAS((Word*)p, expected, *(const Word*)&after);
  } while (seen != expected);
}
template <class T, class F> __device__ __forceinline__ void sf_update(T* p, F f) {
  if constexpr (sizeof(T) == 2) sf_update_word<sf_u16>(p, f);
  else if constexpr (sizeof(T) == 4) sf_update_word<sf_u32>(p, f);
  else sf_update_word<sf_u64>(p, f);
})"},
    {"sf_atomic_add_bf16", R"(
__device__ __forceinline__ void sf_atomic_add_bf16(sf_u16* p, sf_u16 a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.add.noftz.bf16 [%0], %1;" :: "l"(p), "h"(a) : "memory");
#else
  sf_update(p, [=](sf_u16 b) { return sf_float_to_bf16(sf_bf16_to_float(b) + sf_bf16_to_float(a)); });
#endif
})"},
    {"sf_atomic_add_f16", R"(
__device__ __forceinline__ void sf_atomic_add_f16(sf_u16* p, sf_u16 a) {
#ifdef SF_HOST
  sf_update(p, [=](sf_u16 b) { return sf_float_to_f16(sf_f16_to_float(b) + sf_f16_to_float(a)); });
#else
  asm volatile("red.add.noftz.f16 [%0], %1;" :: "l"(p), "h"(a) : "memory");
#endif
})"},
    {"sf_atomic_add_number", R"(
template <class T> __device__ __forceinline__ void sf_atomic_add_number(T* p, T a) { atomicAdd(p, a); }
__device__ __forceinline__ void sf_atomic_add_number(sf_i64* p, sf_i64 a) { atomicAdd((sf_u64*)p, (sf_u64)a); })"},

    // ---- memory: arrays of a block, and up to 16 bytes at once, aligned to their size ----
    {"SF_SHARED", R"(
#ifndef SF_HOST
#define SF_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#endif)"},
    {"SF_DYNAMIC_SHARED", R"(
#ifndef SF_HOST
#define SF_DYNAMIC_SHARED(type, name) extern __shared__ __align__(1024) unsigned char sf_dynamic[]; type* const name = (type*)sf_dynamic
#endif)"},
    // Addresses as one parameter.
    {"sf_pointers", R"(
template <int N> struct sf_pointers { void* at[N]; };)"},
    {"sf_vec", R"(
#ifndef SF_HOST
template <class T, int N> struct __align__(sizeof(T) * N) sf_vec { T v[N]; };
#endif)"},
    {"sf_load", R"(
#ifndef SF_HOST
template <int N, class T> __device__ __forceinline__ sf_vec<T, N> sf_load(const T* p) { return *(const sf_vec<T, N>*)p; }
#endif)"},
    {"sf_store", R"(
#ifndef SF_HOST
template <int N, class T> __device__ __forceinline__ void sf_store(T* p, sf_vec<T, N> a) { *(sf_vec<T, N>*)p = a; }
#endif)"},
    {"sf_shared_address", R"(
#ifndef SF_HOST
__device__ __forceinline__ sf_u32 sf_shared_address(const void* p) { return (sf_u32)__cvta_generic_to_shared(p); }
#endif)"},
    // Of `threads` threads, a multiple of 32; barrier 0 is __syncthreads'.
    {"sf_barrier", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }
#endif)"},

    // ---- sm_80: asynchronous copies of 4, 8 or 16 bytes, zeros where not read ----
    {"sf_cp_async", R"(
#ifndef SF_HOST
template <int Bytes> __device__ __forceinline__ void sf_cp_async(void* shared, const void* global, bool is_read) {
  if constexpr (Bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(sf_shared_address(shared)), "l"(global), "r"(is_read ? 16 : 0) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(sf_shared_address(shared)), "l"(global), "n"(Bytes), "r"(is_read ? Bytes : 0) : "memory");
}
__device__ __forceinline__ void sf_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void sf_cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
#endif)"},

    // Its argument, which the compiler takes for another: what depends on it is computed there, and not ahead of a loop,
    // where it would hold registers throughout.
    {"sf_here", R"(
#ifndef SF_HOST
__device__ __forceinline__ sf_u32 sf_here(sf_u32 a) { asm volatile("" : "+r"(a)); return a; }
#endif)"},
    // 2^a for what need not be exact: results below 2^-126 are 0.
    {"sf_exp2", R"(
#ifndef SF_HOST
__device__ __forceinline__ float sf_exp2(float a) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a)); return r; }
#endif)"},

    // ---- tensor cores of a warp: d += a b. Halves in pairs, the lower k first; lane = 4 g + t ----
    {"sf_pack_bf16", R"(
#ifndef SF_HOST
__device__ __forceinline__ sf_u32 sf_pack_bf16(float low, float high) { sf_u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
#endif)"},
    {"sf_pack_f16", R"(
#ifndef SF_HOST
__device__ __forceinline__ sf_u32 sf_pack_f16(float low, float high) { sf_u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
#endif)"},
    {"sf_float_to_tf32", R"(
#ifndef SF_HOST
__device__ __forceinline__ sf_u32 sf_float_to_tf32(float a) { sf_u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(a)); return r; }
#endif)"},
    // N matrices of 8 by 8 halves: lane i gives the address of row i % 8 of matrix i / 8.
    {"sf_ldmatrix", R"(
#ifndef SF_HOST
template <int N> __device__ __forceinline__ void sf_ldmatrix(sf_u32* r, const void* row) {
  if constexpr (N == 4) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sf_shared_address(row)) : "memory");
  else if constexpr (N == 2) asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(sf_shared_address(row)) : "memory");
  else asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(sf_shared_address(row)) : "memory");
}
template <int N> __device__ __forceinline__ void sf_ldmatrix_trans(sf_u32* r, const void* row) {
  if constexpr (N == 4) asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sf_shared_address(row)) : "memory");
  else if constexpr (N == 2) asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(sf_shared_address(row)) : "memory");
  else asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(sf_shared_address(row)) : "memory");
}
#endif)"},
    {"sf_mma_bf16", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_mma_bf16(float* d, const sf_u32* a, const sf_u32* b) { asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
#endif)"},
    {"sf_mma_f16", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_mma_f16(float* d, const sf_u32* a, const sf_u32* b) { asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
#endif)"},
    {"sf_mma_tf32", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_mma_tf32(float* d, const sf_u32* a, const sf_u32* b) { asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
#endif)"},
    {"sf_mma_s8", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_mma_s8(int* d, const sf_u32* a, const sf_u32* b) { asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
#endif)"},

    // ---- sm_90a: mbarriers in shared memory, copies of tensor boxes, tensor cores of a warpgroup ----
    {"sf_mbarrier", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_mbarrier_init(sf_u64* b, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(sf_shared_address(b)), "r"(count) : "memory"); }
__device__ __forceinline__ void sf_mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void sf_mbarrier_arrive(sf_u64* b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(sf_shared_address(b)) : "memory"); }
__device__ __forceinline__ void sf_mbarrier_expect(sf_u64* b, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sf_shared_address(b)), "r"(bytes) : "memory"); }
__device__ __forceinline__ void sf_mbarrier_wait(sf_u64* b, int parity) {
  sf_u32 is_done = 0;
  while (!is_done) asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(is_done) : "r"(sf_shared_address(b)), "r"(parity) : "memory");
}
#endif)"},
    // The map is what cuTensorMapEncodeTiled makes, passed as a __grid_constant__ parameter.
    {"sf_tensor_map", R"(
#ifndef SF_HOST
struct __align__(64) sf_tensor_map { sf_u64 words[16]; };
#endif)"},
    {"sf_tma_load_2d", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_tma_load_2d(void* shared, const sf_tensor_map* map, sf_u64* barrier, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" :: "r"(sf_shared_address(shared)), "l"(map), "r"(sf_shared_address(barrier)), "r"(x), "r"(y) : "memory"); }
#endif)"},
    {"sf_async_proxy_fence", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_async_proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
#endif)"},
    {"sf_registers", R"(
#ifndef SF_HOST
template <int N> __device__ __forceinline__ void sf_registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> __device__ __forceinline__ void sf_registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
#endif)"},
    // Rows of 128 bytes along k, swizzled as the tensor copy leaves them, in groups of 8 rows. Or transposed: along m
    // or n, a row for each term, and `next` bytes on the next 64 rows or columns.
    {"sf_wgmma_descriptor", R"(
__device__ __forceinline__ sf_u64 sf_wgmma_descriptor_trans(const void* p, int next) { return (sf_u64)((sf_shared_address(p) & 0x3ffff) >> 4) | (sf_u64)(next >> 4) << 16 | 64ull << 32 | 1ull << 62; }
__device__ __forceinline__ sf_u64 sf_wgmma_descriptor(const void* p) { return (sf_u64)((sf_shared_address(p) & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; })"},
    {"sf_wgmma_", R"(
#ifndef SF_HOST
__device__ __forceinline__ void sf_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void sf_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void sf_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
#endif)"},
};

/// d[64, N] += a[64, 16] b[N, 16], both read through descriptors: lane 4 g + t of warp w holds rows 16 w + g and + 8.
/// Transposed operands have their rows of 128 bytes along m or n.
std::string wgmma(std::string_view type) {
  std::string out = fmt::format(
      "\n#ifndef SF_HOST\ntemplate <int N, int TransA = 0, int TransB = 0> __device__ __forceinline__ void "
      "sf_wgmma_{}(float* d, sf_u64 a, sf_u64 b) {{",
      type);
  for (int n : {64, 128, 256}) {
    const int registers = n / 2;  // of each thread
    std::string names, operands;
    for (int i = 0; i < registers; ++i) {
      names += fmt::format("{}%{}", i ? ", " : "", i);
      operands += fmt::format("{}\"+f\"(d[{}])", i ? ", " : "", i);
    }
    out += fmt::format(
        "\n  if constexpr (N == {0}) asm volatile(\"wgmma.mma_async.sync.aligned.m64n{0}k16.f32.{1}.{1} {{{2}}}, %{3}, "
        "%{4}, 1, 1, 1, %{5}, %{6};\" : {7} : \"l\"(a), \"l\"(b), \"n\"(TransA), \"n\"(TransB));",
        n, type, names, registers, registers + 1, registers + 2, registers + 3, operands);
  }
  return out + "\n}\n#endif";
}

std::string call(std::string_view function, std::span<const std::string> in) {
  return fmt::format("{}({})", function, fmt::join(in, ", "));
}

/// Computed with as an f32.
bool is_narrow(DType t) {
  return t == DType::f16 || t == DType::bf16 || t == DType::f8e4m3 || t == DType::f8e5m2;
}

std::string_view to_float(DType t) {
  switch (t) {
    case DType::f16: return "sf_f16_to_float";
    case DType::bf16: return "sf_bf16_to_float";
    case DType::f8e4m3: return "sf_f8_to_float<4, 3>";
    default: return "sf_f8_to_float<5, 2>";
  }
}

std::string_view from_float(DType t) {
  switch (t) {
    case DType::f16: return "sf_float_to_f16";
    case DType::bf16: return "sf_float_to_bf16";
    case DType::f8e4m3: return "sf_float_to_f8<4, 3>";
    default: return "sf_float_to_f8<5, 2>";
  }
}

std::string shift(ScalarOp op, DType t, const std::string in[3]) {
  const int bits = 8 * size_bytes(t);
  const std::string_view name = op == ScalarOp::shl ? "sf_shl" : op == ScalarOp::shr_arith ? "sf_sar" : "sf_shr";
  const std::string_view type = cuda_type(t);
  // The operand in the signedness the shift is about, the amount as an unsigned number of the same width.
  const std::string unsigned_type = fmt::format("sf_u{}", bits), signed_type = fmt::format("sf_i{}", bits);
  return fmt::format("({}){}<{}>(({})({}), ({})({}))", type, name, bits,
                     op == ScalarOp::shr_arith ? signed_type : unsigned_type, in[0], unsigned_type, in[1]);
}

std::string float_to_int(DType from, DType to, const std::string& a) {
  const int bits = 8 * size_bytes(to) - (is_signed_int(to) ? 1 : 0);
  const char* suffix = from == DType::f64 ? "" : "f";
  const std::string past = fmt::format("0x1p{}{}", bits, suffix);
  const std::string lo = is_signed_int(to) ? "-" + past : fmt::format("0x0p0{}", suffix);
  const std::uint64_t most = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  return fmt::format("sf_float_to_int<{}>({}, {}, {}, {}, {})", cuda_type(to), a, lo, past,
                     cuda_constant(to, is_signed_int(to) ? most + 1 : 0), cuda_constant(to, most));
}

std::string convert(DType from, DType to, const std::string& a) {
  if (is_narrow(from)) {
    const std::string f = fmt::format("{}({})", to_float(from), a);
    return to == DType::f32 ? f : convert(DType::f32, to, f);
  }
  if (is_bool(to)) return fmt::format("(({}) != 0)", a);
  if (is_narrow(to)) {
    // Through f32: exact from narrow integers; to odd from anything wider.
    const std::string f = from == DType::f32 ? a
                          : from == DType::f64 || size_bytes(from) == 4
                              ? fmt::format("sf_double_to_odd((double)({}))", a)
                          : size_bytes(from) == 8 ? fmt::format("sf_long_to_odd({})", a)
                                                  : fmt::format("(float)({})", a);
    return fmt::format("{}({})", from_float(to), f);
  }
  if (is_float(from) && is_int(to)) return float_to_int(from, to, a);
  return fmt::format("({})({})", cuda_type(to), a);
}

std::string bitcast(DType from, DType to, const std::string& a) {
  if (from == DType::f32 && size_bytes(to) == 4) return fmt::format("({})__float_as_uint({})", cuda_type(to), a);
  if (from == DType::f64 && size_bytes(to) == 8) return fmt::format("({})__double_as_longlong({})", cuda_type(to), a);
  if (to == DType::f32) return fmt::format("__uint_as_float((sf_u32)({}))", a);
  if (to == DType::f64) return fmt::format("__longlong_as_double((sf_i64)({}))", a);
  if (is_bool(to)) return fmt::format("(({}) != 0)", a);
  return fmt::format("({})({})", cuda_type(to), a);
}

std::string infix(DType t, std::string_view op, const std::string in[3]) {
  // C++ computes narrow integers as int: cut back. Signed overflow is undefined: add and multiply as unsigned.
  if (!is_int(t)) return fmt::format("({} {} {})", in[0], op, in[1]);
  const std::string_view wide = size_bytes(t) == 8 ? "sf_u64" : "sf_u32";
  return fmt::format("({})(({})({}) {} ({})({}))", cuda_type(t), wide, in[0], op, wide, in[1]);
}

std::string float_op(ScalarOp op, DType t, const std::string in[3]) {
  const bool is_f32 = t == DType::f32;
  const auto one = [&](const char* f32_name, const char* f64_name) {
    return fmt::format("{}({})", is_f32 ? f32_name : f64_name, in[0]);
  };
  switch (op) {
    case ScalarOp::div: return fmt::format("({} / {})", in[0], in[1]);
    case ScalarOp::rem: return fmt::format("{}({}, {})", is_f32 ? "fmodf" : "fmod", in[0], in[1]);
    case ScalarOp::neg: return fmt::format("(-{})", in[0]);
    case ScalarOp::abs: return one("fabsf", "fabs");
    case ScalarOp::fma: return call(is_f32 ? "fmaf" : "fma", {in, 3});
    case ScalarOp::sqrt: return one("__fsqrt_rn", "__dsqrt_rn");
    case ScalarOp::floor: return one("floorf", "floor");
    case ScalarOp::ceil: return one("ceilf", "ceil");
    case ScalarOp::trunc: return one("truncf", "trunc");
    case ScalarOp::round_even: return one("rintf", "rint");
    default: SHEAF_CHECK(false, std::string(name(op)) + " of floats"); return "";
  }
}

std::string int_op(ScalarOp op, DType t, const std::string in[3]) {
  const bool is_signed = is_signed_int(t);
  switch (op) {
    case ScalarOp::div: return call(is_signed ? "sf_div_signed" : "sf_div_unsigned", {in, 2});
    case ScalarOp::rem: return call(is_signed ? "sf_rem_signed" : "sf_rem_unsigned", {in, 2});
    case ScalarOp::neg: return fmt::format("({})(0ull - (sf_u64)({}))", cuda_type(t), in[0]);
    case ScalarOp::abs:
      return is_signed ? fmt::format("({} < 0 ? ({})(0ull - (sf_u64)({})) : {})", in[0], cuda_type(t), in[0], in[0])
                       : in[0];
    case ScalarOp::not_: return fmt::format("({})(~{})", cuda_type(t), in[0]);
    case ScalarOp::shl:
    case ScalarOp::shr_arith:
    case ScalarOp::shr_logical: return shift(op, t, in);
    case ScalarOp::mul_hi: return call(size_bytes(t) == 8 ? "__umul64hi" : "__umulhi", {in, 2});
    case ScalarOp::clz:
      if (size_bytes(t) == 8) return fmt::format("({})__clzll((sf_i64)({}))", cuda_type(t), in[0]);
      return fmt::format("({})(__clz((int)(sf_u{})({})) - {})", cuda_type(t), 8 * size_bytes(t), in[0],
                         32 - 8 * size_bytes(t));
    case ScalarOp::popcount:
      return fmt::format("({}){}((sf_u{})({}))", cuda_type(t), size_bytes(t) == 8 ? "__popcll" : "__popc",
                         8 * size_bytes(t), in[0]);
    default: SHEAF_CHECK(false, std::string(name(op)) + " of integers"); return "";
  }
}

}  // namespace

std::string_view cuda_type(DType t) {
  switch (t) {
    case DType::bool_: return "bool";
    case DType::i8: return "sf_i8";
    case DType::i16: return "sf_i16";
    case DType::i32: return "sf_i32";
    case DType::i64: return "sf_i64";
    case DType::u8:
    case DType::f8e4m3:
    case DType::f8e5m2: return "sf_u8";
    case DType::u16:
    case DType::f16:
    case DType::bf16: return "sf_u16";
    case DType::u32: return "sf_u32";
    case DType::u64: return "sf_u64";
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::c64:
    case DType::c128:
    case DType::token: break;
  }
  SHEAF_CHECK(false, std::string(name(t)));
  return "";
}

std::string_view cuda_atomic(ScalarOp op, DType t) {
  const bool is_word = size_bytes(t) >= 4;
  if (op == ScalarOp::add && is_word) return "sf_atomic_add_number";
  if (op == ScalarOp::add && t == DType::bf16) return "sf_atomic_add_bf16";
  if (op == ScalarOp::add && t == DType::f16) return "sf_atomic_add_f16";
  if (op == ScalarOp::min && is_word && is_int(t)) return "atomicMin";
  if (op == ScalarOp::max && is_word && is_int(t)) return "atomicMax";
  return "";
}

std::string_view cuda_memory_type(DType t) { return is_bool(t) ? "sf_u8" : cuda_type(t); }

std::string cuda_constant(DType t, std::uint64_t bits) {
  if (t == DType::f32) return fmt::format("__uint_as_float(0x{:x}u)", bits);
  if (t == DType::f64) return fmt::format("__longlong_as_double(0x{:x}ll)", bits);
  if (is_bool(t)) return bits ? "true" : "false";
  return fmt::format("({})0x{:x}ull", cuda_type(t), bits);
}

std::string cuda_expression(ScalarOp op, DType in_dtype, DType out, const std::string in[3]) {
  switch (op) {
    case ScalarOp::convert: return convert(in_dtype, out, in[0]);
    case ScalarOp::bitcast: return bitcast(in_dtype, out, in[0]);
    case ScalarOp::select: return fmt::format("({} ? {} : {})", in[0], in[1], in[2]);
    case ScalarOp::eq: return fmt::format("({} == {})", in[0], in[1]);
    case ScalarOp::ne: return fmt::format("({} != {})", in[0], in[1]);
    case ScalarOp::lt: return fmt::format("({} < {})", in[0], in[1]);
    case ScalarOp::le: return fmt::format("({} <= {})", in[0], in[1]);
    case ScalarOp::gt: return fmt::format("({} > {})", in[0], in[1]);
    case ScalarOp::ge: return fmt::format("({} >= {})", in[0], in[1]);
    case ScalarOp::add: return infix(in_dtype, "+", in);
    case ScalarOp::sub: return infix(in_dtype, "-", in);
    case ScalarOp::mul: return infix(in_dtype, "*", in);
    case ScalarOp::and_: return infix(in_dtype, "&", in);
    case ScalarOp::or_: return infix(in_dtype, "|", in);
    case ScalarOp::xor_: return infix(in_dtype, "^", in);
    case ScalarOp::min: return call("sf_min", {in, 2});
    case ScalarOp::max: return call("sf_max", {in, 2});
    default: break;
  }
  if (is_bool(in_dtype) && op == ScalarOp::not_) return fmt::format("(!{})", in[0]);
  return is_float(in_dtype) ? float_op(op, in_dtype, in) : int_op(op, in_dtype, in);
}

std::span<const CudaPiece> cuda_pieces() {
  static const std::string bf16 = wgmma("bf16"), f16 = wgmma("f16");
  static const std::vector<CudaPiece> all = [] {
    std::vector<CudaPiece> pieces(std::begin(kPieces), std::end(kPieces));
    pieces.push_back({"sf_wgmma_bf16", bf16});
    pieces.push_back({"sf_wgmma_f16", f16});
    for (const CudaPiece& piece : cuda_tile_pieces()) pieces.push_back(piece);
    for (const CudaPiece& piece : cuda_attention_pieces()) pieces.push_back(piece);
    return pieces;
  }();
  return all;
}

std::string cuda_prelude_for(std::string_view text) {
  const std::span<const CudaPiece> pieces = cuda_pieces();
  std::vector<bool> is_used(pieces.size(), false);
  std::string seen(text);
  for (std::size_t i = pieces.size(); i-- > 0;) {
    if (seen.find(pieces[i].name) == std::string::npos) continue;
    is_used[i] = true;
    seen += pieces[i].definition;
  }
  std::string out =
      "typedef signed char sf_i8; typedef short sf_i16; typedef int sf_i32; typedef long long sf_i64;\n"
      "typedef unsigned char sf_u8; typedef unsigned short sf_u16; typedef unsigned sf_u32; typedef unsigned long long sf_u64;";
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (is_used[i]) out += pieces[i].definition;
  }
  return out + "\n";
}

}  // namespace sheaf::codegen
