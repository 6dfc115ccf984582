// Each row in all its variants.
#include "tests/acceptance/rows.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "ir/text.h"

namespace sheaf::acceptance {

std::function<Array(const Array&, const std::vector<Weights>&)> unrolled(const Layer& layer, int count) {
  return [layer, count](Array x, const std::vector<Weights>& all) {
    for (int i = 0; i < count; ++i) {
      Weights w;
      for (const Weights& of : all) w.push_back(of[i]);
      x = layer(x, w);
    }
    return x;
  };
}

Layer looped(const Layer& layer) {
  return [layer](const Array& x, const Weights& all) {
    const auto body = [layer](const Array& y, const Weights& w) { return std::pair(layer(y, w), none); };
    return scan(body, x, all).first;
  };
}

Layer remade(const Layer& layer) {
  return [layer](const Array& x, const Weights& w) { return checkpoint(layer)(x, w); };
}

std::vector<Weights> abstract_weights(const Shapes& shapes, int count) {
  std::vector<Weights> w;
  for (const Shape& shape : shapes.w) w.emplace_back(count, abstract(shape));
  return w;
}
Weights abstract_stacks(const Shapes& shapes, int count) {
  Weights w;
  for (Shape shape : shapes.w) {
    shape.insert(shape.begin(), count);
    w.push_back(abstract(shape));
  }
  return w;
}

std::string stacked(const std::string& spec) { return spec.empty() ? "_" : "_," + spec; }

namespace {

constexpr int kSteps = 4;

// Given the derivative of a loss with respect to the output: the output, the derivative with respect to the input, and
// the new weights.
template <class F>
auto descent(F forward) {
  return [forward](const Array& x, const Array& g, const auto& w) {
    const auto [y, pullback] = vjp(forward, x, w);
    const auto [dx, dw] = pullback(g);
    return std::tuple(y, dx, tree_map(trained, w, dw));
  };
}
// With momenta, of which there are new ones, too.
template <class F>
auto momentum(F forward) {
  return [forward](const Array& x, const Array& g, const auto& w, const auto& m) {
    const auto [y, pullback] = vjp(forward, x, w);
    const auto [dx, dw] = pullback(g);
    const auto added = tree_map([](const Array& old, const Array& gradient) { return 0.9 * old + gradient; }, m, dw);
    return std::tuple(y, dx, tree_map(trained, w, added), added);
  };
}

template <class F, class W>
Programs programs(const F& forward, bool has_momenta, const Shape& shape, const W& w) {
  const Array x = abstract(shape);
  return {program({"x", "w"}, forward, x, w), has_momenta ? program({"x", "g", "w", "m"}, momentum(forward), x, x, w, w)
                                                          : program({"x", "g", "w"}, descent(forward), x, x, w)};
}
}  // namespace

Programs of_layers(const Layer& layer, int count, bool has_momenta, const Shapes& shapes) {
  return programs(unrolled(layer, count), has_momenta, shapes.x, abstract_weights(shapes, count));
}
Programs of_loop(const Layer& layer, int count, bool has_momenta, const Shapes& shapes) {
  return programs(looped(layer), has_momenta, shapes.x, abstract_stacks(shapes, count));
}

namespace {

std::vector<Expected> times(std::vector<Expected> all, int count) {
  for (Expected& e : all) e.count *= count;
  return all;
}
// What a loop does behind it, it does once, for all steps.
std::vector<Expected> in_loop(std::vector<Expected> all) {
  for (Expected& e : all) {
    if (e.is_behind_loops) e.bytes *= kSteps;
    else e.steps = kSteps;
  }
  return all;
}
void lay_out(Layout& layout, const std::string& name, const std::vector<std::string>& specs) {
  for (std::size_t k = 0; k < specs.size(); ++k) layout.params[fmt::format("{}[{}]", name, k)] = specs[k];
}

// `count` new weights for each of a layer, behind the output and the derivative with respect to the input.
Layout layout_of_step(const Row& row, int count) {
  Layout layout{.mesh = row.mesh, .params = {{"x", row.x}, {"g", row.x}}};
  lay_out(layout, "w", row.w);
  lay_out(layout, "m", row.m);
  if (row.keeps_x) layout.results = {{0, row.x}, {1, row.x}};
  int at = 2;
  for (const auto* specs : {&row.w, &row.m})
    for (const std::string& spec : *specs)
      for (int i = 0; i < count; ++i) layout.results.emplace_back(at++, spec);
  return layout;
}

struct Variant {
  Programs large, small, plain;
  int count;  // of weights for each of a layer
};

void check_variant(const Row& row, const Variant& v) {
  Layout forward{.mesh = row.mesh, .params = {{"x", row.x}}};
  lay_out(forward, "w", row.w);
  if (row.keeps_x) forward.results = {{0, row.x}};
  check({v.large.forward, v.small.forward, v.plain.forward}, forward, row.forward, row.largest);
  check({v.large.step, v.small.step, v.plain.step}, layout_of_step(row, v.count), row.step, row.largest);
}

void check_variants(const Row& row, bool is_remade, const Layer& given, const Layer& plain, const Shapes& large,
                    const Shapes& small) {
  const Layer layer = is_remade ? remade(given) : given;
  const bool has_momenta = !row.m.empty();
  const auto layers = [&](const Layer& f, int count, const Shapes& s) { return of_layers(f, count, has_momenta, s); };
  for (const int count : {1, 2}) {
    CAPTURE(count);
    Row rows = row;
    rows.forward = times(row.forward, count);
    rows.step = times(row.step, count);
    check_variant(rows, {layers(layer, count, large), layers(layer, count, small), layers(plain, count, small), count});
  }
  if (row.loops_are_remade && !is_remade) return;
  INFO("in a loop");
  Row loop = row;
  for (auto* specs : {&loop.w, &loop.m})
    for (std::string& spec : *specs) spec = stacked(spec);
  loop.forward = in_loop(row.forward);
  loop.step = in_loop(row.step);
  loop.largest *= kSteps;
  check_variant(loop, {of_loop(layer, kSteps, has_momenta, large), of_loop(layer, kSteps, has_momenta, small),
                       of_loop(plain, kSteps, has_momenta, small), 1});
}

}  // namespace

void check(const Row& row, const Layer& layer, const Shapes& large, const Shapes& small, const Layer& plain) {
  CAPTURE(row.mesh);
  const Layer& reference = plain ? plain : layer;
  check_variants(row, false, layer, reference, large, small);
  INFO("with checkpoints");
  Row again = row;
  if (row.remade) again.step = *row.remade;
  check_variants(again, true, layer, reference, large, small);
}

void check(const Versions& programs, const Layout& layout, const std::vector<Expected>& expected,
           std::int64_t largest) {
  CAPTURE(layout.mesh);
  const Partitioned p = partitioned(programs.large, layout);
  INFO(ir::print(p.whole), ir::print(p.local));
  CHECK(collectives_of(*p.local) == listed(expected));
  check_combined(*p.improved, expected);
  CHECK(largest_value(*p.local) <= largest);
  if (p.whole->mesh().size() != 4) return;
  CHECK(largest_difference(partitioned(programs.small, layout), *programs.plain) < 3e-5);
}

}  // namespace sheaf::acceptance
