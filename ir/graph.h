// Programs: a `Function` is parameters, equations in canonical order, and results. It is immutable and compared by
// address; regions of an equation are Functions of their own, isolated: every capture is an operand. Equations are made
// only by a Builder (ir/builder.h), which value-numbers them, so equal pure equations of one function are one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/check.h"
#include "ir/mesh.h"
#include "ir/recycled.h"
#include "ir/short_list.h"
#include "ir/type.h"
#include "sheaf/source.h"

namespace sheaf::ir {

struct OpDef;
using Op = const OpDef*;  // identity of an op is the address of its data sheet
struct Eqn;
struct Arena;
class Builder;
class Function;
using FunctionRef = std::shared_ptr<const Function>;

struct ValueNode {
  Type type = {};
  const Eqn* eqn = nullptr;  // null for a parameter
  int index = 0;  // which result, or which parameter
  int id = 0;  // unique in its arena: index for ValueTable
  Arena* arena = nullptr;
  const std::string* name = nullptr;  // the user's name of a parameter, or null
};

/// A handle to a value. Null stands for "none": a symbolic zero tangent, an unmapped operand.
class Value {
 public:
  Value() = default;
  explicit Value(const ValueNode* node) : node_(node) {}

  Type type() const { return node_->type; }
  DType dtype() const { return node_->type.dtype(); }
  const Shape& dims() const { return node_->type.dims(); }
  int rank() const { return node_->type.rank(); }
  const Eqn* eqn() const { return node_->eqn; }
  int index() const { return node_->index; }
  int id() const { return node_->id; }
  const std::string& name() const;  // of a parameter, or empty
  bool is_param() const { return node_->eqn == nullptr; }
  const ValueNode* node() const { return node_; }
  /// The builder the value is being built in; only while its function is open.
  Builder& builder() const;

  explicit operator bool() const { return node_ != nullptr; }
  bool operator==(const Value&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, Value v) {
    return H::combine(std::move(h), v.node_);
  }

 private:
  const ValueNode* node_ = nullptr;
};
using Values = ShortList<Value, 3>;  // most equations take no more

/// What an equation does besides computing its results.
enum class Effects : std::uint8_t { none = 0, unordered = 1, ordered = 2 };
constexpr Effects operator|(Effects a, Effects b) {
  return static_cast<Effects>(static_cast<int>(a) | static_cast<int>(b));
}

struct Eqn {
  Op op = nullptr;
  Values operands = {};
  std::span<const ValueNode> results = {};  // in the arena; Values point to them
  std::shared_ptr<const void> attributes = {};
  std::vector<FunctionRef> regions = {};
  Loc loc = {};  // the user's line; never part of a key
  const char* how = "";  // transforms it went through, "jvp, transpose"; interned
  Effects effects = Effects::none;

  Value in(int i) const { return operands[i]; }
  Value out(int i = 0) const { return Value(&results[i]); }
  int num_in() const { return static_cast<int>(operands.size()); }
  int num_out() const { return static_cast<int>(results.size()); }
  Values outs() const;
  std::vector<Type> in_types() const;

  /// The attributes as the op's struct; asserts that T is that struct.
  template <class T>
  const T& attrs() const {
    check_attrs(attr_text::tag<T>());
    return *static_cast<const T*>(attributes.get());
  }

 private:
  void check_attrs(const void* tag) const;
};

/// Owns values and equations, side by side as they were made; shared by functions that are views of the same equations.
struct Arena {
  Pieces memory;
  std::pmr::deque<Eqn> eqns{&memory};
  std::pmr::deque<ValueNode> params{&memory};
  std::deque<std::string> param_names;
  int num_values = 0;
  Builder* builder = nullptr;  // while open

  std::span<ValueNode> make_values(std::size_t count) {
    std::pmr::polymorphic_allocator<> in(&memory);
    auto* values = in.allocate_object<ValueNode>(count);
    std::uninitialized_value_construct_n(values, count);
    return {values, count};
  }
};

class Function {
 public:
  const std::string& name() const { return name_; }
  Mesh mesh() const { return mesh_; }  // that its values are laid out on, or none
  const Values& params() const { return params_; }
  const std::vector<const Eqn*>& eqns() const { return eqns_; }  // operand-first post-order from the results
  const Values& results() const { return results_; }
  std::vector<Type> param_types() const;
  std::vector<Type> result_types() const;
  Effects effects() const { return effects_; }  // of all equations, regions included
  /// Upper bound of the ids of the values in this function.
  int num_values() const { return arena_->num_values; }

  /// The same equations with parameters in another order: parameter i of the new function is params[i] of this one.
  FunctionRef with_params(std::span<const int> order) const;
  /// The same equations, with a subset or reordering of the results; unneeded equations go.
  FunctionRef with_results(Values results) const;
  FunctionRef renamed(std::string name) const;
  FunctionRef on_mesh(Mesh mesh) const;

 private:
  friend class Builder;
  static FunctionRef make(std::shared_ptr<Arena> arena, std::string name, Values params, Values results);

  std::string name_;
  Mesh mesh_;
  std::shared_ptr<Arena> arena_;
  Values params_;
  std::vector<const Eqn*> eqns_;
  Values results_;
  Effects effects_ = Effects::none;
};

/// A side table over the values of one function.
template <class T>
class ValueTable {
 public:
  explicit ValueTable(const Function& f, T initial = T{}) : data_(f.num_values(), std::move(initial)) {}
  decltype(auto) operator[](Value v) { return data_[v.id()]; }
  decltype(auto) operator[](Value v) const { return data_[v.id()]; }

 private:
  std::vector<T> data_;
};

/// Functions that belong together in one text: `call` names its callee. The first is the entry.
struct Module {
  struct NamedMesh {
    std::string name;
    Mesh mesh;
  };
  std::vector<NamedMesh> meshes;  // printing adds those of the functions that are not there
  std::vector<FunctionRef> functions;
};

/// "a, b" from "a" and "b"; interned for the life of the process.
const char* extend_how(const char* how, const char* transform);

}  // namespace sheaf::ir
