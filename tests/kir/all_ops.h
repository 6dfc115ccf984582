// One kernel that names every op of every dtype, over one element each: what a compiler of kernels must be able to do.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "codegen/kir/build.h"

namespace sheaf::kir {

inline constexpr DType kAllTypes[] = {DType::bool_, DType::i8,  DType::i16, DType::i32, DType::i64,
                                      DType::u8,    DType::u16, DType::u32, DType::u64, DType::f16,
                                      DType::bf16,  DType::f32, DType::f64};

/// Parameters: for each of kAllTypes three elements to read, then for each a thousand of which some are written.
inline Kernel all_ops() {
  Kernel k{.name = "all_ops", .params = {}, .phases = {}, .contract = {}};
  for (DType t : kAllTypes) k.params.push_back({t, 3, Param::Access::read});
  for (DType t : kAllTypes) k.params.push_back({t, 1000, Param::Access::write});
  PhaseBuilder b(k.params, 1);
  std::vector<std::int64_t> used(std::size(kAllTypes), 0);
  const auto keep = [&](ValueId v) {
    const auto t =
        static_cast<std::size_t>(std::find(std::begin(kAllTypes), std::end(kAllTypes), b.dtype(v)) - kAllTypes);
    b.store(static_cast<BufferId>(std::size(kAllTypes) + t), b.indices().constant(used[t]++), v);
  };
  for (std::size_t i = 0; i < std::size(kAllTypes); ++i) {
    ValueId in[3];
    for (std::int64_t n = 0; n < 3; ++n) in[n] = b.load(static_cast<BufferId>(i), b.indices().constant(n));
    for (DType to : kAllTypes) keep(b.convert(in[0], to));
    const DType t = kAllTypes[i];
    if (t == DType::f16 || t == DType::bf16) continue;
    if (!is_bool(t))
      keep(b.bitcast(in[0], is_float(t)          ? (size_bytes(t) == 4 ? DType::u32 : DType::i64)
                            : size_bytes(t) == 4 ? DType::f32
                            : size_bytes(t) == 8 ? DType::f64
                            : size_bytes(t) == 2 ? DType::f16
                                                 : DType::i8));
    for (int code = static_cast<int>(ir::ScalarOp::add); code < static_cast<int>(ir::ScalarOp::select); ++code) {
      const auto op = static_cast<ir::ScalarOp>(code);
      const bool is_float_only = op >= ir::ScalarOp::fma && op <= ir::ScalarOp::round_even;
      const bool is_bits = op >= ir::ScalarOp::and_ && op <= ir::ScalarOp::popcount;
      const bool is_logic = op >= ir::ScalarOp::and_ && op <= ir::ScalarOp::not_;
      const bool is_comparison = op >= ir::ScalarOp::eq && op <= ir::ScalarOp::ge;
      if (is_bool(t) ? !is_logic && !is_comparison : is_float(t) ? is_bits : is_float_only) continue;
      if (op == ir::ScalarOp::mul_hi && t != DType::u32 && t != DType::u64) continue;
      keep(b.op(op, in[0], ir::arity(op) > 1 ? in[1] : -1, ir::arity(op) > 2 ? in[2] : -1));
    }
    keep(b.op(ir::ScalarOp::select, b.load(0, b.indices().constant(0)), in[0], in[1]));
  }
  k.phases.push_back(b.finish(1000));
  return k;
}

}  // namespace sheaf::kir
