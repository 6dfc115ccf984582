// `xmap`: dims of arguments and results get names, and the function is written for what is left of them. A named axis
// is mapped as by vmap, or, where it is given axes of a mesh, spread over its devices; collectives go over it by its
// name.
//   xmap([](Array a, Array b) { return einsum("...ij,...jk->...ik", a, b); },
//        {.mesh = mesh, .in = {{"batch", ellipsis}, {"batch", ellipsis}}, .out = {{"batch", ellipsis}},
//         .axis_resources = {{"batch", "x"}}})(a, b)
#pragma once

#include <map>

#include "sheaf/collectives.h"
#include "sheaf/mesh.h"
#include "sheaf/vmap.h"

namespace sheaf {

/// A dim of an argument or a result: a named axis, one that the function sees (none), or as many of those as there are.
struct XmapDim {
  XmapDim(const char* axis) : name(axis) {}  // NOLINT
  XmapDim(std::string axis) : name(std::move(axis)) {}  // NOLINT
  XmapDim(None) {}  // NOLINT
  XmapDim(Ellipsis) : is_ellipsis(true) {}  // NOLINT
  std::string name = {};  // empty: the function's own
  bool is_ellipsis = false;
};
/// All dims of each leaf of an argument, or of an element of the result.
struct XmapDims {
  XmapDims(std::initializer_list<XmapDim> list) : dims(list) {}
  std::vector<XmapDim> dims;
};

struct XmapOptions {
  Mesh mesh = {};  // needed only for axis_resources
  std::vector<XmapDims> in = {};  // per argument
  std::vector<XmapDims> out = {};  // per element of a tuple or pair returned, or one for the result
  std::map<std::string, AxisNames> axis_resources = {};  // mesh axes of named axes, major to minor
  std::map<std::string, std::int64_t> axis_sizes = {};  // of named axes that no argument has, or to be held to
};

namespace detail {

std::vector<Array> xmap(const FlatCall& call, const XmapOptions& options, Structure& result,
                        std::vector<std::size_t> (*result_counts)(const Structure&));

template <class F>
class XmapBody {
 public:
  XmapBody(F f, XmapOptions options, Loc loc) : f_(std::move(f)), options_(std::move(options)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    using R = typename CallOf<F, A...>::Result;
    const CallOf<F, A...> call(f_, loc, args...);
    Structure structure;
    const std::vector<Array> leaves = xmap(call, options_, structure, &result_counts<R>);
    return rebuild<R>(structure, leaves);
  }
  Loc made_at() const { return loc_; }

 private:
  F f_;
  XmapOptions options_;
  Loc loc_;
};

}  // namespace detail

/// f of what the named axes leave, as a function of whole arrays. Throws ShapeError where dims and ranks or the sizes
/// of an axis disagree, ShardingError where an axis does not divide over its mesh axes.
template <class F>
auto xmap(F f, XmapOptions options, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::XmapBody<F>>(std::move(f), std::move(options), loc);
}

}  // namespace sheaf
