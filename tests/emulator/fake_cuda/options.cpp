// The environment, with what a user mistypes there refused by ending the process: a test that runs under other options
// than it asked for proves nothing.
#include "tests/emulator/fake_cuda/options.h"

#include <cstdio>
#include <cstdlib>

namespace sheaf::fake_cuda {
namespace {

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

[[noreturn]] void refuse(const char* name, const std::string& value) {
  std::fprintf(stderr, "fake CUDA: %s=%s is not understood\n", name, value.c_str());
  std::abort();
}

template <class T>
void read_number(const char* name, T& number) {
  const std::string text = text_of(name);
  if (text.empty()) return;
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (*end || value < 0) refuse(name, text);
  number = static_cast<T>(value);
}

void read_architecture(const char* name, Options& options) {
  const std::string text = text_of(name);
  if (text.empty()) return;
  int number = 0;
  if (std::sscanf(text.c_str(), "sm_%d", &number) != 1 || number < 70) refuse(name, text);
  options.major = number / 10;
  options.minor = number % 10;
}

void read_order(const char* name, Options::Order& order) {
  const std::string text = text_of(name);
  if (text == "random") order = Options::Order::random;
  else if (text == "waited_last") order = Options::Order::waited_last;
  else if (!text.empty() && text != "waited_first") refuse(name, text);
}

}  // namespace

Options read_options() {
  Options o;
  read_number("SHEAF_FAKE_CUDA_DEVICES", o.devices);
  read_architecture("SHEAF_FAKE_CUDA_ARCH", o);
  read_number("SHEAF_FAKE_CUDA_MEMORY", o.memory_bytes);
  read_number("SHEAF_FAKE_CUDA_VERSION", o.version);
  read_number("SHEAF_FAKE_CUDA_INIT", o.init_result);
  o.lacks = text_of("SHEAF_FAKE_CUDA_LACKS");
  read_order("SHEAF_FAKE_CUDA_ORDER", o.order);
  read_number("SHEAF_FAKE_CUDA_SEED", o.seed);
  read_number("SHEAF_FAKE_CUDA_PATIENCE_MS", o.patience_ms);
  read_number("SHEAF_FAKE_CUDA_CHECK", o.checks_kernels);
  read_number("SHEAF_FAKE_CUDA_COUNT", o.counts_accesses);
  o.report = text_of("SHEAF_FAKE_CUDA_REPORT");
  read_number("SHEAF_FAKE_CUDA_LEAKS", o.lists_leaks);
  return o;
}

}  // namespace sheaf::fake_cuda
