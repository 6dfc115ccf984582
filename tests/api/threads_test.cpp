// Threads: programs large enough to be shared out have the same bits however many share them; functions are made,
// called and dropped by many threads at once; and arrays of static storage outlive all.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "sheaf/sheaf.h"
#include "tests/child.h"

using namespace sheaf;

namespace {

// The bits of all leaves, by FNV-1a.
template <class T>
void say_bits(const char* name, const T& tree) {
  std::uint64_t hash = 14695981039346656037u;
  for (const Array& leaf : tree_leaves(tree)) {
    const std::vector<float> values = leaf.astype(f32).to_vector<float>();
    for (const float v : values) {
      std::uint32_t bits;
      std::memcpy(&bits, &v, sizeof bits);
      hash = (hash ^ bits) * 1099511628211u;
    }
  }
  std::fprintf(stderr, "%s %016llx\n", name, static_cast<unsigned long long>(hash));
}

Array numbers(const Shape& shape, std::int64_t seed) { return random::normal(random::key(seed), shape); }

struct Mlp {
  Array in, bias, out;
};

Array loss(const Mlp& m, const Array& x, const Array& labels) {
  return mean(cross_entropy(matmul(layer_norm(tanh(matmul(x, m.in) + m.bias), m.bias, m.bias), m.out), labels));
}

void reductions() {
  const Array x = numbers({384, 1000}, 1), flat = numbers({300'007}, 2);
  say_bits("sum of all", jit([](Array v) { return sum(v); })(flat));
  say_bits("sum, mean and variance of rows",
           jit([](Array v) { return std::tuple{sum(v, {.axes = {1}}), mean(v), var(v, {.axes = {1}})}; })(x));
  say_bits("sum and largest of columns",
           jit([](Array v) { return std::pair{sum(v * v, {.axes = {0}}), max(v, {.axes = {0}})}; })(x));
  say_bits("sum of halves", jit([](Array v) { return sum(v.astype(bf16), {.axes = {0}}); })(x));
  say_bits("softmax and its gradient", jit(value_and_grad([](Array v) { return sum(softmax(v) * v); }))(x));
  say_bits("argmax", jit([](Array v) { return argmax(v, 1); })(x));
  say_bits("running sums", jit([](Array v) { return std::pair{cumsum(v), cumsum(v, {.axis = 1})}; })(x));
  say_bits("one long running sum", jit([](Array v) { return cumsum(v); })(flat));
  say_bits("sort", jit([](Array v) { return std::pair{sort(v), argsort(v)}; })(flat));
}

void products() {
  const Array a = numbers({193, 500}, 3), b = numbers({500, 257}, 4);
  say_bits("product", jit([](Array x, Array y) { return matmul(x, y); })(a, b));
  say_bits("product of halves", jit([](Array x, Array y) { return matmul(x.astype(bf16), y.astype(bf16)); })(a, b));
  say_bits("product of doubles", jit([](Array x, Array y) { return matmul(x.astype(f64), y.astype(f64)); })(a, b));
  say_bits("one row",
           jit([](Array x, Array y) { return matmul(x, y); })(numbers({1, 4000}, 5), numbers({4000, 300}, 6)));
  say_bits("long sums",
           jit([](Array x, Array y) { return matmul(x, y); })(numbers({8, 40'000}, 7), numbers({40'000, 8}, 8)));
  say_bits("batch", jit([](Array x) { return matmul(x, swapaxes(x, 1, 2)); })(numbers({12, 60, 80}, 9)));
  const Array image = numbers({4, 28, 28, 8}, 10), kernel = numbers({3, 3, 8, 16}, 11);
  const std::pair both{image, kernel};
  say_bits("convolution and its gradients",
           jit(value_and_grad([](std::pair<Array, Array> p) { return sum(tanh(conv(p.first, p.second))); }))(both));
  say_bits("attention and its gradient", jit(value_and_grad([](Array q) {
             return sum(dot_product_attention(q, q * 0.5, q + 1.0, {.causal = true}));
           }))(numbers({2, 96, 4, 32}, 12)));
}

void others() {
  const Array x = numbers({200, 300}, 13), at = random::randint(random::key(14), {20'000}, 0, 200);
  say_bits("writes to places listed often",
           jit([](Array v, Array i, Array u) { return v.at(i).add(u); })(x, at, numbers({20'000, 300}, 15)));
  say_bits("reads", jit([](Array v, Array i) { return take(v, i); })(x, at));
  say_bits("random numbers", jit([] { return random::normal(random::key(16), {300'000}); })());
  say_bits("transposed", jit([](Array v) { return transpose(v) * 2.0 + transpose(exp(v)); })(numbers({700, 500}, 17)));
  say_bits("loop", jit([](Array v) {
             return scan([](Array c, Array row) { return std::pair{tanh(c * row), sum(c)}; }, v,
                         numbers({20, 300}, 18));
           })(x));
  const Mlp m{numbers({256, 512}, 19), numbers({512}, 20), numbers({512, 10}, 21)};
  say_bits("a step of training",
           jit(value_and_grad(loss))(m, numbers({128, 256}, 22), random::randint(random::key(23), {128}, 0, 10)));
}

}  // namespace

TEST_CASE("[bits] a program" * doctest::skip()) {
  reductions();
  products();
  others();
}

TEST_CASE("results have the same bits for one, two and eight threads" * doctest::test_suite("full")) {
  const std::string one = tests::said_by_child("bits", {{"SHEAF_NUM_THREADS", "1"}});
  CHECK(std::ranges::count(one, '\n') == 23);
  CHECK(tests::said_by_child("bits", {{"SHEAF_NUM_THREADS", "2"}}) == one);
  CHECK(tests::said_by_child("bits", {{"SHEAF_NUM_THREADS", "8"}}) == one);
}

TEST_CASE("eight threads make, call and drop functions, share others, and every result is right") {
  const auto shared = jit([](Array x, Array y) { return x * 2.0 + y; });
  const auto donating = jit([](Array x) { return x + 1.0f; }, {.donate = {0}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::int64_t n = 1 + (t + i) % 3;  // the shapes of other threads too, in another order
        const double factor = 1 + (t * 25 + i) % 5;
        const auto own = jit([factor](Array x) { return x * factor; });
        Array x = full({n}, 1.0);
        for (int k = 0; k < 4; ++k) x = donating(shared(own(x), x));  // x becomes (2 factor + 1) x + 1
        double expected = 1;
        for (int k = 0; k < 4; ++k) expected = (2 * factor + 1) * expected + 1;
        if (x.to_vector<double>() != std::vector<double>(static_cast<std::size_t>(n), expected)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(traces(shared) == 3);
}

namespace {

struct Kept {
  Array x;
  ~Kept() { std::fprintf(stderr, "%g\n", x.item<double>()); }  // runs after main, and after this thread's lists
};

}  // namespace

TEST_CASE("[static arrays] a program" * doctest::skip()) {
  static const auto f = jit([](Array x) { return x * 2.0; });
  static Kept kept;
  for (kept.x = 1.0; kept.x.item<double>() < 1000;) kept.x = f(kept.x);
  std::thread([] {
    thread_local Array of_thread = ones({4});
    static Array made_elsewhere;
    made_elsewhere = f(of_thread);
  }).join();
}

TEST_CASE("arrays in static storage are read and dropped after main, those of ended threads too") {
  CHECK(tests::said_by_child("static arrays", {}) == "1024\n");
}
