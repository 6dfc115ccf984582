// Rows of the table in docs/sharding-acceptance.md: a layer, where things lie, and what one layer may communicate. Each
// row is checked for a forward pass and a step of training, of one layer, of two, and of a loop over four, with and
// without a checkpoint around each layer, before collectives are combined and after.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/acceptance/models.h"

namespace sheaf::acceptance {

using Weights = std::vector<Array>;
/// A function of activations and of a list of weights.
using Layer = std::function<Array(const Array& x, const Weights& w)>;

inline Array mlp_layer(const Array& x, const Weights& w) { return mlp(x, w[0], w[1]); }
inline Array attention_layer(const Array& x, const Weights& w) { return attention(x, w[0], w[1]); }

/// What a layer is given.
struct Shapes {
  Shape x;
  std::vector<Shape> w;
};
inline Shapes mlp_shapes(const Sizes& s) { return {{s.b, s.s, s.h}, {{s.h, s.f}, {s.f, s.h}}}; }
inline Shapes attention_shapes(const Sizes& s) {
  return {{s.b, s.s, s.h}, {{s.h, 3, s.heads, s.d()}, {s.heads, s.d(), s.h}}};
}

/// The layer once for each of `count` weights, which are listed by their place in a layer, then by layer.
std::function<Array(const Array&, const std::vector<Weights>&)> unrolled(const Layer& layer, int count);
/// In a loop, over stacks of weights.
Layer looped(const Layer& layer);
Layer remade(const Layer& layer);  // with a checkpoint around it
/// Weights for it.
std::vector<Weights> abstract_weights(const Shapes& shapes, int count);
Weights abstract_stacks(const Shapes& shapes, int count);

/// "step" is one of training: given x and the derivative of a loss with respect to the output, it gives the output, the
/// derivative with respect to x, and the new weights; and, if it is given momenta, new momenta.
struct Programs {
  ir::FunctionRef forward, step;
};
Programs of_layers(const Layer& layer, int count, bool has_momenta, const Shapes& shapes);
Programs of_loop(const Layer& layer, int count, bool has_momenta, const Shapes& shapes);

struct Row {
  std::string mesh, x;  // x: of activations and of their cotangents
  std::vector<std::string> w;  // of weights, old and new
  std::vector<std::string> m = {};  // of momenta, old and new; empty: there are none
  bool keeps_x = false;  // results are wanted where x lies, and else as they come
  std::vector<Expected> forward, step;
  std::optional<std::vector<Expected>> remade = {};  // a step under a checkpoint, where that is another
  std::int64_t largest;  // value that a device holds in a step
  // In a loop only under a checkpoint: what is kept for the derivative is in one layout there, and wanted in two.
  bool loops_are_remade = false;
};

/// `plain` computes the same without a mesh; null: the layer itself does.
void check(const Row& row, const Layer& layer, const Shapes& large, const Shapes& small, const Layer& plain = nullptr);
/// Of a weight of a loop: of the stack of all.
std::string stacked(const std::string& spec);

/// One program against what is expected of it, and at a small size, on 4 devices, against what `plain` gives.
struct Versions {
  ir::FunctionRef large, small, plain;
};
void check(const Versions& programs, const Layout& layout, const std::vector<Expected>& expected, std::int64_t largest);

}  // namespace sheaf::acceptance
