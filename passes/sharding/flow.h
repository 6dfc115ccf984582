// A program as propagation sees it: sites, the values wherever they are run, and rules, the equations and edges that
// sites meet in. Invariant: a region has sites of its own at each equation it belongs to; a carry that goes around is
// one site with the loop's result, so that it lies the same at every step.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "passes/sharding/projection.h"

namespace sheaf::passes {

/// Why a dim is split: the rule its last atoms came by, and from which site; -1: it was given.
struct Reason {
  int rule = -1, from = -1;
};

struct Site {
  ir::Value value;
  Placement placement;
  std::vector<int> priorities = {};  // per dim; empty: all 0
  std::vector<Reason> reasons = {};  // per dim
  std::vector<int> rules = {};  // that it takes part in
  int uses = 0;
};

/// A value of a shard_map's body seen from outside: each dim is split over these first.
struct Manual {
  std::vector<ir::Atoms> dims;
};

struct Tensor {
  int site = 0;
  const Manual* manual = nullptr;
};

struct Rule {
  const ir::Eqn* eqn = nullptr;
  ir::Factors factors;
  std::vector<Tensor> tensors;  // operands, then results
  bool is_pointwise = false;  // every tensor that has dims has the same ones
  bool keeps_factors = false;  // every tensor that has dims has all factors, none of which is reduced or moved
  bool has_room = false;  // a factor other than those that must stay whole

  int operands() const { return static_cast<int>(factors.in.size()); }
  const ir::TensorFactors& dims(std::size_t tensor) const {
    return tensor < factors.in.size() ? factors.in[tensor] : factors.out[tensor - factors.in.size()];
  }
};

/// A function at the place it is run from.
struct Scope {
  explicit Scope(const ir::FunctionRef& f) : function(f), sites(*f, -1) {}
  /// Of operand k of e; of result k of the function where e is null.
  int site(const ir::Eqn* e, int k) const;

  ir::FunctionRef function;
  ir::ValueTable<int> sites;
  // Constants have a site for each of their uses: what one reader wants says nothing about the others.
  absl::flat_hash_map<std::pair<const ir::Eqn*, int>, int> constants;
  absl::flat_hash_map<const ir::Eqn*, std::vector<std::unique_ptr<Scope>>> regions;
};

/// Made again wherever it is read: a constant, an iota, or a scalar repeated.
bool is_made_per_use(ir::Value v);

struct Flow {
  std::vector<Site> sites;
  std::vector<Rule> rules;
  std::deque<Manual> manuals;
  std::unique_ptr<Scope> scope;
};

/// Parameters lie where their types say; so do, at least, all other values; those of with_sharding as it says.
Flow flow_of(const ir::FunctionRef& f, const ir::MeshAtoms& atoms);

}  // namespace sheaf::passes
