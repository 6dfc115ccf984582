// CUDA's environment for kernel text that runs on a CPU, and the host bodies of those pieces of the prelude whose
// device body is PTX (codegen/cuda/prelude.cpp). Every load and store of the text reaches the engine through the thread
// sanitizer's instrumentation (module_hooks.cpp); what this file does in the text's name is marked unchecked and
// reported once, by hand.
#pragma once

#include "abi.h"

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define SF_INLINE static inline __attribute__((always_inline))
#define SF_UNCHECKED __attribute__((noinline, no_sanitize("thread")))

extern "C" {
void* memcpy(void*, const void*, __SIZE_TYPE__);
void* memset(void*, int, __SIZE_TYPE__);
float fmodf(float, float), fmaf(float, float, float), fabsf(float), floorf(float), ceilf(float), truncf(float),
    rintf(float), expf(float), exp2f(float), logf(float), log2f(float), tanhf(float), sqrtf(float), fmaxf(float, float),
    fminf(float, float);
double fmod(double, double), fma(double, double, double), fabs(double), floor(double), ceil(double), trunc(double),
    rint(double);
}

// ---- where a thread is --------------------------------------------------------------------------------------------
namespace sf_host {
template <u64 Offset>
SF_INLINE unsigned field() {
  unsigned value;
  asm("movl %c2(%1), %0" : "=r"(value) : "r"(self()), "i"(Offset));
  return value;
}
template <u64 Offset>
SF_INLINE Index index() {
  return {field<Offset>(), field<Offset + 4>(), field<Offset + 8>()};
}
/// One of the engine's functions.
template <class F, u64 Offset>
SF_INLINE F function() {
  F value;
  asm("movq %c2(%1), %0\n\tmovq %c3(%0), %0"
      : "=&r"(value)
      : "r"(self()), "i"(__builtin_offsetof(Thread, calls)), "i"(Offset));
  return value;
}
}  // namespace sf_host
#define SF_CALL(name) (sf_host::function<decltype(sf_host::Calls::name), __builtin_offsetof(sf_host::Calls, name)>())
#define threadIdx (sf_host::index<__builtin_offsetof(sf_host::Thread, thread)>())
#define blockIdx (sf_host::index<__builtin_offsetof(sf_host::Thread, block)>())
#define blockDim (sf_host::index<__builtin_offsetof(sf_host::Thread, block_size)>())
#define gridDim (sf_host::index<__builtin_offsetof(sf_host::Thread, grid_size)>())
#define warpSize 32

SF_INLINE int sf_linear_thread() {
  const sf_host::Index t = threadIdx, n = blockDim;
  return static_cast<int>(t.x + n.x * (t.y + n.y * t.z));
}

// ---- scalars ------------------------------------------------------------------------------------------------------
template <class To, class From>
SF_INLINE To sf_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits of another size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
SF_INLINE unsigned __float_as_uint(float a) { return sf_bits<unsigned>(a); }
SF_INLINE int __float_as_int(float a) { return sf_bits<int>(a); }
SF_INLINE float __uint_as_float(unsigned a) { return sf_bits<float>(a); }
SF_INLINE float __int_as_float(int a) { return sf_bits<float>(a); }
SF_INLINE long long __double_as_longlong(double a) { return sf_bits<long long>(a); }
SF_INLINE double __longlong_as_double(long long a) { return sf_bits<double>(a); }
SF_INLINE float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
SF_INLINE double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
SF_INLINE unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((sf_host::u64)a * b >> 32); }
SF_INLINE sf_host::u64 __umul64hi(sf_host::u64 a, sf_host::u64 b) {
  return static_cast<sf_host::u64>((unsigned __int128)a * b >> 64);
}
SF_INLINE int __clz(int a) { return a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a)); }
SF_INLINE int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll(static_cast<sf_host::u64>(a)); }
SF_INLINE int __ffs(int a) { return __builtin_ffs(a); }
SF_INLINE int __popc(unsigned a) { return __builtin_popcount(a); }
SF_INLINE int __popcll(sf_host::u64 a) { return __builtin_popcountll(a); }

