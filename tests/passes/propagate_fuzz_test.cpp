// Propagation over random programs, meshes and layouts, and over every op's samples: what holds of any outcome.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/eval.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/emit.h"
#include "passes/sharding/propagate.h"
#include "tests/passes/draws.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;

namespace {

std::string random_spec(Dice& dice, const Shape& dims, const MeshAtoms& atoms) {
  const Sharding s = random_sharding(dice, dims, atoms);
  Spec spec = spec_of(s, atoms);
  for (DimSpec& dim : spec) {
    dim.open = dice.below(2) == 0;
    dim.priority = dice.below(6) == 0;
  }
  return to_text(spec);
}

// f on the mesh, its parameters laid out at random.
void check_values(const Function& f, const MeshAtoms& atoms) {
  for (const Eqn* e : f.eqns()) {
    for (const Value v : e->outs())
      CHECK_MESSAGE(divides(v.dims(), atoms, sharding_of(v.type(), atoms)), to_string(v.type()));
    for (const FunctionRef& r : e->regions) {
      for (const Value p : r->params()) CHECK(divides(p.dims(), atoms, sharding_of(p.type(), atoms)));
      check_values(*r, atoms);
    }
  }
}

// Parameters stay where they are, splits divide, no axis is twice in a value (sharding_of checks it), and the program
// computes what it did.
void check_propagated(const FunctionRef& f, const MeshAtoms& atoms, const Literals& inputs) {
  const std::string text = print(f);
  INFO(text);
  const FunctionRef out = passes::propagate(f);
  CHECK(verify(*out).ok());
  CHECK(out->mesh() == f->mesh());
  CHECK(out->param_types() == f->param_types());
  CHECK(print(out) == print(passes::propagate(f)));
  check_values(*out, atoms);
  if (inputs.empty()) return;
  const Literals before = eval(*f, inputs), after = eval(*out, inputs);
  for (std::size_t j = 0; j < before.size(); ++j)
    CHECK(std::equal(before[j].data(), before[j].data() + before[j].bytes(), after[j].data()));
}

// Programs grow by equations on values they have.
class Grower {
 public:
  Grower(Dice& dice, const MeshAtoms& atoms, int inputs) : dice_(dice), atoms_(atoms) {
    for (int i = 0; i < inputs; ++i) values_.push_back(b_.param(Type(DType::f32, random_dims())));
  }
  FunctionRef grown(int equations) {
    for (int i = 0; i < equations; ++i) grow();
    Values results;
    for (int i = 0; i < 3; ++i) results.push_back(dice_.any(values_));
    results.push_back(values_.back());
    return b_.finish(std::move(results));
  }

  /// The interpreter runs it as it is.
  bool runs() const { return !is_mapped_; }

