// What compiled kernel text and the engine that runs it know of each other. The text never looks for the engine: each
// thread's stack ends in its descriptor, so objects hold no state and any number of engines may run them.
#pragma once

namespace sf_host {

using u64 = unsigned long long;

struct Index {
  unsigned x, y, z;
};

enum class Access : int { load, store, atomic };
enum class Reduction : int { none, count, all, any };
enum class Mma : int { bf16, f16, tf32, s8 };

/// One `SF_SHARED` of a kernel, in a section of the object, so that the sizes are known before anything runs.
struct alignas(32) SharedArray {
  const char* kernel;
  const char* name;
  u64 bytes;
};

struct KernelEntry {
  const char* name;
  void (*call)(void* const* params);
  const int* param_bytes;
  int params;
};

/// The symbol `sf_module` of an object.
struct ModuleTable {
  const KernelEntry* kernels;
  int num_kernels;
  const SharedArray* shared_begin;
  const SharedArray* shared_end;
};

/// A tensor map as the fake driver encodes it, in the 128 bytes that the real one uses.
struct alignas(64) TensorMap {
  const void* base;
  u64 dims[2];          // inner first, in elements
  u64 row_bytes;        // from one outer index to the next
  unsigned box[2];      // inner first, in elements
  unsigned element_bytes;
  unsigned swizzle_bytes;  // 0, 32, 64 or 128
  u64 unused[9];
};
static_assert(sizeof(TensorMap) == 128);

/// The engine's functions. Those that may report a fault take their place in the text from their return address.
struct Calls {
  void (*access)(const void* address, u64 bytes, Access access, const void* site);
  void (*access_here)(const void* address, u64 bytes, Access access);
  void* (*shared)(const SharedArray* array);
  void* (*dynamic_shared)();
  unsigned (*shared_address)(const void* address);
  int (*barrier)(int id, int threads, Reduction reduction, int value);  // threads 0: the whole block
  void (*sync_warp)(unsigned mask);
  u64 (*shuffle)(unsigned mask, u64 value, int source_lane);
  unsigned (*ballot)(unsigned mask, int value);
  void (*pause)();
  void (*trap)();
  void (*cp_async)(void* shared, const void* global, int bytes, int bytes_read);
  void (*cp_async_commit)();
  void (*cp_async_wait)(int groups_left);
  void (*ldmatrix)(unsigned* registers, const void* row, int matrices, int is_transposed);
  void (*mma)(Mma kind, void* d, const unsigned* a, const unsigned* b);
  void (*mbarrier_init)(u64* barrier, int count);
  void (*mbarrier_arrive)(u64* barrier, int expected_bytes);
  void (*mbarrier_wait)(u64* barrier, int parity);
  void (*tma_load_2d)(void* shared, const TensorMap* map, u64* barrier, int x, int y);
  void (*wgmma)(Mma kind, float* d, u64 a, u64 b, int n, bool a_is_transposed, bool b_is_transposed);
  void (*wgmma_commit)();
  void (*wgmma_wait)(int groups_left);
};

/// At the end of each thread's stack, whose size is a power of two and its alignment too.
struct alignas(64) Thread {
  Index thread, block, block_size, grid_size;
  const Calls* calls;
  void* fiber;
};

constexpr u64 kStackBytes = 1 << 17;
constexpr u64 kDescriptorBytes = 256;
static_assert(sizeof(Thread) <= kDescriptorBytes);

/// The running thread. Not volatile: within a thread the answer never changes.
inline __attribute__((always_inline)) Thread* self() {
  u64 stack;
  asm("movq %%rsp, %0" : "=r"(stack));
  return reinterpret_cast<Thread*>((stack & ~(kStackBytes - 1)) + kStackBytes - kDescriptorBytes);
}

}  // namespace sf_host
