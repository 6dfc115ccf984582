// Kernels that use the prelude's GPU instructions, one or a few each: run on the emulator, given to NVRTC, and, where
// there is a GPU, run on it for the same bits.
#pragma once

namespace sheaf::emulator {

inline constexpr const char* kWarps = R"(
extern "C" __global__ void __launch_bounds__(64) lanes(const int* x, int* y) {
  const int t = threadIdx.x, v = x[t];
  int sum = v;
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
  y[t] = sum;
  y[64 + t] = __shfl_up_sync(0xffffffffu, v, 3);
  y[128 + t] = __shfl_down_sync(0xffffffffu, v, 3, 8);
  y[192 + t] = __shfl_sync(0xffffffffu, v, 5);
  y[256 + t] = (int)__ballot_sync(0xffffffffu, v % 3 == 0);
  y[320 + t] = __syncthreads_count(v % 5 == 0);
  y[384 + t] = __any_sync(0xffffffffu, v == 40) + 2 * __all_sync(0xffffffffu, v < 32) + 4 * __syncthreads_and(v < 63) + 8 * __syncthreads_or(v == 63);
}
extern "C" __global__ void __launch_bounds__(64) atomics(const int* x, int* y) {
  const int v = x[threadIdx.x] + 64 * blockIdx.x;
  atomicAdd(y, v);
  atomicMax(y + 1, v);
  atomicMin(y + 2, v);
  atomicOr((unsigned*)y + 3, 1u << (v % 32));
  atomicAdd((float*)y + 4, 0.5f);
  if (atomicCAS(y + 5, 0, v + 1) == 0) atomicExch(y + 6, v);
}
extern "C" __global__ void __launch_bounds__(64) half_block(const int* x, int* y) {
  SF_SHARED(int, part, 64);
  part[threadIdx.x] = x[threadIdx.x];
  sf_barrier(1 + threadIdx.x / 32, 32);
  y[threadIdx.x] = part[threadIdx.x ^ 31];
}
extern "C" __global__ void __launch_bounds__(64) other_half(const int* x, int* y) {
  SF_SHARED(int, part, 64);
  part[threadIdx.x] = x[threadIdx.x];  // [its half]
  sf_barrier(1 + threadIdx.x / 32, 32);
  if (threadIdx.x < 32) y[threadIdx.x] = part[threadIdx.x ^ 32];  // [other half]
}
extern "C" __global__ void __launch_bounds__(256) halves(const sf_u16* x, sf_u16* y, float* z) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  z[i] = sf_f16_to_float(x[i]);
  y[i] = sf_float_to_f16(z[i]);
}
)";

inline constexpr const char* kTensorCores = R"(
template <bool IsBf16> __device__ void half_product(const sf_u16* a, const sf_u16* b, float* c) {
  SF_DYNAMIC_SHARED(sf_u16, tile);
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  sf_cp_async<16>(tile + 8 * lane, a + 8 * lane, true);
  if (lane < 16) sf_cp_async<16>(tile + 256 + 8 * lane, b + 8 * lane, true);
  sf_cp_async_commit();
  sf_cp_async_wait<0>();
  __syncwarp();
  sf_u32 left[4], right[2];
  sf_ldmatrix<4>(left, tile + 16 * (lane % 16) + 8 * (lane / 16));
  sf_ldmatrix_trans<2>(right, tile + 256 + 8 * (lane % 16));
  float d[4] = {0, 0, 0, 0};
  if (IsBf16) sf_mma_bf16(d, left, right);
  else sf_mma_f16(d, left, right);
  for (int i = 0; i < 4; ++i) c[8 * (g + i / 2 * 8) + 2 * t + i % 2] = d[i];
}
extern "C" __global__ void __launch_bounds__(32) bf16_product(const sf_u16* a, const sf_u16* b, float* c) { half_product<true>(a, b, c); }
extern "C" __global__ void __launch_bounds__(32) f16_product(const sf_u16* a, const sf_u16* b, float* c) { half_product<false>(a, b, c); }
extern "C" __global__ void __launch_bounds__(32) tf32_product(const float* a, const float* b, float* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  sf_u32 left[4], right[2];
  for (int i = 0; i < 4; ++i) left[i] = sf_float_to_tf32(a[8 * (g + i % 2 * 8) + t + i / 2 * 4]);
  for (int i = 0; i < 2; ++i) right[i] = sf_float_to_tf32(b[8 * (t + 4 * i) + g]);
  float d[4] = {1, 1, 1, 1};
  sf_mma_tf32(d, left, right);
  for (int i = 0; i < 4; ++i) c[8 * (g + i / 2 * 8) + 2 * t + i % 2] = d[i];
}
extern "C" __global__ void __launch_bounds__(32) s8_product(const sf_i8* a, const sf_i8* b, int* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  sf_u32 left[4] = {}, right[2] = {};
  for (int e = 0; e < 4; ++e) {
    for (int i = 0; i < 4; ++i) left[i] |= (sf_u32)(sf_u8)a[32 * (g + i % 2 * 8) + 16 * (i / 2) + 4 * t + e] << (8 * e);
    for (int i = 0; i < 2; ++i) right[i] |= (sf_u32)(sf_u8)b[8 * (16 * i + 4 * t + e) + g] << (8 * e);
  }
  int d[4] = {};
  sf_mma_s8(d, left, right);
  for (int i = 0; i < 4; ++i) c[8 * (g + i / 2 * 8) + 2 * t + i % 2] = d[i];
}
extern "C" __global__ void __launch_bounds__(32) packs(const float* x, sf_u32* y) {
  const int t = threadIdx.x;
  y[2 * t] = sf_pack_bf16(x[2 * t], x[2 * t + 1]);
  y[2 * t + 1] = sf_pack_f16(x[2 * t], x[2 * t + 1]);
}
)";

