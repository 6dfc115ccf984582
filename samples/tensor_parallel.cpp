// Tensor parallelism: every device has a part of the hidden layer and all of the batch. One all-reduce of what the
// parts contribute to the output.
#include "parallel.h"

int main() {
  using namespace sheaf;
  ensure_devices(8);
  try {
    const Specs network = specs({{".W1", P(none, "model")}, {".b1", P("model")}, {".W2", P("model")}, {"", P()}});
    return parallel::compare("tensor parallel", Mesh({{"model", 8}}), network, P());
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
