// Random programs: loops, branches, checkpoints, custom rules, jit, vmap and grad inside each other. Whatever is
// composed, gradients agree with differences, the two ways to second derivatives with each other, and a batch with a
// loop.
#include <functional>
#include <random>

#include "tests/control/interpreted.h"

using namespace sheaf;

namespace {

using Fn = std::function<Array(Array, Array)>;  // two f64[3] -> f64[3]

// A program by its seed: the same each time it is called, which tracing twice checks.
class Composer {
 public:
  explicit Composer(unsigned seed) : random_(seed) {}

  Fn program(int depth) {
    if (depth == 0) return leaf();
    const Fn f = program(depth - 1), g = below(2) ? program(depth - 1) : leaf();
    switch (below(17)) {
      case 0: return scanned(f, g);
      case 1: return branched(f, g);
      case 2: return switched(f, g);
      case 3: return bounded_while(f);
      case 4: return counted(f);
      case 5: return mapped(f, g);
      case 6: return checkpointed(f);
      case 7: return with_jvp_rule(f);
      case 8: return with_vjp_rule(f, g);
      case 9: return [f, g](Array x, Array w) { return 0.5 * jit(f)(x, w) + 0.5 * jit(g)(w, x); };
      case 10: return vmapped(f);
      case 11: return with_both_rules(f);
      case 12: return prefixes(f);
      case 13: return linearized(f);
      case 14: return captured(f, g);
      case 15: return [f](Array x, Array w) { return grad([&](Array v, Array u) { return sum(sin(f(v, u))); })(x, w); };
      default: return [f, g](Array x, Array w) { return f(g(x, w), x); };
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  double number() { return static_cast<double>(random_() % 1000u) / 500.0 - 1; }

  Fn leaf() {
    const double a = number(), b = number();
    switch (below(5)) {
      case 0: return [a](Array x, Array w) { return sin(x * w + a); };
      case 1: return [a, b](Array x, Array w) { return tanh(a * x + b * w); };
      case 2: return [a](Array x, Array w) { return 0.5 * cos(x) * (w + a); };
      case 3: return [b](Array x, Array w) { return 0.3 * x * sum(x) + b * w; };
      default: return [a](Array x, Array w) { return exp(-(x * x)) + a * sin(w); };
    }
  }

  Fn scanned(const Fn& f, const Fn& g) {
    const bool reverse = below(2);
    return [=](Array x, Array w) {
      const auto [last, ys] = scan([&](Array c, Array row) { return std::pair{f(c, w), g(row, c)}; }, x,
                                   stack({x, w, 0.5 * x - w}), {.reverse = reverse});
      return last + 0.2 * sum(ys, {.axes = {0}});
    };
  }

  Fn branched(const Fn& f, const Fn& g) {
    const double limit = 0.3 * number();
    if (below(2)) return [=](Array x, Array w) { return cond(sum(x) > limit, f, g, x, w); };
    return [=](Array x, Array w) {
      return cond(sum(w) > limit, [&](Array v) { return f(v, w); }, [&](Array v) { return g(v, x) * w; }, x);
    };
  }

  Fn switched(const Fn& f, const Fn& g) {
    return [=](Array x, Array w) {
      return switch_(convert(floor(2 * sum(x)), i32) + 1, std::vector<Fn>{f, g, [](Array v, Array u) { return v * u; }},
                     x, w);
    };
  }

  Fn bounded_while(const Fn& f) {
    const int most = 1 + below(3);
    return [=](Array x, Array w) {
      const Array trips = convert(floor(3 * abs(sum(x))), i32);
      return while_loop([&](std::pair<Array, Array> c) { return c.first < trips; },
                        [&](std::pair<Array, Array> c) { return std::pair{c.first + 1, f(c.second, w)}; },
                        std::pair{zeros({}, i32), x}, {.max_trips = most})
          .second;
    };
  }

  Fn counted(const Fn& f) {
    const int trips = below(4);
    return [=](Array x, Array w) {
      return fori_loop(0, trips, [&](Array i, Array c) { return f(c, w * (0.5 + 0.1 * convert(i, f64))); }, x);
    };
  }

  Fn mapped(const Fn& f, const Fn& g) {
    return [=](Array x, Array w) {
      const Array u = g(w, x);
      return 0.5 * sum(map([&](Array row) { return f(row, u); }, stack({x, w})), {.axes = {0}});
    };
  }

  Fn checkpointed(const Fn& f) {
    const Saved kinds[] = {save::nothing, save::everything, save::names({"h"}), save::except({"h"})};
    const Saved saved = kinds[below(4)];
    return [=](Array x, Array w) {
      return checkpoint([&](Array v, Array u) { return sin(checkpoint_name(f(v, u), "h") + w); }, saved)(x, w);
    };
  }

  Fn with_jvp_rule(const Fn& f) {
    return [=](Array x, Array w) {
      const auto rule = [&](Array v, Array u, Array tv, Array tu) {
        return jvp(f, std::tuple{v, u}, std::tuple{tv, tu});
      };
      return custom_jvp(f, rule)(x, w);
    };
  }

  Fn with_vjp_rule(const Fn& f, const Fn& g) {
    return [=](Array x, Array w) {
      const auto both = [&](Array v, Array u) { return f(v, u) + g(u, v); };
      return custom_vjp(
          both, [&](Array v, Array u) { return std::pair{both(v, u), std::pair{v, u}}; },
          [&](std::pair<Array, Array> at, Array ct) { return sheaf::vjp(both, at.first, at.second).second(ct); })(x, w);
    };
  }

  // Rules that agree with f: whichever is used, differences must too.
  Fn with_both_rules(const Fn& f) {
    return [=](Array x, Array w) {
      const auto forward_rule = [&](Array v, Array u, Array tv, Array tu) {
        return jvp(f, std::tuple{v, u}, std::tuple{tv, tu});
      };
      return custom_rule(
          f, Derivatives{.jvp = forward_rule,
                         .forward = [&](Array v, Array u) { return std::pair{f(v, u), std::pair{v, u}}; },
                         .backward = [&](std::pair<Array, Array> at,
                                         Array ct) { return sheaf::vjp(f, at.first, at.second).second(ct); }})(x, w);
    };
  }

  Fn prefixes(const Fn& f) {
    return [=](Array x, Array w) {
      const Array all = associative_scan([](Array a, Array b) { return a + 0.5 * b; }, stack({f(x, w), w, x}));
      return 0.3 * sum(all, {.axes = {0}});
    };
  }

  Fn linearized(const Fn& f) {
    return [=](Array x, Array w) {
      const auto [y, along] = linearize([&](Array v) { return f(v, w); }, x);
      return 0.5 * y + 0.2 * along(w);
    };
  }

  // A jit inside a jit, each capturing what it is given around it.
  Fn captured(const Fn& f, const Fn& g) {
    const bool inlined = below(2);
    return [=](Array x, Array w) {
      const auto outer = jit([&](Array v) {
        const auto inner = jit([&](Array u) { return f(u, w) + 0.3 * v; }, {.inlined = inlined});
        return inner(g(v, w));
      });
      return outer(x);
    };
  }

  Fn vmapped(const Fn& f) {
    const bool shares = below(2);
    return [=](Array x, Array w) {
      const Array rows = stack({x, 0.5 * w, -x});
      const Array out = shares ? vmap(f, {.in = {0, none}})(rows, w) : vmap(f)(rows, flip(rows, {0}));
      return 0.4 * sum(out, {.axes = {0}});
    };
  }

  std::mt19937 random_;
};

ir::Literals values(const Fn& f, const Array& x, const Array& w) {
  return tests::traced_value([&f](Array v, Array u) { return f(v, u); }, x, w);
}

void check_composition(unsigned seed, int depth) {
  INFO("seed ", seed, ", depth ", depth);
  const Fn f = Composer(seed).program(depth);
  const Array direction = array({0.6, -0.3, 0.7}, f64);
  const Fn loss = [&](Array x, Array w) { return sum(f(x, w) * direction); };
  const Array x = array({0.31, -0.47, 0.62}, f64), w = array({0.83, 0.19, -0.54}, f64);
  const auto along = [&](Array v, Array u) {
    const auto [gx, gw] = grad<0, 1>(loss)(v, u);
    return sum((gx - 0.5 * gw) * direction);
  };
  const double slope = values(along, x, w)[0].get(0);
  const double h = 1e-5;
  const auto moved = [&](double by) { return values(loss, x + by * direction, w - 0.5 * by * direction)[0].get(0); };
  CHECK(slope == doctest::Approx((moved(h) - moved(-h)) / (2 * h)).epsilon(1e-5));

  const auto forward_over_reverse = [&](Array v, Array u) {
    return jvp(along, std::tuple{v, u}, std::tuple{direction, -0.5 * direction}).second;
  };
  const auto reverse_over_reverse = [&](Array v, Array u) {
    const auto [gx, gw] = grad<0, 1>(along)(v, u);
    return sum((gx - 0.5 * gw) * direction);
  };
  const double second = values(reverse_over_reverse, x, w)[0].get(0);
  CHECK(values(forward_over_reverse, x, w)[0].get(0) == doctest::Approx(second).epsilon(1e-8));

  const Fn gradient = [&](Array v, Array u) { return grad(loss)(v, u); };
  const Array rows = stack({x, -x, 0.1 * x});
  const ir::Literal batched =
      values([&](Array v, Array u) { return vmap(gradient, {.in = {0, none}})(v, u); }, rows, w)[0];
  for (int i = 0; i < 3; ++i) {
    const ir::Literal one = values(gradient, rows[i], w)[0];
    for (int k = 0; k < 3; ++k) CHECK(batched.get(3 * i + k) == doctest::Approx(one.get(k)).epsilon(1e-9));
  }
}

void check_compiled_composition(unsigned seed, int depth) {
  INFO("seed ", seed, ", depth ", depth);
  const Fn f = Composer(seed).program(depth);
  const auto loss = [&](Array x, Array w) { return sum(f(x, w)); };
  const Array x = array({0.31, -0.47, 0.62}, f64), w = array({0.83, 0.19, -0.54}, f64);
  tests::interpreted(value_and_grad<0, 1>(loss), x, w);
  tests::interpreted(vmap(grad(loss), {.in = {0, none}}), stack({x, -x}), w);
}

}  // namespace

TEST_CASE("random compositions to depth four differentiate and batch") {
  for (unsigned seed = 0; seed < 60; ++seed) check_composition(seed, 1 + static_cast<int>(seed % 3));
  for (unsigned seed = 100; seed < 106; ++seed) check_composition(seed, 4);
}

TEST_CASE("random compositions and their gradients compile to what the interpreter computes") {
  for (unsigned seed = 200; seed < 206; ++seed) check_compiled_composition(seed, 1 + static_cast<int>(seed % 3));
}

TEST_CASE("many random compositions to depth four differentiate, batch and compile" * doctest::test_suite("soak")) {
  for (unsigned seed = 1000; seed < 1400; ++seed) check_composition(seed, 2 + static_cast<int>(seed % 3));
  for (unsigned seed = 2000; seed < 2060; ++seed) check_compiled_composition(seed, 2 + static_cast<int>(seed % 3));
}
