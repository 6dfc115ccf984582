#include <sheaf/sheaf.h>

#include <iostream>
using namespace sheaf;

struct Line {  // any aggregate of Arrays is a tree
  Array slope, offset;
};

Array loss(const Line& line, const Array& x, const Array& y) { return mean(square(line.slope * x + line.offset - y)); }

int main() {
  Array x = linspace(-1, 1, 256), y = 3 * x + 0.5;
  auto step = jit([](Line line, Array x, Array y) {  // traced once, compiled once
    auto [error, g] = value_and_grad(loss)(line, x, y);
    return std::pair{Line{line.slope - 0.5 * g.slope, line.offset - 0.5 * g.offset}, error};
  });
  std::pair<Line, Array> state{{zeros({}), zeros({})}, 0.0};
  for (int i = 0; i < 50; ++i) state = step(state.first, x, y);
  std::cout << "y = " << state.first.slope << " x + " << state.first.offset << ", programs: " << compiles(step) << "\n";
}
