// A driver that has nothing but its version, as SHEAF_FAKE_CUDA_VERSION says.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) unsigned cuDriverGetVersion(int* version) {
  const char* text = std::getenv("SHEAF_FAKE_CUDA_VERSION");
  *version = text ? std::atoi(text) : 12000;
  return 0;
}
