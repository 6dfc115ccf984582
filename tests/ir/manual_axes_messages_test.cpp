// What is said where values that differ along manual axes do not fit, and of shard_maps that do not.
#include <doctest/doctest.h>

#include <string>

#include "ir/text.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

// The sentence that refuses `statement` over %x: f32[4], and along x %v: f32[4] and %i: i32[] that vary, %u: f32[4] and
// %n: i32[4] that are unreduced, %r: f32[4] that is reduced.
std::string refusal(const std::string& statement) {
  const auto module = parse(
      "func @f(%x: f32[4], %v: f32[4]{V@x}, %i: i32[]{V@x}, %u: f32[4]{U@x}, %n: i32[4]{U@x}, %r: f32[4]{R@x}) -> "
      "f32[4] {\n" +
      statement + "\nreturn %x\n}\n");
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
  CHECK(map("%x", "mesh=\"x=2\", in=[\"x\"], out=[\"\"], manual=[x]",
            " (%a: f32[2]{V@x}) { %u: f32[2]{U@x} = pcast %a {axes=[x], to=unreduced} return %u }") ==
        "result 0 (f32[2]{U@x}) is yet to be summed along \"x\", which its spec _ does not name");
  CHECK(map("%x", "mesh=\"x=2\", in=[\"x\"], out=[\"x\"], manual=[x]", kSame) ==
        "argument 0 of region must be f32[4], not f32[2]{V@x}");
}

TEST_CASE("an unreduced value goes only through what is linear in it") {
  CHECK(refusal("%0: f32[4]{U@x} = sin %u") ==
        "operand 0 (f32[4]{U@x}) is yet to be summed along \"x\", and the op is not linear in it: psum it first");
  CHECK(refusal("%0: i32[4]{U@x} = div %n, %n") ==
        "operand 1 (i32[4]{U@x}) is yet to be summed along \"x\", and the op is not linear in it: psum it first");
  CHECK(refusal("%0: f32[4]{U@x} = add %u, %x") ==
        "operand 0 (f32[4]{U@x}) is yet to be summed along \"x\", and operand 1 (f32[4]) is not: psum the one, or cast "
        "the other");
  CHECK(refusal("%0: f32[4]{U@x} = add %r, %u") ==
        "operand 1 (f32[4]{U@x}) is yet to be summed along \"x\", and operand 0 (f32[4]{R@x}) is not: psum the one, or "
        "cast the other");
  CHECK(refusal("%0: f32[4]{U@x} = mul %u, %v") ==
        "operand 0 (f32[4]{U@x}) is yet to be summed along \"x\", along which operand 1 (f32[4]{V@x}) differs");
  CHECK(refusal("%0: f32[4]{U@x} = mul %u, %u") ==
        "operand 0 (f32[4]{U@x}) and another operand are yet to be summed along \"x\": a product of sums is no sum of "
        "products");
  CHECK(refusal("%0: f32[4]{U@x} = convert %n {to=f32}") ==
        "operand 0 (i32[4]{U@x}) is yet to be summed along \"x\", and the op is not linear in it: psum it first");
  CHECK(refusal("%0: f64[4]{U@x} = convert %u {to=f64}") == "parsed");
  CHECK(refusal("%0: f32[4]{U@x} = neg %u") == "parsed");
  CHECK(refusal("%0: f32[4]{U@x} = add %u, %u") == "parsed");
  CHECK(refusal("%0: f32[4]{U@x} = add %u, 0.0:f32") == "parsed");
  CHECK(refusal("%0: f32[4]{U@x} = mul %u, %x") == "parsed");
}

TEST_CASE("collectives and casts say what their operand has to be") {
  CHECK(refusal("%0: f32[4] = all_reduce %u {axes=[x], kind=max}") ==
        "operand 0 (f32[4]{U@x}) is yet to be summed along \"x\": psum it first");
  CHECK(refusal("%0: f32[4] = all_reduce %r {axes=[x]}") ==
        "operand 0 (f32[4]{R@x}) has to differ along \"x\", and is reduced");
  CHECK(refusal("%0: f32[4] = all_reduce %v {axes=[x, y]}") ==
        "operand 0 (f32[4]{V@x}) has to be of one kind along all of \"x\", \"y\"");
  CHECK(refusal("%0: f32[8] = all_gather %u {axes=[x], size=2, tiled=true}") ==
        "operand 0 (f32[4]{U@x}) has to differ along \"x\", and is unreduced");
  CHECK(refusal("%0: f32[8] = all_gather %v {axes=[x], size=2, tiled=true, to=unreduced}") ==
        "to=unreduced: what was gathered is no sum");
  CHECK(refusal("%0: f32[2] = pscatter %v {axes=[x], size=2, tiled=true}") ==
        "operand 0 (f32[4]{V@x}) has to be the same along \"x\", and is varying");
  CHECK(refusal("%0: f32[4] = pcast %v {axes=[x]}") ==
        "operand 0 (f32[4]{V@x}) is varying along \"x\", which cannot be cast to varying");
  CHECK(refusal("%0: f32[4] = pcast %x {axes=[x], to=unreduced}") ==
        "operand 0 (f32[4]) is invarying along \"x\", which cannot be cast to unreduced");
  CHECK(refusal("%0: f32[4] = pcast %v {axes=[x], to=reduced}") ==
        "operand 0 (f32[4]{V@x}) is varying along \"x\", which cannot be cast to reduced");
  CHECK(refusal("%0: f32[4] = pcast %r {axes=[x], to=invarying}") ==
        "operand 0 (f32[4]{R@x}) is reduced along \"x\", which cannot be cast to invarying");
  CHECK(refusal("%0: f32[4]{V@x} = ppermute %v {axes=[x], sources=[0, 0], targets=[1, 2]}") ==
        "sources=[0, 0] do not fit the operand");
  CHECK(refusal("%0: f32[4]{V@x} = ppermute %v {axes=[x], sources=[0, 1], targets=[1]}") ==
        "targets=[1] do not fit the operand");
}

TEST_CASE("an axis is in one of the sets of a type") {
  const auto text = [](const std::string& type) { return std::string(parse_type(type).status().message()); };
  CHECK(text("f32[4]{V@x}{R@x}").find("the axis \"x\" is in two of V, U and R") != std::string::npos);
  CHECK(text("f32[4]{W@x}").find("expected sum, max, min, V, U or R") != std::string::npos);
  CHECK(to_string(*parse_type("f32[4]{R@z}{U@y}{V@(b, a)}")) == "f32[4]{V@(a, b)}{U@y}{R@z}");
}
