// Values from nothing: literals and iota. They have no operand, so neither tangent nor batch dim ever reaches them.
#include "ir/ops/complex.h"
#include "ir/ops/sheet.h"
#include "ir/shard.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<Factors> constant_factors(const Eqn& e) {
  const Constant& c = e.attrs<Constant>();
  if (absl::Status s = check_shape(c.dims); !s.ok()) return s;
  if (static_cast<std::int64_t>(c.hex.size()) != 2 * num_elements(c.dims) * size_bytes(c.dtype))
    return absl::InvalidArgumentError(fmt::format("hex must hold {} bytes of {}{}",
                                                  num_elements(c.dims) * size_bytes(c.dtype), name(c.dtype),
                                                  to_string(c.dims)));
  if (c.hex.find_first_not_of("0123456789abcdef") != std::string::npos)
    return absl::InvalidArgumentError("hex must be lower-case hexadecimal");
  Factors r;
  r.out.emplace_back();
  for (std::int64_t n : c.dims) r.out[0].push_back({r.add(n, FactorClass::N)});
  return r;
}

absl::StatusOr<Factors> iota_factors(const Eqn& e) {
  const Iota& a = e.attrs<Iota>();
  if (absl::Status s = check_shape(a.shape); !s.ok()) return s;
  if (absl::Status s = check_one_dim("dim", a.dim, static_cast<int>(a.shape.size())); !s.ok()) return s;
  Factors r;
  r.out.emplace_back();
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(a.shape.size()); ++d)
    r.out[0].push_back({r.add(a.shape[d], FactorClass::P, Combine::none, d == a.dim[0])});
  return r;
}

void eval_iota(const Eqn& e, std::span<const Literal>, std::span<Literal> out) {
  const std::int64_t dim = e.attrs<Iota>().dim[0];
  if (out[0].size() == 0) return;
  DimList i(out[0].dims().size());
  std::int64_t at = 0;
  do {
    if (is_float(out[0].dtype())) out[0].set(at++, static_cast<double>(i[dim]));
    else out[0].set_int(at++, i[dim]);
  } while (next_index(i, out[0].dims()));
}

// Counted before it is converted, so that each element is rounded or wrapped once.
Values localize_iota(const Shard& s) {
  Iota a = s.whole.attrs<Iota>();
  const DType dtype = a.dtype;
  const TensorFactors& dims = s.factors.out[0];
  const Value first = s.offset(dims[a.dim[0]]);
  a.shape = s.local_dims(dims);
  a.dtype = first.dtype();
  return {convert_to(s.b.emit(iota, {}, std::move(a)) + first, dtype)};
}

}  // namespace

constinit const OpDef constant = {
    .name = "constant",
    .doc = "A literal: `1.5:f32` in place of an operand at rank 0, else its bytes in hexadecimal.",
    .arity = 0,
    .attrs = attrs_of<Constant>(),
    .factors = constant_factors,
    .dtypes = [](const Eqn& e) -> absl::StatusOr<std::vector<DType>> {
      return std::vector<DType>{e.attrs<Constant>().dtype};
    },
    .no_jvp = Absent::no_operands,
    .lower = [](const Eqn& e) -> Lowering {
      SHEAF_CHECK(e.out().rank() == 0, "dense constants are buffers of the plan");
      ScalarBuilder s;
      return lowering::Map{s.finish(s.constant_bits(e.out().dtype(), literal_of(e).bits(0)))};
    },
    .on_parts = constant_on_parts,
    .eval = [](const Eqn& e, std::span<const Literal>, std::span<Literal> out) { out[0] = literal_of(e); },
    .cost = [](const Eqn&) { return Cost{}; },
    .samples =
        [] {
          return Samples{"constant {hex=\"0000803f\"}", "constant {dims=[2], hex=\"0000803f00000040\"}",
                         "constant {dtype=bool, dims=[3], hex=\"010001\"}", "constant {dtype=bf16, dims=[0]}",
                         "constant {dtype=c64, dims=[1], hex=\"0000803f00000040\"}"};
        },
};

constinit const OpDef iota = {
    .name = "iota",
    .doc = "Each element is its index along `dim`, wrapped in integers and rounded in floats.",
    .arity = 0,
    .attrs = attrs_of<Iota>(),
    .factors = iota_factors,
    .dtypes = [](const Eqn& e) -> absl::StatusOr<std::vector<DType>> {
      const DType t = e.attrs<Iota>().dtype;
      if (!is_int(t) && !is_float(t))
        return absl::InvalidArgumentError(fmt::format("dtype must be an integer or floating point, not {}", name(t)));
      return std::vector<DType>{t};
    },
    .no_jvp = Absent::no_operands,
    .localize = localize_iota,
    .lower = [](const Eqn& e) -> Lowering { return lowering::Iota{static_cast<int>(e.attrs<Iota>().dim[0])}; },
    .eval = eval_iota,
    .samples =
        [] {
          return Samples{"iota {shape=[4, 3], dim=[1]}",
                         "iota {shape=[5], dim=[0], dtype=f32}",
                         "iota {shape=[0], dim=[0]}",
                         "iota {shape=[300], dim=[0], dtype=u8}",
                         "iota {shape=[3, 2], dim=[0], dtype=bf16}",
                         "iota {shape=[2, 1], dim=[1], dtype=f64}",
                         "iota {shape=[3], dim=[0], dtype=f16}",
                         "iota {shape=[3, 2], dim=[0], dtype=i64}"};
        },
};

}  // namespace sheaf::ir::ops
