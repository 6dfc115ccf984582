// Loading OpenBLAS. It picks its kernels when it is loaded, from the environment first and from a table of CPUs it
// knows only then; an unknown CPU gets SSE3 kernels. So the environment is set first to the best that this CPU can run,
// or the comparison would be with another machine's kernels. Sheaf links it for LAPACK, so it is loaded before main.
#include "openblas.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "team.h"

namespace bench {
namespace {

template <class F>
F symbol(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

const char* best_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

OpenBlas* load() {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen("libopenblas.so", RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  const auto sgemm = symbol<OpenBlas::Sgemm>(library, "cblas_sgemm");
  const auto set_threads = symbol<void (*)(int)>(library, "openblas_set_num_threads");
  const auto core = symbol<char* (*)()>(library, "openblas_get_corename");
  if (!sgemm || !set_threads || !core) return nullptr;
  set_threads(Team::global().size());
  return new OpenBlas{.core = core(), .sgemm = sgemm};
}

}  // namespace

void OpenBlas::multiply(bool transpose_x, bool transpose_y, int m, int n, int k, const float* x, const float* y,
                        float* out) const {
  constexpr int row_major = 101, plain = 111, transposed = 112;
  sgemm(row_major, transpose_x ? transposed : plain, transpose_y ? transposed : plain, m, n, k, 1, x,
        transpose_x ? m : k, y, transpose_y ? k : n, 0, out, n);
}

void start_with_best_openblas(char** argv) {
  const char* best = best_kernels();
  const char* chosen = getenv("OPENBLAS_CORETYPE");
  if (!best || (chosen && std::strcmp(chosen, best) == 0)) return;
  unsetenv("OPENBLAS_L2_SIZE");
  setenv("OPENBLAS_CORETYPE", best, 1);
  execv("/proc/self/exe", argv);  // returns only where that fails: then with the kernels there are
}

const OpenBlas* openblas() {
  static const OpenBlas* const library = load();
  return library;
}

}  // namespace bench
