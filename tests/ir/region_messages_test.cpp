// What region ops say when their regions do not fit their operands, word for word.
#include <doctest/doctest.h>

#include <string>

#include "ir/text.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

// The sentence, without place and source line, that refuses `statement` over %x: f32[2], %i: i32[] and %s: f32[3, 2].
std::string refusal(const std::string& statement) {
  const auto module =
      parse("func @f(%x: f32[2], %i: i32[], %s: f32[3, 2]) -> f32[2] {\n" + statement + "\nreturn %x\n}\n");
  if (module.ok()) return "parsed";
  std::string text(module.status().message());
  text = text.substr(0, text.find('\n'));
  return text.substr(text.find(": ", text.find(": ") + 1) + 2);  // past "line:column: op: "
}

const std::string kSame = " (%a: f32[2]) { return %a }";
const std::string kTrue = " (%a: f32[2]) { return true:bool }";

}  // namespace

TEST_CASE("a region's parameters and results are counted and compared one by one") {
  CHECK(refusal("%0: f32[2] = checkpoint %x") == "takes 1 region, not 0");
  CHECK(refusal("%0: f32[2] = checkpoint %x, %x" + kSame) == "region takes 1 argument, not 2");
  CHECK(refusal("%0: f32[2] = checkpoint %i" + kSame) == "argument 0 of region must be f32[2], not i32[]");
  CHECK(refusal("%0: f32[2] = while %x" + kTrue + " (%a: f32[2]) { return %a, %a }") ==
        "region must return 1 result, not 2");
  CHECK(refusal("%0: f32[2] = while %x" + kSame + kSame) == "result 0 of region must be bool[], not f32[2]");
}

TEST_CASE("cond says what its index and its branches must be") {
  CHECK(refusal("%0: f32[2] = cond %i, %x") == "takes at least 1 region, not 0");
  CHECK(refusal("%0: f32[2] = cond" + kSame) == "takes an index, then the operands of the branches");
  CHECK(refusal("%0: f32[2] = cond %x, %x" + kSame) == "the index must be i32[], not f32[2]");
  CHECK(refusal("%0: f32[2] = cond %i, %x" + kSame + kTrue) == "result 0 of region must be f32[2], not bool[]");
}

TEST_CASE("scan says which count, stack or carry does not fit") {
  CHECK(refusal("%0: f32[2] = scan %x {consts=1, carry=1, length=3}" + kSame) ==
        "consts=1 and carry=1 do not fit 1 operands and 1 results");
  CHECK(refusal("%0: f32[2] = scan %x {carry=1, length=-1}" + kSame) == "length=-1 must not be negative");
  CHECK(refusal("%0: f32[2] = scan %x {carry=1, length=3, unroll=0}" + kSame) == "unroll=0 must be at least 1");
  CHECK(refusal("%0: f32[2, 2] = scan %s {length=2}" + kSame) == "operand 0 is f32[3, 2], not a stack of length 2");
  CHECK(refusal("%0: f32[2] = scan %x {carry=1, length=3}" + kTrue) == "carry 0 enters as f32[2] and leaves as bool[]");
}

TEST_CASE("while says which count does not fit") {
  CHECK(refusal("%0: f32[2] = while %x {cond_consts=2}" + kTrue + kSame) ==
        "cond_consts=2 and body_consts=0 do not fit 1 operands");
  CHECK(refusal("%0: f32[2] = while %x {max_trips=-2}" + kTrue + kSame) == "max_trips=-2 must not be negative");
}

TEST_CASE("custom rules say which of their functions does not match") {
  CHECK(refusal("%0: f32[2] = custom_jvp %x {consts=2}" + kSame + kSame) == "consts=2 does not fit 1 operands");
  CHECK(refusal("%0: f32[2] = custom_jvp %x" + kSame + kSame) == "region takes 1 argument, not 2");
  CHECK(refusal("%0: f32[2] = custom_vjp %x" + kSame + kTrue + kSame) ==
        "region must return what region does, then residuals");
  CHECK(refusal("%0: f32[2] = custom_linear %x {residuals=2}" + kSame) == "residuals=2 does not fit 1 operands");
  CHECK(refusal("%0: f32[2] = custom_linear_solve %x" + kSame) == "takes 2 or 3 regions, not 1");
}

TEST_CASE("a kernel's places are one for each result") {
  CHECK(refusal("%0: f32[2] = kernel %x {offsets=[0, 256]}" + kSame) ==
        "offsets=[0, 256] must have one entry for each of the 1 results");
  CHECK(refusal("%0: f32[2] = kernel %x {in_place=[1]}" + kSame) == "in_place=[1] must name operands or -1");
}
