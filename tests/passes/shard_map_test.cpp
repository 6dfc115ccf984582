// Derivatives and batches of programs with shard_map, against finite differences and example by example, and how often
// they add up over devices.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "ir/text.h"
#include "passes/transforms.h"
#include "tests/passes/maps.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;
using ir::ops::reduce_dims;

namespace {

Type f64s(Shape dims) { return Type(DType::f64, std::move(dims)); }

Literal numbers(Type type, double phase) {
  Literal x(type);
  for (std::int64_t i = 0; i < type.num_elements(); ++i)
    x.set(i, std::sin(1.7 * static_cast<double>(i) + phase) + 0.1 * phase);
  return x;
}

Value sum_all(Value x) { return reduce_dims(x, ReduceKind::sum, ops::dim_range(0, x.rank())); }
Value psum(Value x, const Axes& axes = {"x"}) {
  return x.builder().emit(ops::all_reduce, {varied(x, axes)}, ops::AllReduce{.axes = axes});
}
Value sin_of(Value x) { return x.builder().emit(ops::sin, {x}); }

// The sum of the map's results, each element of them with another weight.
FunctionRef weighed(const MapProgram& p) {
  Builder b("f");
  Values operands;
  for (const Type t : p.types) operands.push_back(b.param(t));
  Value total;
  for (const Value y : emit_map(b, p, operands)) {
    const Value weights = ops::convert_to(
        b.emit(
            ops::iota, {},
            ops::Iota{.shape = {std::max<std::int64_t>(1, y.type().num_elements())}, .dim = {0}, .dtype = DType::i32}),
        DType::f64);
    const Value term = sum_all(y * ops::reshape_to(sin_of(weights + 1), y.dims()));
    total = total ? total + term : term;
  }
  return b.finish({total});
}

// d f / d inputs[k][i] by central differences.
double difference(const Function& f, Literals inputs, std::size_t k, std::int64_t i, std::size_t result = 0) {
  constexpr double h = 1e-5;
  const double at = inputs[k].get(i);
  inputs[k].set(i, at + h);
  const double after = run_maps(f, inputs)[result].get(0);
  inputs[k].set(i, at - h);
  return (after - run_maps(f, inputs)[result].get(0)) / (2 * h);
}

Literals inputs_of(const MapProgram& p) {
  Literals inputs;
  for (std::size_t k = 0; k < p.types.size(); ++k) inputs.push_back(numbers(p.types[k], static_cast<double>(k + 1)));
  return inputs;
}

void check_gradient(const FunctionRef& f, const Literals& inputs) {
  const FunctionRef g = passes::value_and_grad(f, passes::Mask(inputs.size(), true));
  const Literals out = run_maps(*g, inputs);
  for (std::size_t k = 0; k < inputs.size(); ++k)
    for (std::int64_t i = 0; i < inputs[k].type().num_elements(); ++i)
      CHECK(out[1 + k].get(i) == doctest::Approx(difference(*f, inputs, k, i)).epsilon(1e-6));
}

// The sum of the sines of all gradients, to be differentiated again.
FunctionRef of_gradients(const FunctionRef& f) {
  const FunctionRef g = passes::value_and_grad(f, passes::Mask(f->params().size(), true));
  Builder b("second");
  Values args;
  for (const Value p : f->params()) args.push_back(b.param(p.type()));
  const Values outs = b.emit_all(&ops::call, args, nullptr, {g});
  Value total;
  for (std::size_t k = 1; k < outs.size(); ++k) {
    const Value term = sum_all(sin_of(outs[k]));
    total = total ? total + term : term;
  }
  return b.finish({total});
}

void check_batch(const FunctionRef& f, const MapProgram& p) {
  constexpr std::int64_t n = 3;
  std::vector<int> in(p.types.size(), 0);
  if (in.size() > 1) in.back() = -1;  // one is shared
  Literals stacked;
  std::vector<Literals> examples(n);
  for (std::size_t k = 0; k < in.size(); ++k) {
    Shape dims = p.types[k].dims();
    if (in[k] == 0) dims.insert(dims.begin(), n);
    stacked.push_back(numbers(f64s(dims), static_cast<double>(k + 1)));
    const std::int64_t size = p.types[k].num_elements();
    for (std::int64_t e = 0; e < n; ++e) {
      Literal one(p.types[k]);
      for (std::int64_t i = 0; i < size; ++i) one.set(i, stacked[k].get(in[k] == 0 ? e * size + i : i));
      examples[e].push_back(one);
    }
  }
  const Literals out = run_maps(*passes::vmap(f, in, {0}, n), stacked);
  for (std::int64_t e = 0; e < n; ++e)
    CHECK(out[0].get(e) == doctest::Approx(run_maps(*f, examples[e])[0].get(0)).epsilon(1e-12));
}

struct Named {
  const char* name;
  MapProgram program;
};

Value product(Builder&, Value x, Value w) { return x * w; }

Value index_of(Builder& b, const Axes& axes) {
  const auto attrs = std::make_shared<const ops::AxisIndex>(ops::AxisIndex{.axes = axes, .manual = true});
  return ops::convert_to(b.emit_all(&ops::axis_index, {}, attrs)[0], DType::f64);
}

Value cast(Builder& b, Value x, Along to) { return b.emit(ops::pcast, {x}, ops::Pcast{.axes = {"x"}, .to = to}); }
Value psum_of_sum(Value x) { return x.builder().emit(ops::all_reduce, {x}, ops::AllReduce{.axes = {"x"}}); }
Value gathered(Builder& b, Value x, Along to) {
  return b.emit(ops::all_gather, {x}, ops::AllGather{.axes = {"x"}, .size = 4, .tiled = true, .to = to});
}

// Operand 0 differs along x, operand 1 is the same on all devices.
std::vector<Named> collectives() {
  const auto map = [](std::vector<std::string> out, auto body) {
    return MapProgram{.types = {f64s({4, 4}), f64s({1, 4})}, .in = {"x,_", "_,_"}, .out = std::move(out), .body = body};
  };
  return {
      {"a sum", map({"_,_"}, [](Builder& b, const Values& v) { return Values{psum(sin_of(product(b, v[0], v[1])))}; })},
      {"a sum of what is the same", map({"_,_"}, [](Builder&, const Values& v) { return Values{psum(sin_of(v[1]))}; })},
      {"an extreme", map({"_,_"},
                         [](Builder& b, const Values& v) {
                           const Value y = product(b, v[0], v[1]);
                           return Values{
                               b.emit(ops::all_reduce, {y}, ops::AllReduce{.axes = {"x"}, .kind = ReduceKind::max})};
                         })},
      {"a gather", map({"x,_"},
                       [](Builder& b, const Values& v) {
                         const Value y = sin_of(product(b, v[0], v[1]));
                         const Value all =
                             b.emit(ops::all_gather, {y}, ops::AllGather{.axes = {"x"}, .size = 4, .tiled = true});
                         return Values{sin_of(all * index_of(b, {"x"}))};
                       })},
      {"a gather that all share",
       map({"_,_,_"},
           [](Builder& b, const Values& v) {
             const Value y = sin_of(product(b, v[0], v[1]));
             return Values{sin_of(
                 b.emit(ops::all_gather, {y}, ops::AllGather{.axes = {"x"}, .size = 4, .to = Along::invarying}))};
           })},
      {"a scattered sum",
       map({"_,x"},
           [](Builder& b, const Values& v) {
             const Value y = sin_of(product(b, v[0], v[1]));
             return Values{sin_of(b.emit(ops::reduce_scatter, {y},
                                         ops::ReduceScatter{.axes = {"x"}, .size = 4, .dim = 1, .tiled = true}))};
           })},
      {"a permutation",
       map({"x,_"},
           [](Builder& b, const Values& v) {
             const Value y = sin_of(product(b, v[0], v[1]));
             return Values{sin_of(
                 b.emit(ops::ppermute, {y}, ops::Ppermute{.axes = {"x"}, .sources = {0, 1, 3}, .targets = {1, 2, 0}}))};
           })},
      {"an exchange", map({"x,_"},
                          [](Builder& b, const Values& v) {
                            const Value y = sin_of(product(b, v[0], v[1]));
                            return Values{sin_of(b.emit(
                                ops::all_to_all, {y},
                                ops::AllToAll{.axes = {"x"}, .size = 4, .split = 1, .concat = 0, .tiled = true}))};
                          })},
      {"scalars kept for later", map({"_"},
                                     [](Builder&, const Values& v) {
                                       const Value s = sum_all(v[0]);  // differs, of rank 0
                                       return Values{
                                           ops::reshape_to(psum(sin_of(sin_of(s)) * sum_all(sin_of(v[1]))), {1})};
                                     })},
      {"two results of one value", map({"x,_", "_,_"},
                                       [](Builder& b, const Values& v) {
                                         const Value y = sin_of(product(b, v[0], v[1]));
                                         return Values{y, psum(y)};
                                       })},
      {"a gather whose cotangent is unreduced", map({"_"},
                                                    [](Builder& b, const Values& v) {
                                                      const Value w = gathered(b, sin_of(v[0]), Along::reduced);
                                                      const Value s = sum_all(sin_of(w) * index_of(b, {"x"}));
                                                      return Values{ops::reshape_to(psum(s), {1})};
                                                    })},
      {"a product of what is reduced alone",
       map({"_,_"},
           [](Builder& b, const Values& v) { return Values{sin_of(gathered(b, v[0] * v[1], Along::reduced))}; })},
      {"a sum of unreduced values", map({"_,_"},
                                        [](Builder& b, const Values& v) {
                                          const Value u = cast(b, v[0] * v[1], Along::unreduced);
                                          return Values{psum_of_sum(u + cast(b, sin_of(v[0]), Along::unreduced))};
                                        })},
      {"a scattered unreduced value",
       map({"_,x"},
           [](Builder& b, const Values& v) {
             const Value u = -cast(b, sin_of(product(b, v[0], v[1])), Along::unreduced);
             return Values{sin_of(b.emit(ops::reduce_scatter, {u},
                                         ops::ReduceScatter{.axes = {"x"}, .size = 4, .dim = 1, .tiled = true}))};
           })},
      {"an unreduced value times one that is the same",
       map({"_,_"},
           [](Builder& b, const Values& v) {
             return Values{sin_of(psum_of_sum(cast(b, sin_of(v[0]), Along::unreduced) * b.constant(DType::f64, 2)))};
           })},
      {"the own part", map({"_,x"},
                           [](Builder& b, const Values& v) {
                             const Value own = b.emit(ops::pscatter, {sin_of(v[1])},
                                                      ops::Pscatter{.axes = {"x"}, .size = 4, .dim = 1, .tiled = true});
                             return Values{sin_of(own) * index_of(b, {"x"})};
                           })},
      {"what is made reduced", map({"_,_", "_,_"},
                                   [](Builder& b, const Values& v) {
                                     const Value r = cast(b, sin_of(v[1]), Along::reduced);
                                     return Values{psum(sin_of(r) * v[0]), sin_of(psum(r * r))};
                                   })},
      {"a result that is the same and is joined",
       map({"x,_"}, [](Builder&, const Values& v) { return Values{sin_of(v[1])}; })},
  };
}

}  // namespace

