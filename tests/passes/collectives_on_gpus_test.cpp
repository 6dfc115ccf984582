// What GPUs do not do among themselves stands for equations around what they do: of the same values, to the bit.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "ir/eval_spmd.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/transforms.h"
#include "tests/lap.h"
#include "tests/passes/programs.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

const Target kGpu{.gpu = "sm_90a"};

FunctionRef collective(const std::string& operand, const std::string& result, const std::string& equation) {
  const auto module =
      parse(fmt::format("mesh @m = [x=2, y=2]\nfunc @f(%x: {}) -> {} on @m {{\n  %y: {} = {}\n  return %y\n}}\n",
                        operand, result, result, equation));
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0];
}

/// Roundings, NaNs, infinities and both zeros.
Literal values(Type type, std::mt19937& bits) {
  Literal x(type);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto b = static_cast<std::uint32_t>(bits());
    if (is_bool(type.dtype())) x.set_bits(i, b & 1);
    else if (is_int(type.dtype())) x.set_int(i, static_cast<std::int32_t>(b));
    else if (b % 8 < 3) x.set(i, std::vector<double>{0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN, 1e-40}[b / 8 % 7]);
    else x.set(i, std::ldexp(static_cast<double>(static_cast<std::int32_t>(b)), -31 + static_cast<int>(b % 13)));
  }
  return x;
}

bool can_be_done(const Function& f) {
  for (const Eqn* e : f.eqns())
    if (e->op->has_kernel && !e->op->has_kernel(*e, kGpu)) return false;
  return true;
}

/// The equations that it stands for.
FunctionRef checked(const FunctionRef& f) {
  const FunctionRef made = passes::expand_ops_for(f, kGpu)->on_mesh(f->mesh());
  const absl::Status status = verify(*made);
  CHECK_MESSAGE(status.ok(), std::string(status.message()));
  CHECK(can_be_done(*made));
  std::mt19937 bits(3);
  std::vector<Literals> inputs(4);
  for (Literals& of_device : inputs) of_device = {values(f->params()[0].type(), bits)};
  const std::vector<Literals> want = eval_spmd(f, inputs), got = eval_spmd(made, inputs);
  for (std::size_t d = 0; d < want.size(); ++d) CHECK(tests::same_bits(got[d][0], want[d][0]));
  return made;
}

std::size_t equations(const std::string& operand, const std::string& result, const std::string& equation) {
  INFO(equation, " of ", operand);
  return checked(collective(operand, result, equation))->eqns().size();
}

}  // namespace

TEST_CASE("on a CPU collectives stay as they are") {
  const FunctionRef f = collective("i16[3, 4]", "i16[3, 2]", "reduce_scatter %x {axes=[x], size=2, dim=1, tiled=true}");
  CHECK(passes::expand_ops_for(f, {})->eqns().size() == 1);
}

TEST_CASE("blocks that are not in one piece are brought to the front, and back") {
  CHECK(equations("f32[6, 3]", "f32[12, 3]", "all_gather %x {axes=[x], size=2, tiled=true}") == 1);
  CHECK(equations("f32[1, 3]", "f32[1, 6]", "all_gather %x {axes=[x], size=2, dim=1, tiled=true}") == 1);
  CHECK(equations("f32[6, 3]", "f32[6, 6]", "all_gather %x {axes=[x], size=2, dim=1, tiled=true}") == 3);
  CHECK(equations("f32[6, 3]", "f32[6, 4, 3]", "all_gather %x {axes=[x, y], size=4, dim=1}") == 2);
  CHECK(equations("f32[6, 4]", "f32[3, 4]", "reduce_scatter %x {axes=[y], size=2, tiled=true}") == 1);
  CHECK(equations("f32[6, 4]", "f32[6, 2]", "reduce_scatter %x {axes=[y], size=2, dim=1, tiled=true}") == 3);
  CHECK(equations("f32[6, 2, 4]", "f32[6, 4]", "reduce_scatter %x {axes=[y], size=2, dim=1}") == 2);
  CHECK(equations("f32[2, 6]", "f32[2, 6]", "all_to_all %x {axes=[x], size=2, split=0, concat=0, tiled=true}") == 1);
  CHECK(equations("f32[4, 6]", "f32[8, 3]", "all_to_all %x {axes=[x], size=2, split=1, concat=0, tiled=true}") == 4);
  CHECK(equations("f32[4, 6]", "f32[2, 12]", "all_to_all %x {axes=[x], size=2, split=0, concat=1, tiled=true}") == 4);
  CHECK(equations("f32[3, 2, 5]", "f32[3, 5, 2]", "all_to_all %x {axes=[x], size=2, split=1, concat=2}") == 3);
}

TEST_CASE("what NCCL does not combine, or otherwise, travels as integers or as wider ones") {
  for (const char* dtype : {"i16", "u16", "f16", "bf16", "f32", "f64", "i8", "i32", "u32", "i64", "u64", "u8"})
    for (const char* kind : {"max", "min", "sum"}) {
      const bool is_16_bit = std::string(dtype).ends_with("16"), is_float = dtype[0] == 'f' || dtype[0] == 'b';
      const bool is_sum = kind[0] == 's', stays = is_float ? is_sum : !is_16_bit;
      const std::string type = fmt::format("{}[4, 6]", dtype);
      const std::size_t made = equations(type, type, fmt::format("all_reduce %x {{axes=[x, y], kind={}}}", kind));
      CHECK((made == 1) == stays);
      equations(type, fmt::format("{}[4, 3]", dtype),
                fmt::format("reduce_scatter %x {{axes=[x], size=2, dim=1, tiled=true, kind={}}}", kind));
    }
  CHECK(equations("bool[4, 6]", "bool[4, 6]", "all_reduce %x {axes=[x], kind=or}") == 1);
}
