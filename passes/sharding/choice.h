// How one equation is split: axes for its factors, by trying every way and taking the cheapest. What it costs is the
// compute of one device, moving the operands to where the equation wants them, and moving its results to where they
// are wanted. Invariant: what is chosen can be emitted as it stands: sizes divide, and a factor is split only behind
// majors that are split to the last.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <functional>
#include <string>
#include <vector>

#include "ir/cost.h"
#include "ir/factors.h"
#include "ir/op.h"
#include "ir/sharding.h"
#include "passes/sharding/weights.h"

namespace sheaf::passes {

struct Choice {
  std::vector<ir::Atoms> factors = {};  // per factor: what it is split over, major to minor
  // Operands taken as sums that are still to be made over `partial`, and the results with them: the equation is linear
  // in these operands.
  ir::Atoms partial = {};
  std::vector<bool> is_partial = {};  // per operand
  double cost = 0;
  bool is_greedy = false;  // there were too many ways to try them all
};

/// Where the dims of a tensor lie under a choice.
ir::Sharding layout_of(const ir::TensorFactors& tensor, const Choice& choice);
/// Of an operand, and of a result: with what is still to be reduced.
ir::Sharding operand_layout(const ir::Factors& f, const Choice& choice, int k);
ir::Sharding result_layout(const ir::Factors& f, const Choice& choice, int j);

/// One equation to be split.
struct Question {
  const ir::Eqn& eqn;
  const ir::Factors& factors;
  std::vector<std::vector<ir::Sharding>> have;  // per operand: the layouts it is there in, or paid for
  std::vector<ir::Sharding> want;  // per result
  std::vector<bool> is_weight = {}, is_gradient = {};  // per operand, per result: moved rather than anything else
  ir::Atoms partial = {};  // as in Choice
  std::vector<bool> is_partial = {};
};

/// What moving and computing costs, in seconds.
struct Prices {
  /// From one layout of a value to another; what a device does on its own for that is free.
  std::function<double(ir::Type whole, const ir::Sharding& from, const ir::Sharding& to)> reshard;
  std::function<double(const ir::Work& local, DType dtype)> compute;
  /// What an op's own rule communicates, in the program of one device; null: nothing.
  std::function<double(const ir::Function& local)> communicate = {};
};

/// Whether partitioning can split the factor so many ways at all.
bool can_split(const ir::Eqn& e, const ir::Factors& f, int factor, std::int64_t ways);

class Chooser {
 public:
  Chooser(const ir::MeshAtoms& mesh, Prices prices, Weights weights = {})
      : mesh_(mesh), prices_(std::move(prices)), weights_(std::move(weights)) {}
  const Weights& weights() const { return weights_; }
  /// Equal questions are answered once. Infinite cost: the question's partial operands cannot stay so.
  Choice choose(const Question& q);
  /// Of moving a value, in seconds.
  double price(ir::Type whole, const ir::Sharding& from, const ir::Sharding& to) const {
    return prices_.reshard(whole, from, to);
  }
  std::int64_t assignments() const { return assignments_; }  // tried so far, to test that work is linear

 private:
  const ir::MeshAtoms& mesh_;
  Prices prices_;
  Weights weights_;
  absl::flat_hash_map<std::string, Choice> answers_;
  std::int64_t assignments_ = 0;
};

}  // namespace sheaf::passes