TEST_CASE("gradients of collectives of values that differ and of such that do not are finite differences") {
  for (const Named& c : collectives()) {
    INFO(std::string(c.name));
    const FunctionRef f = weighed(c.program);
    check_gradient(f, inputs_of(c.program));
    check_gradient(of_gradients(f), inputs_of(c.program));
  }
}

TEST_CASE("a batch of maps is the map example by example") {
  for (const Named& c : collectives()) {
    INFO(std::string(c.name));
    check_batch(weighed(c.program), c.program);
  }
}

TEST_CASE("a parameter that all devices have costs its gradient one sum, and one that is split none") {
  const auto sums = [](const MapProgram& p) {
    const FunctionRef f = weighed(p);
    const int forward = count_op(*f, ops::all_reduce);
    const FunctionRef g = passes::value_and_grad(f, passes::Mask(p.types.size(), true));
    return count_op(*g, ops::all_reduce) - forward;
  };
  MapProgram p{.types = {f64s({4, 4}), f64s({1, 4})}, .in = {"x,_", "_,_"}, .out = {"_,_"}};
  p.body = [](Builder& b, const Values& v) { return Values{psum(product(b, v[0], v[1]))}; };
  CHECK(sums(p) == 1);
  p.in = {"x,_", "_,x"};
  p.types = {f64s({4, 4}), f64s({4, 16})};
  p.body = [](Builder& b, const Values& v) {
    return Values{psum(
        product(b, v[0],
                reduce_dims(v[1], ReduceKind::sum, {0})
                    .builder()
                    .emit(ops::reshape, {reduce_dims(v[1], ReduceKind::sum, {0})}, ops::Reshape{.shape = {1, 4}})))};
  };
  CHECK(sums(p) == 0);
  // The sum of a value that is a sum already: its cotangent is one value, and is not added up.
  p.in = {"x,_", "_,_"};
  p.types = {f64s({4, 4}), f64s({1, 4})};
  p.body = [](Builder&, const Values& v) { return Values{sin_of(psum(sin_of(v[0])) * v[1])}; };
  CHECK(sums(p) == 0);
}

