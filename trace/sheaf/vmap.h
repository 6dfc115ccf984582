// `vmap`: a function of one example becomes a function of a batch, by rewriting its program, without a loop.
#pragma once

#include "sheaf/call.h"

namespace sheaf {

/// The position of the mapped axis, negative from the end, or `none`: the same for all examples.
struct LeafAxis {
  LeafAxis(int at) : position(at) {}  // NOLINT
  LeafAxis(None) {}  // NOLINT
  std::optional<int> position;
};

/// That of an argument or a result. Of a tree it is that of all leaves, or a list by path:
/// `axes({{".W", 1}, {".bias", none}})`, where a path stands for all leaves below it, and the longest counts.
struct Axis {
  Axis(int at) : position(at) {}  // NOLINT
  Axis(None) {}  // NOLINT
  std::optional<int> position;
  bool is_by_path = false;  // then `by_path` counts, not `position`
  std::vector<std::pair<std::string, LeafAxis>> by_path = {};
};

/// The axes of a tree, leaf by leaf. Throws TypeError where a leaf has no axis, a path no leaf, or a path two axes.
inline Axis axes(std::vector<std::pair<std::string, LeafAxis>> by_path) {
  Axis all(none);
  all.is_by_path = true;
  all.by_path = std::move(by_path);
  return all;
}

struct VmapOptions {
  std::vector<Axis> in = {};  // per argument; empty: all 0
  std::vector<Axis> out = {};  // per element of a tuple or pair returned, or one for the result; empty: all 0
  std::optional<std::int64_t> size = {};  // needed only when no argument is mapped
  std::string axis_name = {};  // for psum and the like (sheaf/collectives.h)
  std::string spmd_axis_name = {};  // a mesh axis over which shard_maps inside spread the examples
};

namespace detail {

/// `result_counts`: leaves of each element of the result that has an out axis of its own.
std::vector<Array> vmap(const FlatCall& call, const VmapOptions& options, Structure& result,
                        std::vector<std::size_t> (*result_counts)(const Structure&));

template <class T>
std::size_t count_leaves(const T& tree) {
  Flat flat;
  walk(tree, flat);
  return flat.leaves.size();
}

template <class R>
std::vector<std::size_t> result_counts(const Structure& s) {
  const R& r = *static_cast<const R*>(s.tree.get());
  if constexpr (TupleLike<R>)
    return std::apply([](const auto&... e) { return std::vector<std::size_t>{count_leaves(e)...}; }, r);
  else return {count_leaves(r)};
}

template <class F>
class VmapBody {
 public:
  VmapBody(F f, VmapOptions options, Loc loc) : f_(std::move(f)), options_(std::move(options)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    using R = typename CallOf<F, A...>::Result;
    const CallOf<F, A...> call(f_, loc, args...);
    Structure structure;
    const std::vector<Array> leaves = vmap(call, options_, structure, &result_counts<R>);
    return rebuild<R>(structure, leaves);
  }
  Loc made_at() const { return loc_; }

 private:
  F f_;
  VmapOptions options_;
  Loc loc_;
};

}  // namespace detail

/// f over a batch: `vmap(f, {.in = {0, none}})(xs, w)`. Throws ShapeError naming every argument with its size when the
/// mapped sizes differ.
template <class F>
auto vmap(F f, VmapOptions options = {}, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::VmapBody<F>>(std::move(f), std::move(options), loc);
}

}  // namespace sheaf