// A warpgroup loads, the other multiplies: c[64, 64] = a[64, 64 steps] b[64, 64 steps]^T through two stages.
inline constexpr const char* kWarpgroups = R"(
template <int Fault> __device__ __forceinline__ void pipeline(const sf_tensor_map* a, const sf_tensor_map* b, float* c, int steps) {
  SF_DYNAMIC_SHARED(unsigned char, memory);
  sf_u64* full = (sf_u64*)(memory + 2 * 16384);
  sf_u64* empty = full + 2;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      sf_mbarrier_init(full + s, 1);
      sf_mbarrier_init(empty + s, 1);
    }
    sf_mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    sf_registers_down<40>();
    for (int k = 0; threadIdx.x == 0 && k < steps; ++k) {
      const int s = k % 2;
      if (Fault != 1) sf_mbarrier_wait(empty + s, (k / 2 & 1) ^ 1);
      sf_mbarrier_expect(full + s, Fault == 2 ? 8192 : 16384);  // [expect]
      sf_tma_load_2d(memory + 16384 * s, a, full + s, 64 * k, 0);  // [copy a]
      sf_tma_load_2d(memory + 16384 * s + 8192, b, full + s, 64 * k, 0);  // [copy b]
    }
  } else {
    sf_registers_up<232>();
    float d[32];
    #pragma unroll
    for (int i = 0; i < 32; ++i) d[i] = 0;
    for (int k = 0; k < steps; ++k) {
      const int s = k % 2;
      if (Fault != 3) sf_mbarrier_wait(full + s, k / 2 & 1);
      sf_wgmma_fence();
      #pragma unroll
      for (int part = 0; part < 4; ++part) sf_wgmma_bf16<64>(d, sf_wgmma_descriptor(memory + 16384 * s + 32 * part), sf_wgmma_descriptor(memory + 16384 * s + 8192 + 32 * part));  // [multiply]
      sf_wgmma_commit();
      if (Fault == 4 && threadIdx.x == 128) sf_mbarrier_arrive(empty + s);
      sf_wgmma_wait<0>();
      if (Fault != 4 && threadIdx.x == 128) sf_mbarrier_arrive(empty + s);
    }
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    #pragma unroll
    for (int i = 0; i < 32; ++i) c[64 * (16 * warp + g + i / 2 % 2 * 8) + 8 * (i / 4) + 2 * t + i % 2] = d[i];
  }
}
extern "C" __global__ void __launch_bounds__(256) piped(const __grid_constant__ sf_tensor_map a, const __grid_constant__ sf_tensor_map b, float* c, int steps) { pipeline<0>(&a, &b, c, steps); }
extern "C" __global__ void __launch_bounds__(256) overtakes(const __grid_constant__ sf_tensor_map a, const __grid_constant__ sf_tensor_map b, float* c, int steps) { pipeline<1>(&a, &b, c, steps); }
extern "C" __global__ void __launch_bounds__(256) expects_half(const __grid_constant__ sf_tensor_map a, const __grid_constant__ sf_tensor_map b, float* c, int steps) { pipeline<2>(&a, &b, c, steps); }
extern "C" __global__ void __launch_bounds__(256) never_waits(const __grid_constant__ sf_tensor_map a, const __grid_constant__ sf_tensor_map b, float* c, int steps) { pipeline<3>(&a, &b, c, steps); }
extern "C" __global__ void __launch_bounds__(256) frees_early(const __grid_constant__ sf_tensor_map a, const __grid_constant__ sf_tensor_map b, float* c, int steps) { pipeline<4>(&a, &b, c, steps); }
)";

}  // namespace sheaf::emulator
