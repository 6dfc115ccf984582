// Resolving NumPy's indexing rules against a shape.
#include "trace/index_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "sheaf/ops.h"
#include "trace/array_node.h"
#include "trace/messages.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

using Kind = Index::Kind;

[[noreturn]] void throw_index(std::string_view name, const std::string& what, const Array& x, Loc loc) {
  const Named named{"operand", &x};
  throw ShapeError(UserLine::or_own(loc), fmt::format("{}: {}{}", name, what, describe({&named, 1})));
}

// start, step and count as Python's slice.indices gives them.
IndexPlan::Dim resolve_range(std::string_view name, const Array& x, const Index& i, std::int64_t n) {
  const Slice& s = i.range;
  if (s.step == 0) throw_index(name, "a slice with step 0", x, i.loc);
  const std::int64_t low = s.step > 0 ? 0 : -1, high = s.step > 0 ? n : n - 1;
  const auto end = [&](const Bound& b, std::int64_t open) {
    if (!b.value) return open;
    return std::clamp(*b.value < 0 ? *b.value + n : *b.value, low, high);
  };
  const std::int64_t start = end(s.start, s.step > 0 ? low : high), stop = end(s.stop, s.step > 0 ? high : low);
  const std::int64_t span = s.step > 0 ? stop - start : start - stop, stride = std::abs(s.step);
  const std::int64_t count = span <= 0 ? 0 : (span - 1) / stride + 1;
  return {.start = count ? start : 0, .step = s.step, .count = count, .is_whole = s.step == 1 && count == n};
}

// The expression with its ellipsis written out, so that every dim is named.
std::vector<Index> written_out(std::string_view name, const Array& x, std::span<const Index> index) {
  const auto takes_dim = [](const Index& i) { return i.kind != Kind::new_axis && i.kind != Kind::rest; };
  const auto named = std::count_if(index.begin(), index.end(), takes_dim);
  const auto rests = std::count_if(index.begin(), index.end(), [](const Index& i) { return i.kind == Kind::rest; });
  const Loc loc = index.empty() ? x.made_at() : index[0].loc;
  if (rests > 1) throw_index(name, "an index may have one ellipsis", x, loc);
  if (named > x.rank()) throw_index(name, fmt::format("{} indices for {} dims", named, x.rank()), x, loc);
  std::vector<Index> full;
  const auto fill = [&] { full.insert(full.end(), static_cast<std::size_t>(x.rank() - named), Index(slice(), loc)); };
  for (const Index& i : index) {
    if (i.kind == Kind::rest) fill();
    else full.push_back(i);
  }
  if (rests == 0) fill();
  return full;
}

void check_list(std::string_view name, const Index& i) {
  const DType t = node_of(i.list, i.loc).type.dtype();
  if (is_int(t)) return;
  const Named named{"index", &i.list};
  const std::string advice =
      is_bool(t) ? ". The number of elements a mask selects is not known to the compiler: use where()" : "";
  throw TypeError(UserLine::or_own(i.loc), fmt::format("{}: an index array must be an integer, not {}{}{}", name,
                                                       sheaf::name(t), advice, describe({&named, 1})));
}

}  // namespace

IndexPlan plan_index(std::string_view name, const Array& x, std::span<const Index> index) {
  const Shape shape = node_of(x, index.empty() ? Loc{} : index[0].loc).type.dims();
  const std::vector<Index> full = written_out(name, x, index);
  const bool has_lists = std::any_of(full.begin(), full.end(), [](const Index& i) { return i.kind == Kind::list; });
  IndexPlan plan;
  int first_list = -1, last_list = -1, list_count = 0, item = 0;
  for (const Index& i : full) {
    const int d = static_cast<int>(plan.dims.size());
    if (i.kind == Kind::new_axis) {
      plan.results.push_back({IndexPlan::Result::Kind::new_axis});
    } else if (i.kind == Kind::range) {
      plan.dims.push_back(resolve_range(name, x, i, shape[d]));
      plan.results.push_back({IndexPlan::Result::Kind::dim, d});
    } else {
      if (i.kind == Kind::position) {
        const std::int64_t n = shape[d], p = i.position < 0 ? i.position + n : i.position;
        if (p < 0 || p >= n)
          throw_index(name, fmt::format("index {} is out of range for axis {} of extent {}", i.position, d, n), x,
                      i.loc);
        plan.dims.push_back({.start = p, .count = 1, .is_position = true});
      } else {
        check_list(name, i);
        plan.dims.push_back({.count = shape[d]});
      }
      if (has_lists) {
        plan.dims.back().is_position = false;
        plan.dims.back().list = static_cast<int>(plan.lists.size());
        plan.lists.push_back(i.kind == Kind::list ? i.list : Array(plan.dims.back().start, i.loc));
        if (first_list < 0) {
          first_list = item;
          plan.results.push_back({IndexPlan::Result::Kind::lists});
        }
        last_list = item;
        ++list_count;
      }
    }
    ++item;
  }
  if (has_lists &&
      last_list - first_list + 1 != list_count) {  // lists with something between them: their dims come first
    std::erase_if(plan.results, [](const IndexPlan::Result& r) { return r.kind == IndexPlan::Result::Kind::lists; });
    plan.results.insert(plan.results.begin(), {IndexPlan::Result::Kind::lists});
  }
  for (const IndexPlan::Dim& d : plan.dims)
    plan.key.insert(plan.key.end(), {d.start, d.step, d.count, d.is_position, d.list});
  for (const IndexPlan::Result& r : plan.results)
    plan.key.insert(plan.key.end(), {static_cast<std::int64_t>(r.kind), r.dim});
  return plan;
}

}  // namespace sheaf
