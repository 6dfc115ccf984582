// Fully sharded data parallelism: every device has a part of each parameter, of its moments and of the batch.
// Parameters are gathered where they are used, and gradients scattered as they are summed.
#include "parallel.h"

int main() {
  using namespace sheaf;
  ensure_devices(8);
  try {
    const Mesh mesh({{"data", 8}});
    return parallel::compare("fsdp", mesh, zero_specs(parallel::initial(random::key(1)), mesh, "data"), P("data"));
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
