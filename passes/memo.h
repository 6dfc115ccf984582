// Memory of one transform: results by function identity and masks, so that a function called from many places is
// transformed once. Keys pin their functions. It lives while the outermost transform of the thread runs.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <tuple>

#include "passes/partial_eval.h"
#include "passes/transforms.h"

namespace sheaf::passes {

struct Memo {
  template <class Result, class... Masks>
  using Table = absl::flat_hash_map<std::tuple<ir::FunctionRef, Masks...>, Result>;

  Table<Jvp, Mask, Mask> jvp;
  Table<PartialEval, Mask, Mask> partial_eval;
  Table<Transposed, Mask, Mask, bool> transpose;
  Table<Batch, std::vector<int>, MappedAxis> batch;
  Table<ir::FunctionRef, std::vector<int>, std::vector<int>, MappedAxis> vmap;
  Table<Dce, Mask> dce;
  Table<ir::FunctionRef, std::vector<int>, std::vector<int>> arranged;  // passes/regions/arrange.h
  Table<bool, Mask> split;  // unknown halves: partial evaluation with this mask of known parameters changes nothing

  /// The memo of the transform at hand; created by the outermost Scope, gone with it.
  static Memo& current();

  class Scope {
   public:
    Scope();
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    bool outermost_;
  };
};

/// Looks `key` up in `table`, else computes and stores it.
template <class Table, class Compute>
typename Table::mapped_type memoized(Table Memo::* table, typename Table::key_type key, Compute compute) {
  const Memo::Scope scope;
  if (auto it = (Memo::current().*table).find(key); it != (Memo::current().*table).end()) return it->second;
  auto result = compute();
  (Memo::current().*table).emplace(std::move(key), result);
  return result;
}

}  // namespace sheaf::passes
