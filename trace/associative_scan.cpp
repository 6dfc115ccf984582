// Prefixes by an associative function: odd and even elements are combined pairwise, the half-length problem is solved,
// and its answer fills in the rest (Blelloch, CMU-CS-90-190). The function is called 2 log2(n) times, on whole slices.
#include <fmt/format.h>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "sheaf/control.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/recorder.h"
#include "trace/region_op.h"

namespace sheaf::detail {
namespace {

using Arrays = std::vector<Array>;

// Elements start, start + step, ... below stop.
Array part(const Array& x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step, Loc loc) {
  const ir::ops::DimList zeros(x.rank(), 0), ones(x.rank(), 1);
  ir::ops::Slice attrs{.start = zeros, .limit = x.shape(), .stride = ones};
  attrs.start[axis] = start, attrs.limit[axis] = stop, attrs.stride[axis] = step;
  const RuleKey key = RuleKey().add(std::int64_t{axis}).add(start).add(stop).add(step);
  return apply1("slice", key, {x}, loc,
                [&](ir::Builder& b, const ir::Values& in) { return ir::Values{emit1(b, ir::ops::slice, in, attrs)}; });
}

Arrays parts(const Arrays& xs, int axis, std::int64_t start, std::int64_t stop, std::int64_t step, Loc loc) {
  Arrays out;
  for (const Array& x : xs) out.push_back(part(x, axis, start, stop, step, loc));
  return out;
}

// first[0], second[0], first[1], second[1], ...; `first` may have one more.
Array interleave(const Array& first, const Array& second, int axis, Loc loc) {
  const std::int64_t n = first.shape(axis), m = second.shape(axis);
  Shape shape = second.shape();
  shape[axis] = 2 * m;
  const Array pairs = reshape(stack({n == m ? first : part(first, axis, 0, m, 1, loc), second}, axis + 1, loc), shape);
  return n == m ? pairs : concatenate({pairs, part(first, axis, m, n, 1, loc)}, axis, loc);
}

class Prefixes {
 public:
  Prefixes(const Combine& f, const std::vector<std::string>& paths, int axis, Loc loc)
      : f_(f), paths_(paths), axis_(axis), loc_(loc) {}

  Arrays of(const Arrays& xs) const {
    const std::int64_t n = xs[0].shape(axis_);
    if (n < 2) return xs;
    const Arrays odd = of(combined(part_of(xs, 0, n - 1, 2), part_of(xs, 1, n, 2)));
    const Arrays before = n % 2 == 0 ? part_of(odd, 0, n / 2 - 1, 1) : odd;
    const Arrays rest = combined(before, part_of(xs, 2, n, 2));
    Arrays out;
    for (std::size_t i = 0; i < xs.size(); ++i)
      out.push_back(
          interleave(concatenate({part(xs[i], axis_, 0, 1, 1, loc_), rest[i]}, axis_, loc_), odd[i], axis_, loc_));
    return out;
  }

 private:
  Arrays part_of(const Arrays& xs, std::int64_t start, std::int64_t stop, std::int64_t step) const {
    return parts(xs, axis_, std::min(start, stop), stop, step, loc_);
  }

  Arrays combined(const Arrays& a, const Arrays& b) const {
    Arrays out = f_(a, b);
    std::string wrong;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const LeafType in = leaf_type(a[i], loc_), got = leaf_type(out[i], loc_);
      if (got.type != in.type)
        wrong += fmt::format("\n  {}: takes {}, returns {}", leaf_name(paths_[i], "it"), ir::to_string(in.type),
                             ir::to_string(got.type));
    }
    if (!wrong.empty()) throw TypeError(loc_, "associative_scan: the function must return the types it takes" + wrong);
    return out;
  }

  const Combine& f_;
  const std::vector<std::string>& paths_;
  int axis_;
  Loc loc_;
};

}  // namespace

Arrays associative_scan(const Combine& combine, Arrays leaves, const std::vector<std::string>& paths,
                        const AssociativeScanOptions& options, Loc own) {
  const Loc loc = UserLine::or_own(own);
  if (leaves.empty()) return leaves;
  std::string sizes;
  bool differ = false;
  int axis = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const int at = checked_axis("associative_scan", Operand(leaves[i], loc), options.axis, loc);
    if (i == 0) axis = at;
    differ |= at != axis || leaves[i].shape(at) != leaves[0].shape(axis);
    sizes += fmt::format("\n  {}: {}, axis {}, length {}", leaf_name(paths[i], "it"), type_text(leaves[i]), at,
                         leaves[i].shape(at));
  }
  if (differ) throw ShapeError(loc, "associative_scan: the arrays must have the same length along the axis" + sizes);
  const auto flipped = [&](Arrays xs) {
    for (Array& x : xs) x = flip(x, {axis});
    return xs;
  };
  const Prefixes prefixes(combine, paths, axis, loc);
  return options.reverse ? flipped(prefixes.of(flipped(std::move(leaves)))) : prefixes.of(leaves);
}

Arrays run_program(const char* who, const FlatCall& f, Structure& result) {
  const Loc loc = UserLine::or_own(f.loc());
  Traced t = trace_call(f, {.what = who, .name = who, .loc = loc, .precise = has_precise_number(f)}, leaf_types(f));
  result = std::move(t.structure);
  return apply_function(t.function, inputs_of(f, t), loc, weak_of(t.results));
}

}  // namespace sheaf::detail