/// `nearest` moved one float towards zero if it lies beyond what it was rounded from.
SF_INLINE float sf_towards_zero(float nearest, bool is_beyond) {
  return is_beyond ? __uint_as_float(__float_as_uint(nearest) - 1) : nearest;
}
SF_INLINE float __double2float_rz(double a) {
  const float f = static_cast<float>(a);
  return sf_towards_zero(f, __builtin_fabs(static_cast<double>(f)) > __builtin_fabs(a));
}
// The 64-bit mantissa of the x87 format holds every integer and every float near one.
SF_INLINE float __ll2float_rz(long long a) {
  const float f = static_cast<float>(a);
  const long double wide = f, exact = a;
  return sf_towards_zero(f, a < 0 ? wide < exact : wide > exact);
}
SF_INLINE float __ull2float_rz(sf_host::u64 a) {
  const float f = static_cast<float>(a);
  const long double wide = f, exact = a;
  return sf_towards_zero(f, wide > exact);
}

// ---- barriers and warps -------------------------------------------------------------------------------------------
SF_INLINE void __syncthreads() { SF_CALL(barrier)(0, 0, sf_host::Reduction::none, 0); }
SF_INLINE int __syncthreads_count(int p) { return SF_CALL(barrier)(0, 0, sf_host::Reduction::count, p != 0); }
SF_INLINE int __syncthreads_and(int p) { return SF_CALL(barrier)(0, 0, sf_host::Reduction::all, p != 0); }
SF_INLINE int __syncthreads_or(int p) { return SF_CALL(barrier)(0, 0, sf_host::Reduction::any, p != 0); }
SF_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { SF_CALL(sync_warp)(mask); }
SF_INLINE void __threadfence() {}
SF_INLINE void __threadfence_block() {}
SF_INLINE void __nanosleep(unsigned) { SF_CALL(pause)(); }
SF_INLINE void __trap() { SF_CALL(trap)(); }

template <class T>
SF_INLINE T sf_shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  sf_host::u64 bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = SF_CALL(shuffle)(mask, bits, source);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
/// Lanes exchange within segments of `width`, a power of two; a source outside the lane's own segment is the lane.
template <class T>
SF_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = sf_linear_thread() & 31;
  return sf_shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
SF_INLINE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = sf_linear_thread() & 31, source = lane ^ bits;
  return sf_shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane);
}
template <class T>
SF_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = sf_linear_thread() & 31, source = lane + static_cast<int>(by);
  return sf_shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane);
}
template <class T>
SF_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = sf_linear_thread() & 31, source = lane - static_cast<int>(by);
  return sf_shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane);
}
SF_INLINE unsigned __ballot_sync(unsigned mask, int p) { return SF_CALL(ballot)(mask, p != 0); }
SF_INLINE int __any_sync(unsigned mask, int p) { return SF_CALL(ballot)(mask, p != 0) != 0; }
SF_INLINE int __all_sync(unsigned mask, int p) { return SF_CALL(ballot)(mask, p != 0) == mask; }

// ---- atomics: a block's threads are fibers of one thread, so plain code between two calls of the engine is atomic --
template <class T, class F>
SF_UNCHECKED T sf_exchange_with(T* p, T value, F f) {
  const T old = *p;
  *p = f(old, value);
  return old;
}
template <class T, class F>
SF_INLINE T sf_atomic(T* p, T value, F f) {
  SF_CALL(access_here)(p, sizeof(T), sf_host::Access::atomic);
  return sf_exchange_with(p, value, f);
}
#define SF_ATOMIC(name, type, expression)                                          \
  SF_INLINE type name(type* p, type value) {                                       \
    return sf_atomic(p, value, [](type a, type b) -> type { return expression; }); \
  }
#define SF_ATOMICS_OF_INTEGER(type)                                                                   \
  SF_ATOMIC(atomicAdd, type, a + b)                                                                   \
  SF_ATOMIC(atomicExch, type, b)                                                                      \
  SF_ATOMIC(atomicMin, type, b < a ? b : a)                                                           \
  SF_ATOMIC(atomicMax, type, b > a ? b : a)                                                           \
  SF_ATOMIC(atomicAnd, type, (a & b))                                                                 \
  SF_ATOMIC(atomicOr, type, a | b)                                                                    \
  SF_ATOMIC(atomicXor, type, a ^ b)                                                                   \
  SF_INLINE type atomicCAS(type* p, type expected, type value) {                                      \
    return sf_atomic(p, value, [expected](type a, type b) -> type { return a == expected ? b : a; }); \
  }
