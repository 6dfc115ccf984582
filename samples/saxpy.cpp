// The first program: a compiled function, its gradient, and both over a batch. Prints one line and checks it.
#include <sheaf/sheaf.h>

#include <iostream>

using namespace sheaf;

int main() {
  auto saxpy = jit([](Array a, Array x, Array y) { return a * x + y; }, {.name = "saxpy"});
  const Array x = arange(4.0), y = ones({4});

  const Array z = saxpy(2.0f, x, y);
  const Array slope = grad([&](Array a) { return sum(saxpy(a, x, y)); })(2.0f);
  const Array rows = vmap(saxpy, {.in = {0, none, none}})(array({1.0, 2.0}), x, y);

  std::cout << "saxpy(2, x, y) = " << z << ", d sum/da = " << slope << ", compiled " << compiles(saxpy) << " program\n";
  const bool ok = all_equal(z, array({1.0, 3.0, 5.0, 7.0})) && all_equal(slope, 6.0) && all_equal(rows[1], z);
  return ok ? 0 : 1;
}
