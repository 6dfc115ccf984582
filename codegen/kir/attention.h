// An attention or its backward as a description for the emitter's own nest: sizes, and where each operand and result
// lies. What they compute is ir/ops/attention.cpp's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/kir/kir.h"
#include "ir/graph.h"

namespace sheaf::kir {

struct Attention {
  enum class Kind : std::uint8_t { forward, backward };
  /// Element [batch.., head, row, column] of a parameter, by steps in memory. Rows are places along a length, columns
  /// features, or keys beside queries.
  struct Array {
    BufferId buffer = -1;  // -1: there is none
    DType dtype = DType::f32;
    std::vector<std::int64_t> batch = {};
    std::int64_t head = 0, row = 0, column = 0;
    bool is_there() const { return buffer >= 0; }
  };

  Kind kind = Kind::forward;
  std::vector<std::int64_t> batch = {};
  std::int64_t queries = 0, keys = 0, key_heads = 0, group = 1, features = 0, values = 0;
  double scale = 1;
  std::int64_t before = -1, after = -1;

  Array query = {}, key = {}, value = {}, bias = {}, mask = {};
  Array out = {};  // of a forward
  /// Of a forward: how many parts the keys are cut into, so that few queries are work for many. Then there are
  std::int64_t parts = 1;
  Array part_out = {}, part_lse = {};  // temporaries: f32 results of each part, one part after the other
  Array lse = {};  // what a forward gives and a backward takes
  Array ct = {}, ct_sum = {}, d_query = {}, d_key = {}, d_value = {}, d_bias = {};  // of a backward, as are:
  Array ct_half = {};  // ct in the dtype of the operands: a temporary, unless that is what it is
  Array shift = {};  // a temporary: what is subtracted from a score in units of log 2, +inf where lse is -inf

  std::int64_t heads() const { return key_heads * group; }
  std::int64_t batches() const;
};

/// The kernel of a body that is one attention, or its backward, of the body's parameters; its parameters are those, the
/// body's results, and temporaries.
Kernel attention_kernel(const ir::Function& body);

std::string to_text(const Attention& attention);

}  // namespace sheaf::kir