TEST_CASE("axes of two dims of a mesh are gone over apart and together") {
  MapProgram p{.mesh = "x=2, y=2", .types = {f64s({4, 4}), f64s({2, 4})}, .in = {"x+y,_", "x,y"}, .out = {"_,_"}};
  p.body = [](Builder& b, const Values& v) {
    const Value rows = psum(sin_of(v[0]), {"y"});  // [1, 4] along x
    const Value w = b.emit(ops::all_gather, {v[1]}, ops::AllGather{.axes = {"y"}, .size = 2, .dim = 1, .tiled = true});
    return Values{psum(rows * sin_of(w), {"x", "y"})};
  };
  const FunctionRef f = weighed(p);
  check_gradient(f, inputs_of(p));
  check_batch(f, p);
}

TEST_CASE("each collective and cast is transposed into the one that the table of kinds has") {
  const auto of_gradient = [](std::vector<std::string> in, std::vector<std::string> out, auto body) {
    MapProgram p{.types = {f64s({4, 4})}, .in = std::move(in), .out = std::move(out), .body = body};
    const FunctionRef g = passes::value_and_grad(weighed(p), passes::Mask(1, true));
    std::string ops;
    for (const ir::OpDef* op : {&ops::all_reduce, &ops::all_gather, &ops::reduce_scatter, &ops::pscatter})
      if (const int n = count_op(*g, *op)) ops += fmt::format("{} {} ", op->name, n);
    return ops;
  };
  const std::vector<std::string> part{"x,_"}, whole{"_,_"};
  // There and back; the forward ones are in it.
  CHECK(of_gradient(part, whole, [](Builder&, const Values& v) { return Values{psum(v[0])}; }) == "all_reduce 1 ");
  CHECK(of_gradient(part, whole, [](Builder& b, const Values& v) {
          return Values{gathered(b, v[0], Along::invarying)};
        }) == "all_gather 1 pscatter 1 ");
  CHECK(of_gradient(part, whole, [](Builder& b, const Values& v) {
          return Values{psum(gathered(b, v[0], Along::reduced))};
        }) == "all_reduce 1 all_gather 1 reduce_scatter 1 ");
  CHECK(of_gradient(part, whole, [](Builder& b, const Values& v) {
          return Values{psum_of_sum(cast(b, v[0], Along::unreduced))};
        }) == "all_reduce 1 ");
  CHECK(of_gradient(part, {"_,x"}, [](Builder& b, const Values& v) {
          return Values{b.emit(ops::reduce_scatter, {cast(b, v[0], Along::unreduced)},
                               ops::ReduceScatter{.axes = {"x"}, .size = 4, .dim = 1, .tiled = true})};
        }) == "all_gather 1 reduce_scatter 1 ");
  CHECK(of_gradient(whole, {"_,x"}, [](Builder& b, const Values& v) {
          return Values{
              b.emit(ops::pscatter, {v[0]}, ops::Pscatter{.axes = {"x"}, .size = 4, .dim = 1, .tiled = true})};
        }) == "all_gather 1 pscatter 1 ");
  CHECK(of_gradient(whole, whole, [](Builder& b, const Values& v) {
          return Values{psum(cast(b, v[0], Along::reduced))};
        }) == "all_reduce 2 ");
}
