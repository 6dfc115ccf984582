// Kinds follow from lowerings; rows from which dims a group reduces.
#include "passes/open_group.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "ir/literal.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"

namespace sheaf::passes {

using namespace ir;

Kind kind_of(const Lowering& l) {
  using namespace lowering;
  return std::visit(
      [](const auto& x) {
        using L = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<L, Map>) return Kind::map;
        else if constexpr (std::is_same_v<L, View> || std::is_same_v<L, Windows> || std::is_same_v<L, Reshape> ||
                           std::is_same_v<L, Iota>)
          return Kind::free;
        else if constexpr (std::is_same_v<L, Pad> || std::is_same_v<L, Concatenate> || std::is_same_v<L, RandomBits> ||
                           std::is_same_v<L, Gather> || std::is_same_v<L, UpdateSlice>)
          return Kind::indexed;
        else if constexpr (std::is_same_v<L, Reduce>) return Kind::reduce;
        else if constexpr (std::is_same_v<L, Scan> || std::is_same_v<L, While> || std::is_same_v<L, Branch> ||
                           std::is_same_v<L, Barrier> || std::is_same_v<L, Check> || std::is_same_v<L, Callback> ||
                           std::is_same_v<L, Library> || std::is_same_v<L, Collective>)
          return Kind::host;
        else return Kind::hero;
      },
      l);
}

Shape OpenGroup::row() const {
  Shape s;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(full.size()); ++d)
    if (std::find(reduced.begin(), reduced.end(), d) == reduced.end()) s.push_back(full[d]);
  return s;
}

bool OpenGroup::has_rows() const {
  constexpr std::int64_t kMaxRow = 32768;  // elements of a row that stays in cache between the passes of a row kernel
  std::int64_t length = 1;
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    if (reduced[i] != static_cast<std::int64_t>(full.size() - reduced.size() + i)) return false;
    length *= full[reduced[i]];
  }
  return length <= kMaxRow;
}

OpenGroup OpenGroup::space() const {
  OpenGroup space;
  space.full = full;
  space.reduced = reduced;
  space.has_reduce = has_reduce;
  return space;
}

Shape without_ones(const Shape& dims) {
  Shape s;
  for (std::int64_t d : dims)
    if (d != 1) s.push_back(d);
  return s;
}

std::ptrdiff_t OpenGroup::count_reductions() const {
  return std::count_if(members.begin(), members.end(), [](const Eqn* m) { return nest_of(*m) == Nest::reduction; });
}

std::vector<std::int64_t> reduced_by(const Eqn& reduce) {
  std::vector<std::int64_t> dims = reduce.attrs<ops::Reduce>().dims;
  std::sort(dims.begin(), dims.end());
  return dims;
}

bool surrounds_with_zeros(const Eqn& pad) {
  const auto& a = pad.attrs<ops::Pad>();
  const auto is_zero = [](Value v) {
    if (!v.eqn() || v.eqn()->op != &ops::constant) return false;
    const Literal value = literal_of(*v.eqn());
    return value.size() == 1 && value.bits(0) == 0;
  };
  const auto none_below = [](const auto& list) {
    return std::all_of(list.begin(), list.end(), [](auto n) { return n >= 0; });
  };
  const bool is_spread = std::any_of(a.interior.begin(), a.interior.end(), [](auto n) { return n != 0; });
  return none_below(a.low) && none_below(a.high) && !is_spread && is_zero(pad.in(1));
}

int operations_of(const ScalarFn& fn, int slow) {
  int count = 0;
  for (const ScalarNode& n : fn.nodes) {
    const bool is_slow = n.op == ScalarOp::div || n.op == ScalarOp::sqrt || n.op == ScalarOp::rem;
    count += n.op == ScalarOp::arg || n.op == ScalarOp::constant ? 0 : is_slow ? slow : 1;
  }
  return count;
}

}  // namespace sheaf::passes
