// A product of two matrices spread over a mesh in several ways: for each, where the parts are, what is sent, and that
// the result is the product on one device.
#include <sheaf/sheaf.h>

#include <cstdio>

using namespace sheaf;

int main() {
  ensure_devices(8);
  try {
    const Mesh mesh({{"x", 4}, {"y", 2}});
    const Array a = random::normal(random::key(0), {512, 1024}), b = random::normal(random::key(1), {1024, 256});
    const auto product = jit([](Array lhs, Array rhs) { return dot(lhs, rhs); }, {.name = "product"});
    const Array expected = product(a, b);
    bool is_right = true;
    for (const auto& [lhs, rhs] : {std::pair{P("x"), P(none, "y")},      // rows and columns: nothing is sent
                                   std::pair{P("x", "y"), P("y")},       // the index summed over is split alike
                                   std::pair{P("x", "y"), P("x", "y")},  // nothing fits
                                   std::pair{P(), P()}}) {
      const Array left = device_put(a, mesh, lhs), right = device_put(b, mesh, rhs);
      const Array c = product(left, right);
      const double error = max(abs(c - expected)).item<double>();
      std::printf("%s times %s gives %s, largest difference %.1e\n%s\n", to_string(lhs).c_str(), to_string(rhs).c_str(),
                  to_string(c.sharding().spec).c_str(), error,
                  product.trace(left, right).lower().collectives().text.c_str());
      is_right &= error < 1e-3;
    }
    std::printf("%s", visualize_sharding(device_put(a, mesh, P("x", "y"))).c_str());
    return is_right ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
