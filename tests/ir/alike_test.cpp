// Functions are alike if nothing but names and lines tells them apart.
#include "ir/alike.h"

#include <doctest/doctest.h>

#include "ir/text.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

FunctionRef function(std::string_view text) {
  const auto module = parse(text);
  REQUIRE_MESSAGE(module.ok(), module.status().ToString());
  return module->functions[0];
}

constexpr std::string_view kLayer =
    "func @layer(%x: f32[2, 3], %y: f32[2, 3]) -> f32[2], f32[2, 3] {\n"
    "  %0: f32[2, 3] = sub %x, %y\n"
    "  %1: f32[2, 3] = tanh %0\n"
    "  %2: f32[2] = reduce %1 {kind=sum, dims=[1]}\n"
    "  return %2, %1\n}\n";

/// The layer with `from` exchanged for `to`.
FunctionRef layer_with(std::string_view from, std::string_view to) {
  std::string text(kLayer);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return function(text.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("functions of other names are alike, and hash alike") {
  const FunctionRef layer = function(kLayer);
  for (const FunctionRef& other : {layer, function(kLayer), layer_with("@layer", "@another")}) {
    CHECK(are_alike(*layer, *other));
    CHECK(hash_of(*layer) == hash_of(*other));
  }
  const FunctionRef renamed = function(
      "func @g(%a: f32[2, 3], %b: f32[2, 3]) -> f32[2], f32[2, 3] {\n"
      "  %5: f32[2, 3] = sub %a, %b\n"
      "  %6: f32[2, 3] = tanh %5\n"
      "  %7: f32[2] = reduce %6 {kind=sum, dims=[1]}\n"
      "  return %7, %6\n}\n");
  CHECK(are_alike(*layer, *renamed));
  CHECK(hash_of(*layer) == hash_of(*renamed));
}

TEST_CASE("another op, attribute, operand, order or type makes another function") {
  const FunctionRef layer = function(kLayer);
  for (const FunctionRef& other :
       {layer_with("tanh %0", "exp %0"), layer_with("kind=sum", "kind=max"), layer_with("sub %x, %y", "sub %y, %x"),
        layer_with("sub %x, %y", "sub %x, %x"), layer_with("return %2, %1", "return %2, %0"),
        function("func @layer(%x: f32[2, 3]) -> f32[2, 3] {\n  %0: f32[2, 3] = tanh %x\n  return %0\n}\n"),
        function("func @layer(%x: f64[2, 3], %y: f64[2, 3]) -> f64[2], f64[2, 3] {\n"
                 "  %0: f64[2, 3] = sub %x, %y\n"
                 "  %1: f64[2, 3] = tanh %0\n"
                 "  %2: f64[2] = reduce %1 {kind=sum, dims=[1]}\n"
                 "  return %2, %1\n}\n")}) {
    CHECK_FALSE(are_alike(*layer, *other));
    CHECK_FALSE(are_alike(*other, *layer));
    CHECK(hash_of(*layer) != hash_of(*other));
  }
}

TEST_CASE("regions are compared as well") {
  const auto loop = [](std::string_view op) {
    return function(std::string("func @f(%c: f32[4]) -> f32[4] {\n"
                                "  %0: f32[4] = scan %c {consts=0, carry=1, length=3} (%h: f32[4]) {\n"
                                "    %1: f32[4] = ") +
                    std::string(op) + " %h\n    return %1\n  }\n  return %0\n}\n");
  };
  CHECK(are_alike(*loop("tanh"), *loop("tanh")));
  CHECK_FALSE(are_alike(*loop("tanh"), *loop("exp")));
  CHECK(hash_of(*loop("tanh")) != hash_of(*loop("exp")));
}
