// A batch of products by named axes: the function multiplies two matrices, "batch" and "model" are dims it does not
// see, spread over the axes x and y of a mesh. The result is that of the batched product, in parts where it says.
#include <sheaf/sheaf.h>

#include <cstdio>

using namespace sheaf;

int main() {
  ensure_devices(8);
  try {
    const Mesh mesh({{"x", 4}, {"y", 2}});
    const Array a = random::normal(random::key(0), {16, 32, 64}), b = random::normal(random::key(1), {16, 64, 48});
    const auto row_times = [](Array row, Array matrix) { return einsum("...j,...jk->...k", row, matrix); };
    const auto product = xmap(row_times, {.mesh = mesh,
                                          .in = {{"batch", "model", ellipsis}, {"batch", ellipsis}},
                                          .out = {{"batch", "model", ellipsis}},
                                          .axis_resources = {{"batch", "x"}, {"model", "y"}}});
    const Array c = product(a, b);
    const double error = max(abs(c - matmul(a, b))).item<double>();
    std::printf("%s, %s, largest difference %.1e  %s\n", to_string(c.shape()).c_str(), to_string(c.sharding()).c_str(),
                error, error < 1e-4 ? "ok" : "WRONG");
    return error < 1e-4 ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