 private:
  Shape random_dims() {
    Shape dims;
    for (int d = dice_.below(4); d > 0; --d) dims.push_back(dice_.any<std::int64_t>({1, 2, 4, 6, 8, 12}));
    return dims;
  }
  Value alike(Value v) {
    for (int i = 0; i < 8; ++i)
      if (const Value other = dice_.any(values_); other.type() == v.type()) return other;
    return b_.full(v.type(), 1);
  }
  void grow() {
    const Value v = dice_.any(values_);
    const int rank = v.rank();
    switch (dice_.below(14)) {
      case 0: values_.push_back(b_.emit(ops::neg, {v})); break;
      case 1: values_.push_back(v + alike(v)); break;
      case 2: values_.push_back(v * alike(v)); break;
      case 3: {
        ops::Transpose t;
        for (int d = 0; d < rank; ++d) t.perm.insert(t.perm.begin() + dice_.below(d + 1), d);
        values_.push_back(b_.emit(ops::transpose, {v}, std::move(t)));
        break;
      }
      case 4: reshape(v); break;
      case 5: {
        if (rank == 0) return;
        values_.push_back(b_.emit(ops::reduce, {v}, ops::Reduce{.dims = {dice_.below(rank)}}));
        break;
      }
      case 6:
        if (rank < 3)
          values_.push_back(passes::insert_dim(b_, v, dice_.below(rank + 1), dice_.any<std::int64_t>({1, 2, 4, 8})));
        break;
      case 7: {
        if (rank == 0) return;
        const Value w = dice_.any(values_);
        const int d = dice_.below(rank);
        for (int k = 0; k < w.rank(); ++k)
          if (w.dims()[k] == v.dims()[d] && rank + w.rank() - 2 < 4) {
            values_.push_back(b_.emit(ops::dot, {v, w}, ops::Dot{.lhs = {d}, .rhs = {k}}));
            return;
          }
        break;
      }
      case 8:
        values_.push_back(
            b_.emit(ops::with_sharding, {v},
                    ops::WithSharding{.mesh = to_string(atoms_.mesh()), .spec = random_spec(dice_, v.dims(), atoms_)}));
        break;
      case 9:
        if (rank > 0) values_.push_back(b_.emit(ops::sort, {v}, ops::Sort{.dim = {dice_.below(rank)}}));
        break;
      case 10: {
        if (rank == 0) return;
        const int d = dice_.below(rank);
        values_.push_back(b_.emit(ops::concatenate, {v, alike(v)}, ops::Concatenate{.dim = {d}}));
        break;
      }
      case 11:
        if (rank > 0) map(v);
        break;
      case 12: branch(v); break;
      default: scan(v); break;
    }
  }
  // Into two dims, or as one.
  void reshape(Value v) {
    const std::int64_t n = v.type().num_elements(), part = dice_.any<std::int64_t>({1, 2, 3, 4, 8});
    const Shape dims = n % part == 0 ? Shape{part, n / part} : Shape{n};
    values_.push_back(b_.emit(ops::reshape, {v}, ops::Reshape{.shape = {dims}}));
  }
  // One of two ways, by a number known beforehand.
  void branch(Value v) {
    std::vector<FunctionRef> ways;
    for (const bool turns : {false, true}) {
      Builder way("way");
      const Value x = way.param(v.type()), y = way.param(v.type());
      ways.push_back(way.finish({turns ? x * y : -y}));
    }
    const Value index = b_.constant(DType::i32, dice_.below(2));
    values_.push_back(b_.emit_all(&ops::cond, {index, v, alike(v)}, nullptr, std::move(ways))[0]);
  }
  // Through a body for one axis, which a dim of it is split over; the others stay with the compiler.
  void map(Value v) {
    const MeshAxis axis = dice_.any(atoms_.mesh().axes());
    const int d = dice_.below(v.rank());
    if (v.dims()[d] % axis.size != 0) return;
    Shape part = v.dims();
    part[d] /= axis.size;
    Builder body("part");
    const Value x = body.param(Type(v.dtype(), part).with_varying({axis.name}));
    const FunctionRef region = body.finish({body.emit(ops::neg, {x}) * 3.0});
    Spec spec(v.rank());
    spec[d].axes = {axis.name};
    ops::ShardMap attributes{
        .mesh = to_string(atoms_.mesh()), .in = {to_text(spec)}, .out = {to_text(spec)}, .manual = {axis.name}};
    values_.push_back(
        b_.emit_all(&ops::shard_map, {v}, std::make_shared<const ops::ShardMap>(std::move(attributes)), {region})[0]);
    is_mapped_ = true;
  }
  // A carry, a constant of its type and the rows of a stack, through a body with a random equation.
  void scan(Value v) {
    const Value w = alike(v);
    Builder body("body");
    const Value k = body.param(v.type()), c = body.param(v.type());
    const Value turned = dice_.below(2)
                             ? c * k
                             : c + body.emit(ops::with_sharding, {k},
                                             ops::WithSharding{.mesh = to_string(atoms_.mesh()),
                                                               .spec = random_spec(dice_, v.dims(), atoms_)});
    const FunctionRef region = body.finish({turned, c});
    for (const Value out :
         b_.emit_all(&ops::scan, {v, w},
                     std::make_shared<const ops::Scan>(ops::Scan{.consts = 1, .carry = 1, .length = 2}), {region}))
      if (out.rank() < 4) values_.push_back(out);
  }

  Dice& dice_;
  const MeshAtoms& atoms_;
  Builder b_;
  Values values_;
  bool is_mapped_ = false;
};

}  // namespace

TEST_CASE("propagation over random programs keeps what is given, divides dims and changes no number") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const MeshAtoms atoms(random_mesh(dice, 512));
    Grower grower(dice, atoms, 3);
    const FunctionRef f = laid_out(grower.grown(20), dice, atoms);
    check_propagated(f, atoms, grower.runs() ? random_inputs(*f, seed) : Literals());
  }
}

TEST_CASE("propagation over every op's samples keeps what is given and divides dims") {
  unsigned seed = 0;
  for (const Op op : all_ops()) {
    if (!op->samples) continue;
    for (const std::string_view text : op->samples()) {
      const auto sample = parse_sample(text);
      REQUIRE(sample.ok());
      INFO(std::string(text));
      for (int i = 0; i < 3; ++i) {
        Dice dice(seed++);
        const MeshAtoms atoms(random_mesh(dice, 512));
        check_propagated(laid_out(sample->function, dice, atoms), atoms, {});
      }
    }
  }
}
