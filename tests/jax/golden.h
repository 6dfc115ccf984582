// Golden rows: one op on given operands, and what JAX says of its value, tangents, cotangents and batches. The files
// are those of make_golden.py, which states the format; what is read here is data only.
#pragma once

#include <string>
#include <vector>

#include "ir/literal.h"
#include "ir/sample.h"

namespace sheaf::tests {

/// "value", "jvp" in operand numbers[0], "vjp" in all float operands, or "vmap" with operand k batched at numbers[k].
struct Quantity {
  std::string kind;
  std::vector<int> numbers;
  std::vector<std::string> results;  // not yet read: their types are those of Sheaf's results
};

struct Row {
  std::string text;  // "add f32[3], f32[3]"
  ir::Literals operands;
  std::vector<Quantity> quantities;
};

/// The words of a text.
std::vector<std::string> words(const std::string& text);

std::vector<Row> read_golden(const std::string& family);

/// Elements as the file words them: hexadecimal bits, "nan", "b*n".
ir::Literal read_elements(ir::Type type, const std::string& text);

/// Element i is the (i + shift) % 4-th of 1, -0.5, 2, 0.75: tangents and cotangents.
ir::Literal direction(ir::Type type, int shift);
/// x and, as the second of a batch of two at `axis`, x with its elements moved on by one position.
ir::Literal batch_of_two(const ir::Literal& x, int axis);

}  // namespace sheaf::tests
