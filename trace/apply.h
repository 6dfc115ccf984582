// How a library function becomes equations. While tracing, its rule writes into the current trace; otherwise the rule
// is recorded once per signature as a small program, which is compiled, cached and run: eager and traced execution
// share every rule.
#pragma once

#include <absl/functional/function_ref.h>

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "sheaf/ops.h"
#include "trace/array_node.h"

namespace sheaf {

/// What a rule depends on besides its name and the types of its operands.
class RuleKey {
 public:
  RuleKey& add(std::int64_t v) { return add_bits(static_cast<std::uint64_t>(v)); }
  RuleKey& add(double v);
  RuleKey& add(std::span<const std::int64_t> v) {
    add(static_cast<std::int64_t>(v.size()));
    for (std::int64_t i : v) add(i);
    return *this;
  }
  RuleKey& add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  RuleKey& add_bits(std::uint64_t v) {
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  std::string bytes_;
};

/// The operand itself, numbers as weak arrays.
inline Array to_array(const Operand& x) { return x.array() ? *x.array() : Array(x.number(), x.loc()); }

/// An operand of a rule: an array, or a number with the dtype the rule wants it in.
struct Input {
  const Array* array = nullptr;
  Number number = 0;
  DType dtype = f32;             // of the value the rule gets; arrays of another dtype are converted
  Input(const Array& a) : array(&a), dtype(a.dtype()) {}  // NOLINT
  Input(const Operand& x);                                // NOLINT
  Input(const Operand& x, DType as);
};

using Rule = absl::FunctionRef<ir::Values(ir::Builder&, const ir::Values&)>;
/// `name` names the rule, in keys and in messages. Results are weak if `weak`.
std::vector<Array> apply(std::string_view name, RuleKey key, std::span<const Input> inputs, Loc loc, Rule rule,
                         bool weak = false);
inline Array apply1(std::string_view name, RuleKey key, std::initializer_list<Input> inputs, Loc loc, Rule rule,
                    bool weak = false) {
  return apply(name, std::move(key), std::span(inputs.begin(), inputs.size()), loc, rule, weak)[0];
}

/// A function composed of others: its body works on Arrays.
using Body = absl::FunctionRef<std::vector<Array>(std::span<const Array>)>;
std::vector<Array> compose(std::string_view name, RuleKey key, std::span<const Operand> operands, Loc loc, Body body);
Array compose1(std::string_view name, RuleKey key, std::initializer_list<Operand> operands, Loc loc,
               absl::FunctionRef<Array(std::span<const Array>)> body);

/// One equation, its inference error turned into the user's exception.
ir::Values emit(ir::Builder& b, const ir::OpDef& op, ir::Values operands, std::shared_ptr<const void> attrs = nullptr);
template <class A>
ir::Value emit1(ir::Builder& b, const ir::OpDef& op, ir::Values operands, A attrs) {
  return emit(b, op, std::move(operands), std::make_shared<const A>(std::move(attrs)))[0];
}
ir::Value emit1(ir::Builder& b, const ir::OpDef& op, ir::Values operands);

/// A rank-0 constant holding the number exactly as `dtype` can.
ir::Value constant(ir::Builder& b, Number v, DType dtype);

/// Throws ShapeError: "zeros: the shape [-1] has a negative extent", or too many elements to count.
void check_shape(std::string_view name, const Shape& shape, Loc loc);

/// axis counted from the front, or ShapeError: "sum: axis 3 is out of range for f32[2, 3]".
int checked_axis(std::string_view name, const Operand& x, std::int64_t axis, Loc loc);
std::vector<std::int64_t> checked_axes(std::string_view name, const Operand& x, const std::vector<std::int64_t>& axes,
                                       Loc loc);

}  // namespace sheaf
