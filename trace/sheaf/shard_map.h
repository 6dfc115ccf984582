// `shard_map`: a function of the parts that each device of a mesh holds, as a function of the whole arrays.
//   shard_map([](Array x, Array w) { return psum(dot(x, w), "model"); },
//             {.mesh = mesh, .in = {P("data", "model"), P("model")}, .out = {P("data")}})(x, w)
// Inside, an array's shape is that of its part, and collectives (sheaf/collectives.h) go over the mesh's axes.
#pragma once

#include "sheaf/mesh.h"
#include "sheaf/vmap.h"

namespace sheaf {

struct ShardMapOptions {
  Mesh mesh = {};
  /// How each argument is cut into parts, and how those of each element of a tuple returned, or of the result, are put
  /// together. What a spec does not name, all devices have whole.
  std::vector<Specs> in = {};
  std::vector<Specs> out = {};
  /// The axes the function is written for; empty: all that no enclosing shard_map has. Along the others its arrays are
  /// whole, as outside, and the compiler spreads them.
  std::vector<std::string> axis_names = {};
  /// Results are not checked to be the same along axes that their specs leave out: one device's value counts, and a
  /// cotangent is shared among them. Wrong gradients are the user's.
  bool unchecked = false;
};

namespace detail {

std::vector<Array> shard_map(const FlatCall& call, const ShardMapOptions& options, Structure& result,
                             std::vector<std::size_t> (*result_counts)(const Structure&));

template <class F>
class ShardMapBody {
 public:
  ShardMapBody(F f, ShardMapOptions options, Loc loc) : f_(std::move(f)), options_(std::move(options)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    using R = typename CallOf<F, A...>::Result;
    const CallOf<F, A...> call(f_, loc, args...);
    Structure structure;
    const std::vector<Array> leaves = shard_map(call, options_, structure, &result_counts<R>);
    return rebuild<R>(structure, leaves);
  }
  Loc made_at() const { return loc_; }

 private:
  F f_;
  ShardMapOptions options_;
  Loc loc_;
};

}  // namespace detail

/// f of parts. Throws ShardingError for a spec that does not fit, naming argument, dim, axis and sizes, and for a
/// result that differs along an axis its spec leaves out.
template <class F>
auto shard_map(F f, ShardMapOptions options, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::ShardMapBody<F>>(std::move(f), std::move(options), loc);
}

}  // namespace sheaf
