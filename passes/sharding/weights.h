// What a program calls weights (constraints of_weight): those values, whatever is another form of one, and their
// gradients, in regions too. Where they meet others it is they that are moved.
#pragma once

#include <absl/container/flat_hash_set.h>

#include "ir/graph.h"

namespace sheaf::passes {

class Weights {
 public:
  Weights() = default;
  explicit Weights(const ir::Function& f);

  bool is_weight(ir::Value v) const { return weights_.contains(v); }
  bool is_gradient(ir::Value v) const { return gradients_.contains(v); }

 private:
  void forward(const ir::Function& f);
  void backward(const ir::Function& f);

  absl::flat_hash_set<ir::Value> weights_, gradients_;
};

}  // namespace sheaf::passes