SF_ATOMICS_OF_INTEGER(int)
SF_ATOMICS_OF_INTEGER(unsigned)
SF_ATOMICS_OF_INTEGER(unsigned long long)
SF_ATOMIC(atomicMin, long long, b < a ? b : a)
SF_ATOMIC(atomicMax, long long, b > a ? b : a)
SF_INLINE unsigned short atomicCAS(unsigned short* p, unsigned short expected, unsigned short value) {
  return sf_atomic(p, value, [expected](unsigned short a, unsigned short b) { return a == expected ? b : a; });
}
SF_ATOMIC(atomicAdd, float, a + b)
SF_ATOMIC(atomicAdd, double, a + b)
SF_ATOMIC(atomicExch, float, b)
#undef SF_ATOMICS_OF_INTEGER
#undef SF_ATOMIC

// ---- the prelude's host bodies ------------------------------------------------------------------------------------
#define SF_SHARED(type, name, count)                                                           \
  static const sf_host::SharedArray sf_array_of_##name                                         \
      __attribute__((section("sf_shared"), used)) = {__func__, #name, sizeof(type) * (count)}; \
  type* const name = static_cast<type*>(SF_CALL(shared)(&sf_array_of_##name))
#define SF_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(SF_CALL(dynamic_shared)())

template <class T, int N>
struct __align__(sizeof(T) * N) sf_vec {
  T v[N];
};
template <class T, int N>
SF_UNCHECKED sf_vec<T, N> sf_copy_of(const T* p) {
  return *reinterpret_cast<const sf_vec<T, N>*>(p);
}
template <class T, int N>
SF_UNCHECKED void sf_copy_to(T* p, sf_vec<T, N> value) {
  *reinterpret_cast<sf_vec<T, N>*>(p) = value;
}
template <int N, class T>
SF_INLINE sf_vec<T, N> sf_load(const T* p) {
  SF_CALL(access_here)(p, sizeof(T) * N, sf_host::Access::load);
  return sf_copy_of<T, N>(p);
}
template <int N, class T>
SF_INLINE void sf_store(T* p, sf_vec<T, N> value) {
  SF_CALL(access_here)(p, sizeof(T) * N, sf_host::Access::store);
  sf_copy_to<T, N>(p, value);
}

static inline float sf_f16_to_float(unsigned short a) {
  const unsigned sign = (a & 0x8000u) << 16, exponent = a >> 10 & 31, fraction = a & 0x3ff;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent > 0) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}
static inline unsigned short sf_float_to_f16(float a) {
  const unsigned bits = __float_as_uint(a), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00);  // rounds beyond the largest
  if (magnitude >= 0x38800000u) {
    return static_cast<unsigned short>(sign | (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13);
  }
  // Below the smallest normal number the half's unit is 2^-24; adding 2^-1 rounds the float's last bits to it.
  return static_cast<unsigned short>(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u));
}
static inline unsigned short sf_nearest_bf16(float a) {
  const unsigned u = __float_as_uint(a);
  return a != a ? 0x7fff : static_cast<unsigned short>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
SF_INLINE unsigned sf_pack_bf16(float low, float high) {
  return sf_nearest_bf16(low) | static_cast<unsigned>(sf_nearest_bf16(high)) << 16;
}
SF_INLINE unsigned sf_pack_f16(float low, float high) {
  return sf_float_to_f16(low) | static_cast<unsigned>(sf_float_to_f16(high)) << 16;
}
SF_INLINE unsigned sf_here(unsigned a) { return a; }
SF_INLINE float sf_exp2(float a) {
  const float r = exp2f(a);
  return r < 0x1p-126f ? 0 : r;
}
/// Ties away from zero, as cvt.rna does.
SF_INLINE unsigned sf_float_to_tf32(float a) {
  const unsigned u = __float_as_uint(a);
  return a != a ? 0x7fffffffu : (u & 0x7fffffffu) == 0x7f800000u ? u : (u + 0x1000u) & ~0x1fffu;
}

SF_INLINE unsigned sf_shared_address(const void* p) { return SF_CALL(shared_address)(p); }
SF_INLINE void sf_barrier(int id, int threads) { SF_CALL(barrier)(id, threads, sf_host::Reduction::none, 0); }
template <int Bytes>
SF_INLINE void sf_cp_async(void* shared, const void* global, bool is_read) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  SF_CALL(cp_async)(shared, global, Bytes, is_read ? Bytes : 0);
}
SF_INLINE void sf_cp_async_commit() { SF_CALL(cp_async_commit)(); }
template <int N>
SF_INLINE void sf_cp_async_wait() {
  SF_CALL(cp_async_wait)(N);
}
template <int N>
SF_INLINE void sf_ldmatrix(unsigned* registers, const void* row) {
  SF_CALL(ldmatrix)(registers, row, N, false);
}
template <int N>
SF_INLINE void sf_ldmatrix_trans(unsigned* registers, const void* row) {
  SF_CALL(ldmatrix)(registers, row, N, true);
}
SF_INLINE void sf_mma_bf16(float* d, const unsigned* a, const unsigned* b) {
  SF_CALL(mma)(sf_host::Mma::bf16, d, a, b);
}
SF_INLINE void sf_mma_f16(float* d, const unsigned* a, const unsigned* b) { SF_CALL(mma)(sf_host::Mma::f16, d, a, b); }
SF_INLINE void sf_mma_tf32(float* d, const unsigned* a, const unsigned* b) {
  SF_CALL(mma)(sf_host::Mma::tf32, d, a, b);
}
SF_INLINE void sf_mma_s8(int* d, const unsigned* a, const unsigned* b) { SF_CALL(mma)(sf_host::Mma::s8, d, a, b); }
using sf_tensor_map = sf_host::TensorMap;
SF_INLINE void sf_mbarrier_init(unsigned long long* barrier, int count) { SF_CALL(mbarrier_init)(barrier, count); }
SF_INLINE void sf_mbarrier_init_fence() {}
SF_INLINE void sf_mbarrier_arrive(unsigned long long* barrier) { SF_CALL(mbarrier_arrive)(barrier, 0); }
SF_INLINE void sf_mbarrier_expect(unsigned long long* barrier, int bytes) { SF_CALL(mbarrier_arrive)(barrier, bytes); }
SF_INLINE void sf_mbarrier_wait(unsigned long long* barrier, int parity) { SF_CALL(mbarrier_wait)(barrier, parity); }
SF_INLINE void sf_tma_load_2d(void* shared, const sf_tensor_map* map, unsigned long long* barrier, int x, int y) {
  SF_CALL(tma_load_2d)(shared, map, barrier, x, y);
}
SF_INLINE void sf_async_proxy_fence() {}
template <int N>
SF_INLINE void sf_registers_down() {}
template <int N>
SF_INLINE void sf_registers_up() {}
SF_INLINE void sf_wgmma_fence() {}
SF_INLINE void sf_wgmma_commit() { SF_CALL(wgmma_commit)(); }
template <int N>
SF_INLINE void sf_wgmma_wait() {
  SF_CALL(wgmma_wait)(N);
}
template <int N, int TransA = 0, int TransB = 0>
SF_INLINE void sf_wgmma_bf16(float* d, unsigned long long a, unsigned long long b) {
  SF_CALL(wgmma)(sf_host::Mma::bf16, d, a, b, N, TransA, TransB);
}
template <int N, int TransA = 0, int TransB = 0>
SF_INLINE void sf_wgmma_f16(float* d, unsigned long long a, unsigned long long b) {
  SF_CALL(wgmma)(sf_host::Mma::f16, d, a, b, N, TransA, TransB);
}

// ---- entries ------------------------------------------------------------------------------------------------------
namespace sf_host {
template <int... I>
struct Numbers {};
template <int N, int... I>
struct NumbersBelow : NumbersBelow<N - 1, N - 1, I...> {};
template <int... I>
struct NumbersBelow<0, I...> {
  using Type = Numbers<I...>;
};
template <class... A, int... I>
SF_UNCHECKED void apply(void (*kernel)(A...), void* const* params, Numbers<I...>) {
  kernel(*static_cast<A*>(params[I])...);
}
template <class K, K Kernel>
struct Entry;
template <class... A, void (*Kernel)(A...)>
struct Entry<void (*)(A...), Kernel> {
  static constexpr int params = sizeof...(A);
  static constexpr int bytes[sizeof...(A) + 1] = {static_cast<int>(sizeof(A))..., 0};
  SF_UNCHECKED static void call(void* const* p) { apply(Kernel, p, typename NumbersBelow<params>::Type()); }
};
}  // namespace sf_host
#define SF_ENTRY(kernel)                                                                                         \
  {#kernel, sf_host::Entry<decltype(&kernel), &kernel>::call, sf_host::Entry<decltype(&kernel), &kernel>::bytes, \
   sf_host::Entry<decltype(&kernel), &kernel>::params}
extern "C" {
extern const sf_host::SharedArray __start_sf_shared[] __attribute__((weak, visibility("hidden")));
extern const sf_host::SharedArray __stop_sf_shared[] __attribute__((weak, visibility("hidden")));
}
