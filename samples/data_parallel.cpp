// Data parallelism: every device has all parameters and a part of the batch. One all-reduce of the gradients.
#include "parallel.h"

int main() {
  using namespace sheaf;
  ensure_devices(8);
  try {
    return parallel::compare("data parallel", Mesh({{"data", 8}}), P(), P("data"));
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
