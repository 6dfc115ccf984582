// What jacfwd and jacrev need besides jvp, vjp and vmap.
#include "sheaf/jacobian.h"

#include <fmt/format.h>

#include "trace/recorder.h"
#include "trace/trace_call.h"

namespace sheaf::detail {

void check_floats(const char* who, const char* what, std::span<const Array> leaves, Loc own) {
  const Loc loc = UserLine::or_own(own);
  for (const Array& x : leaves)
    if (!is_differentiable(leaf_type(x, loc).type.dtype()))
      throw TypeError(loc, fmt::format("{}: the {} is {}; only floats have derivatives", who, what, type_text(x)));
}

Array unit_arrays(const Array& x) {
  Shape shape = x.shape();
  shape.insert(shape.begin(), x.size());
  return reshape(eye(x.size(), x.dtype()), shape);
}

}  // namespace sheaf::detail
