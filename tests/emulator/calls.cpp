// The table that kernel text calls: finds the running fiber and passes on, with the place in the text that called.
#include "tests/emulator/machine.h"

namespace sheaf::emulator {
namespace {

using sf_host::Access;
using sf_host::Mma;
using sf_host::u64;

Fiber& fiber() { return *static_cast<Fiber*>(sf_host::self()->fiber); }
Machine& machine() { return *fiber().machine; }
std::uint64_t* words(u64* p) { return reinterpret_cast<std::uint64_t*>(p); }

// Each function is called by the text itself, so its return address is the place.
void access(const void* address, u64 bytes, Access how, const void* place) {
  machine().access(fiber(), address, static_cast<std::int64_t>(bytes), how, place);
}
void access_here(const void* address, u64 bytes, Access how) {
  machine().access(fiber(), address, static_cast<std::int64_t>(bytes), how, __builtin_return_address(0));
}
void* shared(const sf_host::SharedArray* array) { return machine().shared(array); }
void* dynamic_shared() { return machine().dynamic_shared(); }
unsigned shared_address(const void* p) { return machine().shared_address(p); }
int barrier(int id, int threads, sf_host::Reduction reduction, int value) {
  return machine().barrier(fiber(), id, threads, reduction, value, __builtin_return_address(0));
}
void sync_warp(unsigned mask) { machine().sync_warp(fiber(), mask, __builtin_return_address(0)); }
u64 shuffle(unsigned mask, u64 value, int source_lane) {
  return machine().shuffle(fiber(), mask, value, source_lane, __builtin_return_address(0));
}
unsigned ballot(unsigned mask, int value) {
  return machine().ballot(fiber(), mask, value, __builtin_return_address(0));
}
void pause() { machine().pause(fiber(), __builtin_return_address(0)); }
void trap() { machine().trap(fiber(), __builtin_return_address(0)); }
void cp_async(void* to, const void* from, int bytes, int bytes_read) {
  machine().cp_async(fiber(), {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, bytes_read,
                               __builtin_return_address(0)});
}
void cp_async_commit() { machine().cp_async_commit(fiber()); }
void cp_async_wait(int groups_left) { machine().cp_async_wait(fiber(), groups_left); }
void ldmatrix(unsigned* registers, const void* row, int matrices, int is_transposed) {
  machine().ldmatrix(fiber(), registers, row, matrices, is_transposed != 0, __builtin_return_address(0));
}
void mma(Mma kind, void* d, const unsigned* a, const unsigned* b) {
  machine().mma(fiber(), kind, d, a, b, __builtin_return_address(0));
}
void mbarrier_init(u64* at, int count) {
  machine().mbarrier_init(fiber(), words(at), count, __builtin_return_address(0));
}
void mbarrier_arrive(u64* at, int expected_bytes) {
  machine().mbarrier_arrive(fiber(), words(at), expected_bytes, __builtin_return_address(0));
}
void mbarrier_wait(u64* at, int parity) {
  machine().mbarrier_wait(fiber(), words(at), parity, __builtin_return_address(0));
}
void tma_load_2d(void* to, const sf_host::TensorMap* map, u64* at, int x, int y) {
  machine().tma_load_2d(fiber(), {static_cast<std::byte*>(to), *map, words(at), x, y, __builtin_return_address(0)});
}
void wgmma(Mma kind, float* d, u64 a, u64 b, int n, bool a_is_transposed, bool b_is_transposed) {
  machine().wgmma(fiber(), {kind, d, a, b, n, a_is_transposed, b_is_transposed, __builtin_return_address(0)});
}
void wgmma_commit() { machine().wgmma_commit(fiber()); }
void wgmma_wait(int groups_left) { machine().wgmma_wait(fiber(), groups_left, __builtin_return_address(0)); }

}  // namespace

const sf_host::Calls kCalls = {
    .access = access,
    .access_here = access_here,
    .shared = shared,
    .dynamic_shared = dynamic_shared,
    .shared_address = shared_address,
    .barrier = barrier,
    .sync_warp = sync_warp,
    .shuffle = shuffle,
    .ballot = ballot,
    .pause = pause,
    .trap = trap,
    .cp_async = cp_async,
    .cp_async_commit = cp_async_commit,
    .cp_async_wait = cp_async_wait,
    .ldmatrix = ldmatrix,
    .mma = mma,
    .mbarrier_init = mbarrier_init,
    .mbarrier_arrive = mbarrier_arrive,
    .mbarrier_wait = mbarrier_wait,
    .tma_load_2d = tma_load_2d,
    .wgmma = wgmma,
    .wgmma_commit = wgmma_commit,
    .wgmma_wait = wgmma_wait,
};

}  // namespace sheaf::emulator
