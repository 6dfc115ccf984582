// What jacfwd and jacrev need besides jvp, vjp and vmap.
#include "sheaf/jacobian.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trace/recorder.h"
#include "trace/trace_call.h"

namespace sheaf::detail {

void check_floats(const char* who, const char* what, std::span<const Array> leaves, Loc own) {
  const Loc loc = UserLine::or_own(own);
  for (const Array& x : leaves)
    if (!is_differentiable(leaf_type(x, loc).type.dtype()))
      throw TypeError(loc, fmt::format("{}: the {} is {}; only floats have derivatives", who, what, type_text(x)));
}

std::size_t find_row(std::string_view path, const std::vector<std::string>& paths, Loc loc) {
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (paths[i] == path) return i;
  throw TypeError(loc, fmt::format("Jacobian: the result has no leaf \"{}\"; it has {}", path, fmt::join(paths, ", ")));
}

Array unit_arrays(const Array& x) {
  Shape shape = x.shape();
  shape.insert(shape.begin(), x.size());
  return reshape(eye(x.size(), x.dtype()), shape);
}

namespace {

Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Shape without_first(Shape shape) {
  shape.erase(shape.begin());
  return shape;
}

}  // namespace

Array as_columns(const Array& d, const Array& x) {
  return reshape(moveaxis(d, 0, d.rank() - 1), joined(without_first(d.shape()), x.shape()));
}

Array as_rows(const Array& d, const Array& y) { return reshape(d, joined(y.shape(), without_first(d.shape()))); }

}  // namespace sheaf::detail
