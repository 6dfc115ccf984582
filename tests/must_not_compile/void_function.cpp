// A function to be transformed is a function: what it computes is what it returns.
// says: a function to be transformed returns its results
#include <sheaf/sheaf.h>

void run(const sheaf::Array& x) {
  sheaf::jit([](sheaf::Array) {})(x);
}
