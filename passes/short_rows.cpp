// A walk from e down to memory: at which step the elements of each value follow each other while e goes along its last
// dim, and how many operations and reads one element of e takes.
#include "passes/short_rows.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/literal.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"
#include "ir/work.h"
#include "passes/open_group.h"

namespace sheaf::passes {

using namespace ir;

namespace {

/// By `step` elements along one dim of a value, or by none.
struct Walk {
  int dim = -1;
  std::int64_t step = 0;
};
using MaybeWalk = std::optional<Walk>;  // none: by no constant step

MaybeWalk through(const lowering::View& view, const Walk& walk) {
  Walk in;
  for (std::size_t d = 0; d < view.source.size(); ++d) {
    if (view.source[d] < 0 || view.source[d] != walk.dim) continue;
    if (in.dim >= 0) return std::nullopt;  // a diagonal
    in = {static_cast<int>(d), walk.step * view.stride[d]};
  }
  return in;
}

MaybeWalk through(const lowering::Windows& windows, const Walk& walk, int rank) {
  Walk in = walk;
  for (std::size_t m = 0; m < windows.dims.size(); ++m) {
    const auto dim = static_cast<int>(windows.dims[m]);
    if (walk.dim == dim) in.step *= windows.strides[m];
    if (walk.dim == rank + static_cast<int>(m)) in = {dim, walk.step * windows.dilations[m]};
  }
  return in;
}

// Dim by dim, as long as the walk's dim lies within one of `from`.
MaybeWalk through_reshape(const Shape& to, const Shape& from, const Walk& walk) {
  if (walk.dim < 0) return walk;
  if (num_elements(to) == 0) return std::nullopt;
  const std::int64_t step = strides_of(to)[walk.dim], end = step * to[walk.dim];
  const std::vector<std::int64_t> strides = strides_of(from);
  for (std::size_t d = 0; d < from.size(); ++d)
    if (step % strides[d] == 0 && strides[d] * from[d] % end == 0)
      return Walk{static_cast<int>(d), walk.step * (step / strides[d])};
  return std::nullopt;
}

Walk through(const lowering::Reduce& reduce, const Walk& walk) {
  std::vector<std::int64_t> dims = reduce.dims;
  std::sort(dims.begin(), dims.end());
  Walk in = walk;
  for (std::int64_t d : dims)
    if (in.dim >= d) ++in.dim;
  return in;
}

bool is_side_by_side(Value v, const MaybeWalk& walk) {
  if (!walk || walk->dim < 0) return walk.has_value();
  const std::int64_t step = strides_of(v.dims())[walk->dim] * walk->step;
  return step == 1 || step == -1;
}

class Maker {
 public:
  explicit Maker(absl::FunctionRef<bool(Value)> is_made) : is_made_(is_made) {}

  bool may_make(const Eqn& e) {
    auto last = static_cast<int>(e.out().dims().size()) - 1;
    while (last > 0 && e.out().dims()[last] == 1) --last;
    if (last < 0) return false;
    make(e, Walk{last, 1}, 1);
    return is_cheap();
  }

 private:
  static constexpr int kMost = 64;  // operations and reads for an element: as long as to write and read it

  bool is_cheap() const { return operations_ <= kMost; }
  void refuse() { operations_ = 2 * kMost; }

  // `times` for each element of e: more than once in a row.
  void visit(Value v, const MaybeWalk& walk, double times) {
    count_work();
    if (!is_cheap()) return;
    if (v.eqn() && v.eqn()->op == &ops::constant) return;
    if (is_made_(v)) return make(*v.eqn(), walk, times);
    operations_ += times;
    if (times > 1 && !is_side_by_side(v, walk)) refuse();
  }

  void visit_all(const Eqn& e, const MaybeWalk& walk, double times) {
    for (Value v : e.operands) visit(v, v.rank() == 0 ? Walk{} : walk, times);
  }

  void make(const Eqn& e, const MaybeWalk& walk, double times) {
    const Lowering l = e.op->lower(e);
    if (const auto* map = std::get_if<lowering::Map>(&l)) {
      operations_ += times * operations_of(map->fn, kMost);
      visit_all(e, walk, times);
    } else if (std::holds_alternative<lowering::Pad>(l)) {
      operations_ += times;
      visit_all(e, walk, times);
    } else if (const auto* view = std::get_if<lowering::View>(&l)) {
      visit(e.in(0), walk ? through(*view, *walk) : walk, times);
    } else if (const auto* windows = std::get_if<lowering::Windows>(&l)) {
      visit(e.in(0), walk ? through(*windows, *walk, e.in(0).rank()) : walk, times);
    } else if (std::holds_alternative<lowering::Reshape>(l)) {
      visit(e.in(0), walk ? through_reshape(e.out().dims(), e.in(0).dims(), *walk) : walk, times);
    } else if (const auto* reduce = std::get_if<lowering::Reduce>(&l)) {
      make_row(e, *reduce, walk, times);
    } else if (!std::holds_alternative<lowering::Iota>(l)) {
      refuse();
    }
  }

  void make_row(const Eqn& e, const lowering::Reduce& reduce, const MaybeWalk& walk, double times) {
    if (nest_of(e) != Nest::none || !walk || walk->dim < 0) return refuse();
    const double count = static_cast<double>(e.in(0).type().num_elements()) /
                         static_cast<double>(std::max<std::int64_t>(e.out().type().num_elements(), 1));
    operations_ += times * count;
    visit(e.in(0), through(reduce, *walk), times * count);
  }

  absl::FunctionRef<bool(Value)> is_made_;
  double operations_ = 0;
};

}  // namespace

bool may_make_rows_again(const Eqn& e, absl::FunctionRef<bool(Value)> is_made) { return Maker(is_made).may_make(e); }

}  // namespace sheaf::passes
