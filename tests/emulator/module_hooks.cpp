// The thread sanitizer's hooks, which every load and store of kernel text calls: the engine's, with the place that it
// came from. Compiled once and linked into every module, since a call's return address is all that they need of it.
#include "tests/emulator/abi.h"

#define SF_HOOK(name, bytes, kind)                                                                \
  extern "C" void __tsan_##name(void* p) {                                                        \
    sf_host::self()->calls->access(p, bytes, sf_host::Access::kind, __builtin_return_address(0)); \
  }
SF_HOOK(read1, 1, load)
SF_HOOK(read2, 2, load)
SF_HOOK(read4, 4, load)
SF_HOOK(read8, 8, load)
SF_HOOK(read16, 16, load)
SF_HOOK(write1, 1, store)
SF_HOOK(write2, 2, store)
SF_HOOK(write4, 4, store)
SF_HOOK(write8, 8, store)
SF_HOOK(write16, 16, store)
SF_HOOK(unaligned_read2, 2, load)
SF_HOOK(unaligned_read4, 4, load)
SF_HOOK(unaligned_read8, 8, load)
SF_HOOK(unaligned_read16, 16, load)
SF_HOOK(unaligned_write2, 2, store)
SF_HOOK(unaligned_write4, 4, store)
SF_HOOK(unaligned_write8, 8, store)
SF_HOOK(unaligned_write16, 16, store)
#undef SF_HOOK
extern "C" {
void __tsan_read_range(void* p, __SIZE_TYPE__ bytes) {
  sf_host::self()->calls->access(p, bytes, sf_host::Access::load, __builtin_return_address(0));
}
void __tsan_write_range(void* p, __SIZE_TYPE__ bytes) {
  sf_host::self()->calls->access(p, bytes, sf_host::Access::store, __builtin_return_address(0));
}
void* __tsan_memcpy(void* to, const void* from, __SIZE_TYPE__ bytes) {
  sf_host::self()->calls->access(from, bytes, sf_host::Access::load, __builtin_return_address(0));
  sf_host::self()->calls->access(to, bytes, sf_host::Access::store, __builtin_return_address(0));
  return __builtin_memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, __SIZE_TYPE__ bytes) {
  sf_host::self()->calls->access(to, bytes, sf_host::Access::store, __builtin_return_address(0));
  return __builtin_memset(to, value, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
