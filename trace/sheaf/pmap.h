// `pmap`: a function of one example, run on as many devices as there are examples, one on each.
//   pmap([](Array x) { return x / psum(x, "i"); }, {.axis_name = "i"})(xs)
// It is shard_map over a mesh of one axis; inside, the axis is gone from the shapes, as in vmap.
#pragma once

#include "sheaf/mesh.h"
#include "sheaf/vmap.h"

namespace sheaf {

struct PmapOptions {
  std::string axis_name = {};  // for psum and the like (sheaf/collectives.h)
  std::vector<Axis> in = {};   // per argument; empty: all 0; none: all devices get it whole
  std::vector<Axis> out = {};  // per element of a tuple or pair returned, or one for the result; empty: all 0
  /// Arguments that are not mapped and not traced, but part of the program: numbers, shapes, functions. What is no
  /// Array is static without being listed; that nothing listed is one is checked.
  std::vector<int> static_broadcasted = {};
  std::vector<Device> devices = {};  // one per example; empty: the first of devices()
  std::vector<int> donate = {};      // arguments whose memory may be used again
};

namespace detail {

std::vector<Array> pmap(const FlatCall& call, const PmapOptions& options, Structure& result,
                        std::vector<std::size_t> (*result_counts)(const Structure&));

template <class F>
class PmapBody {
 public:
  PmapBody(F f, PmapOptions options, Loc loc) : f_(std::move(f)), options_(std::move(options)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    using R = typename CallOf<F, A...>::Result;
    const CallOf<F, A...> call(f_, loc, args...);
    Structure structure;
    const std::vector<Array> leaves = pmap(call, options_, structure, &result_counts<R>);
    return rebuild<R>(structure, leaves);
  }
  Loc made_at() const { return loc_; }

 private:
  F f_;
  PmapOptions options_;
  Loc loc_;
};

}  // namespace detail

/// f of one example as a function of all, each on a device of its own. Throws ShardingError where there are fewer
/// devices than examples, ShapeError where mapped sizes differ.
template <class F>
auto pmap(F f, PmapOptions options = {}, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::PmapBody<F>>(std::move(f), std::move(options), loc);
}

}  // namespace sheaf
