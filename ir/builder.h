// The only way to make an equation. A Builder runs the op's inference, value-numbers pure equations, stamps the user's
// line, and seals everything reachable from the results into a Function.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ir/graph.h"
#include "ir/op.h"

namespace sheaf::ir {

/// Equations by the hash of what they compute. Open addressing, because a program asks once for each of its equations,
/// and growing is all that a table of another kind would do.
class Numbering {
 public:
  /// The one of this hash that `is_it` says yes to, or null.
  const Eqn* find(std::size_t hash, absl::FunctionRef<bool(const Eqn&)> is_it) const;
  void add(std::size_t hash, const Eqn* e);

 private:
  struct Slot {
    std::size_t hash = 0;
    const Eqn* eqn = nullptr;
  };
  void place(Slot slot);

  std::pmr::vector<Slot> slots_{recycling()};  // a power of two, at most half of them in use
  std::size_t count_ = 0;
};

class Builder {
 public:
  explicit Builder(std::string name = "main");
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder();

  Value param(Type type, std::string name = "");
  const Values& params() const { return params_; }

  /// Emits with attributes `attrs` (the op's struct). The error says what is wrong with shapes or dtypes, without a
  /// line.
  absl::StatusOr<Values> try_emit(Op op, Values operands, std::shared_ptr<const void> attrs = nullptr,
                                  std::vector<FunctionRef> regions = {});
  /// The same of an op with one result and no regions.
  absl::StatusOr<Value> try_emit_one(Op op, Values operands);
  /// As above with the results' types given, where they say more (sharding) than inference, whose dtypes and dims they
  /// keep.
  absl::StatusOr<Values> try_emit_typed(Op op, Values operands, std::shared_ptr<const void> attrs,
                                        std::vector<FunctionRef> regions, const std::vector<Type>& types);
  /// For rules and passes, whose equations are well-typed by construction: an inference error is our bug.
  Values emit_all(Op op, Values operands, std::shared_ptr<const void> attrs = nullptr,
                  std::vector<FunctionRef> regions = {});
  template <class A>
  Value emit(const OpDef& op, Values operands, A attrs) {
    return emit_all(&op, std::move(operands), std::make_shared<const A>(std::move(attrs)))[0];
  }
  Value emit(const OpDef& op, Values operands) { return emit_all(&op, std::move(operands))[0]; }
  /// The equation `e` of any function, with other operands (and possibly regions) in this builder.
  Values clone(const Eqn& e, Values operands);

  Value constant(DType dtype, double value);  // rank 0
  Value constant(const Literal& value);
  Value full(const Type& type, double value);  // rank-0 constant, broadcast, and cast to the type's axes
  Value zeros(const Type& type) { return full(type, 0); }

  /// The user's line and transform history stamped on what is emitted next.
  void set_loc(Loc loc, const char* how = "") {
    loc_ = loc;
    how_ = how;
  }
  Loc loc() const { return loc_; }
  const char* how() const { return how_; }

  /// Emission as it would be of `e` as transformed by `transform`.
  void at(const Eqn& e, const char* transform) { set_loc(e.loc, extend_how(e.how, transform)); }

  FunctionRef finish(Values results);

 private:
  void lift(Op op, Values& operands, const std::shared_ptr<const void>& attrs, const std::vector<FunctionRef>& regions);
  absl::StatusOr<const Eqn*> find_or_append(Op op, Values&& operands, std::shared_ptr<const void>&& attrs,
                                            std::vector<FunctionRef>&& regions);
  /// An equation of the arena, as yet without results, and the rest of it, once inference has told their types.
  Eqn& begin(Op op, Values&& operands, std::shared_ptr<const void>&& attrs, std::vector<FunctionRef>&& regions);
  void complete(Eqn& e, std::span<const Type> types);

  std::string name_;
  std::shared_ptr<Arena> arena_;
  Values params_;
  Loc loc_;
  const char* how_ = "";
  Numbering numbering_;
  struct Scalar {
    DType dtype = {};
    std::uint64_t bits = 0;
    Value value = {};
  };
  std::array<Scalar, 8> recent_ = {};  // constants by a hash of their bits: programs repeat few numbers
};

/// x as a value that may differ along these manual axes too; x itself where it does. It is not unreduced along any.
Value varied(Value x, const Axes& axes);

/// A rank-0 constant of the dtype of `like`, in its builder.
Value number(Value like, double v);

// Operators for rules: they emit in the builder the values belong to. Numbers become rank-0 constants of the other
// operand's dtype.
Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator-(Value a);
Value operator+(Value a, double b);
Value operator+(double a, Value b);
Value operator-(Value a, double b);
Value operator-(double a, Value b);
Value operator*(double a, Value b);
Value operator*(Value a, double b);
Value operator/(double a, Value b);
Value operator/(Value a, double b);

}  // namespace sheaf::ir
