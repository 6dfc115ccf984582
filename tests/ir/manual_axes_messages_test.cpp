// What is said where values that differ along manual axes do not fit, and of shard_maps that do not.
#include <doctest/doctest.h>

#include <string>

#include "ir/text.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

// The sentence that refuses `statement` over %x: f32[4], and along x %v: f32[4] and %i: i32[].
std::string refusal(const std::string& statement) {
  const auto module =
      parse("func @f(%x: f32[4], %v: f32[4]{V@x}, %i: i32[]{V@x}) -> f32[4] {\n" + statement + "\nreturn %x\n}\n");
  if (module.ok()) return "parsed";
  std::string text(module.status().message());
  text = text.substr(0, text.find('\n'));
  return text.substr(text.find(": ", text.find(": ") + 1) + 2);  // past "line:column: op: "
}

const std::string kSame = " (%a: f32[4]) { return %a }";
const std::string kPart = " (%a: f32[2]{V@x}) { return %a }";

}  // namespace

TEST_CASE("where devices choose differently, all that goes in and comes out differs") {
  CHECK(refusal("%0: f32[4] = cond %i, %x" + kSame) ==
        "the index differs along \"x\", and operand 0 (f32[4]) does not");
  CHECK(refusal("%0: f32[4] = cond %i, %v (%a: f32[4]{V@x}) { %b: f32[4] = all_reduce %a {axes=[x]} return %b }") ==
        "the index differs along \"x\", and result 0 (f32[4]) does not");
  CHECK(refusal("%0: f32[4] = while %v, %x {cond_consts=1} (%c: f32[4]{V@x}, %a: f32[4]) { %r: f32[]{V@x} = reduce %c "
                "{kind=sum, dims=[0]} %z: f32[] = constant {dtype=f32, hex=\"00000000\"} %b: bool[]{V@x} = lt %r, %z "
                "return %b }" +
                kSame) == "the condition differs along \"x\", and argument 0 (f32[4]) does not");
}

TEST_CASE("a shard_map says which axis, spec or dim does not fit") {
  const auto map = [](const std::string& operand, const std::string& attrs, const std::string& region) {
    return refusal("%0: f32[4] = shard_map " + operand + " {" + attrs + "}" + region);
  };
  CHECK(map("%x", "mesh=\"x=2\", in=[\"x\"], out=[\"x\"], manual=[y]", kPart) == "the mesh [x=2] has no axis \"y\"");
  CHECK(map("%x", "mesh=\"x=2\", in=[\"y\"], out=[\"x\"], manual=[x]", kPart) == "the mesh [x=2] has no axis \"y\"");
  CHECK(map("%x", "mesh=\"x=2, y=2\", in=[\"y\"], out=[\"x\"], manual=[x]", kPart) ==
        "the spec y names \"y\", along which the region is not written");
  CHECK(map("%x", "mesh=\"x=3\", in=[\"x\"], out=[\"x\"], manual=[x]", kPart) ==
        "dim 0 of operand 0 (f32[4]) does not divide by 3");
  CHECK(map("%x", "mesh=\"x=2\", in=[\"x\", \"\"], out=[\"x\"], manual=[x]", kPart) ==
        "has 2 specs for 1 operands and 1 for 1 results");
  CHECK(map("%x", "mesh=\"x=2\", in=[\"x,_\"], out=[\"x\"], manual=[x]", kPart) ==
        "the spec x,_ has 2 dims, its value 1");
  CHECK(map("%x", "mesh=\"x=2\", in=[\"x\"], out=[\"_\"], manual=[x]", kPart) ==
        "result 0 (f32[2]{V@x}) differs along \"x\", which its spec _ does not name");
  CHECK(map("%v", "mesh=\"x=2\", in=[\"_\"], out=[\"x\"], manual=[x]", " (%a: f32[4]{V@x}) { return %a }") ==
        "operand 0 (f32[4]{V@x}) is a part along \"x\" already");
  CHECK(map("%x", "mesh=\"x=2\", in=[\"x\"], out=[\"x\"], manual=[x]", kSame) ==
        "argument 0 of region must be f32[4], not f32[2]{V@x}");
}
