// The compile gate: what the compiler generates for GPUs goes through the real NVRTC for every architecture that we
// name. No kernel spills or has a stack, each can be launched, and what they take is that of snapshot.txt: a difference
// is for a reviewer, and SHEAF_BLESS=1 writes it down. Where there is no NVRTC the test says how much it skipped.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "codegen/cuda/nvrtc.h"
#include "codegen/lower.h"
#include "fmt/format.h"
#include "ir/op.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "passes/transforms.h"
#include "runtime/cuda_compiler.h"
#include "runtime/cuda_module.h"
#include "sheaf/sheaf.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

constexpr const char* kSnapshot = SHEAF_SOURCE_DIR "/tests/cuda/snapshot.txt";

constexpr std::int64_t kShared = 48 << 10;  // that a function can declare

struct Architecture {
  const char* name;
  std::int64_t shared_bytes;  // that a block can ask for
};
constexpr Architecture kArchitectures[] = {
    {"sm_80", 163 << 10}, {"sm_90a", 227 << 10}, {"sm_100a", 227 << 10}, {"sm_120a", 99 << 10}};

/// Programs whose kernels are one line of the snapshot.
struct Entry {
  std::string name;
  std::vector<ir::FunctionRef> programs;
};

// ---- What is compiled ----

void add_sample(std::string_view text, Entry& entry) {
  const auto sample = ir::parse_sample(text);
  REQUIRE(sample.ok());
  entry.programs.push_back(sample->function);
  passes::Mask wrt;
  for (ir::Value p : sample->function->params()) wrt.push_back(is_differentiable(p.dtype()));
  if (std::ranges::find(wrt, true) == wrt.end()) return;
  const passes::Vjp derivative = passes::vjp(sample->function, wrt);
  entry.programs.push_back(derivative.forward);
  entry.programs.push_back(derivative.backward);
}

template <class F, class... A>
ir::FunctionRef traced(const F& f, const A&... args) {
  const auto module = ir::parse(jit(f).trace(args...).text());
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions.back();
}

/// One product of every kind: square, ragged, thin, deep, transposed, batched, with an epilogue, and of operands that
/// are made where they are read.
Entry products(DType t, Precision precision = Precision::full) {
  const PrecisionScope scope(precision);
  Entry e{"dot " + std::string(precision == Precision::tf32 ? "tf32" : name(t)), {}};
  const auto plain = [](Array a, Array b) { return dot(a, b); };
  for (const auto& [m, k, n] :
       {std::array<std::int64_t, 3>{512, 256, 384}, {1000, 77, 33}, {8, 4096, 512}, {64, 8192, 64}, {1, 300, 5}})
    e.programs.push_back(traced(plain, abstract({m, k}, t), abstract({k, n}, t)));
  e.programs.push_back(traced([](Array a, Array b) { return einsum("km,nk->mn", a, b); }, abstract({256, 512}, t),
                              abstract({384, 256}, t)));
  e.programs.push_back(traced([](Array a, Array b) { return einsum("bmk,bkn->bmn", a, b); }, abstract({6, 100, 64}, t),
                              abstract({6, 64, 100}, t)));
  e.programs.push_back(traced([](Array a, Array b, Array c) { return gelu(dot(a, b) + c); }, abstract({512, 256}, t),
                              abstract({256, 384}, t), abstract({384}, t)));
  const auto dequantised = [t](Array a, Array b, Array scale) { return dot(a, b.astype(t) * scale); };
  for (const std::int64_t rows : {8, 200})
    e.programs.push_back(traced(dequantised, abstract({rows, 1024}, t), abstract({1024, 512}, i8), abstract({512}, t)));
  e.programs.push_back(traced([t](Array a, Array b) { return dot(gelu(a).astype(t), transpose(tanh(b))); },
                              abstract({300, 256}, f32), abstract({500, 256}, t)));
  e.programs.push_back(
      traced([](Array key, Array a,
                Array b) { return dot(where(random::bernoulli(key, a.shape(), 0.9), a, zeros_like(a)), b); },
             abstract({2}, u32), abstract({128, 256}, t), abstract({256, 128}, t)));
  return e;
}

Entry attentions(DType t, std::span<const std::int64_t> heads) {
  Entry e{"attention " + std::string(name(t)), {}};
  struct Case {
    bool is_causal = false, is_masked = false, is_biased = false;
  };
  for (const std::int64_t head : heads)
    for (const Case c : {Case{}, Case{.is_causal = true}, Case{.is_masked = true}, Case{.is_biased = true},
                         Case{.is_causal = true, .is_masked = true, .is_biased = true}}) {
      const auto f = [c](Array q, Array k, Array v, Array bias, Array mask) {
        AttentionOptions options{.causal = c.is_causal};
        if (c.is_biased) options.bias = bias;
        if (c.is_masked) options.mask = mask;
        return dot_product_attention(q, k, v, options);
      };
      const auto loss = [f](Array q, Array k, Array v, Array b, Array m) { return sum(f(q, k, v, b, m).astype(f32)); };
      const Array q = abstract({2, 300, 4, head}, t), kv = abstract({2, 300, 2, head}, t);
      const Array bias = abstract({2, 4, 300, 300}, t), mask = abstract({2, 1, 300, 300}, bool_);
      e.programs.push_back(traced(f, q, kv, kv, bias, mask));
      e.programs.push_back(traced(grad<0, 1, 2, 3>(loss), q, kv, kv, bias, mask));
    }
  return e;
}

/// Reductions and rows of all lengths, transposes and scans: each template at sizes that are small, ragged and large.
Entry shapes(DType t, std::span<const Shape> all) {
  Entry e{"shapes " + std::string(name(t)), {}};
  for (const Shape& dims : all) {
    const Array x = abstract(dims, t);
    e.programs.push_back(traced([](Array v) { return exp(v) * 2 + v; }, x));
    e.programs.push_back(traced([](Array v) { return transpose(v) + 1; }, x));
    for (const int axis : {0, 1}) {
      e.programs.push_back(traced([axis](Array v) { return sum(v, {.axes = {axis}}); }, x));
      e.programs.push_back(traced([axis](Array v) { return argmax(v, axis); }, x));
      e.programs.push_back(traced([axis](Array v) { return softmax(v, axis); }, x));
      e.programs.push_back(traced([axis](Array v) { return cumsum(v, {.axis = axis}); }, x));
    }
    e.programs.push_back(traced([](Array v) { return sum(v); }, x));
    e.programs.push_back(traced([](Array v, Array g) { return layer_norm(v, g, g); }, x, abstract({dims[1]}, t)));
    e.programs.push_back(traced([](Array v) { return sort(v); }, x));
  }
  return e;
}

/// Updates that meet by atomics, and those that do not meet.
Entry updates(std::span<const DType> dtypes) {
  Entry e{"updates", {}};
  for (const DType t : dtypes) {
    const Array x = abstract({1000}, t), at = abstract({300}, i32), u = abstract({300}, t);
    const Indexing any{.deterministic = false};
    e.programs.push_back(traced([&](Array a, Array i, Array v) { return a.at(i).add(v, any); }, x, at, u));
    e.programs.push_back(traced([&](Array a, Array i, Array v) { return a.at(i).mul(v, any); }, x, at, u));
    e.programs.push_back(traced([&](Array a, Array i, Array v) { return a.at(i).min(v, any); }, x, at, u));
    e.programs.push_back(traced([](Array a, Array i, Array v) { return a.at(i).add(v, {.unique = true}); }, x, at, u));
  }
  return e;
}

/// Sums that read as many arrays at once as one kernel may.
Entry many_operands(std::span<const DType> dtypes) {
  Entry e{"many operands", {}};
  const auto sum = [](std::vector<Array> all) {
    Array x = all[0];
    for (std::size_t i = 1; i < all.size(); ++i) x = x * 0.5 + all[i];
    return x;
  };
  for (const DType t : dtypes)
    if (is_float(t)) e.programs.push_back(traced(sum, std::vector<Array>(65, abstract({1000, 77}, t))));
  return e;
}

struct Scope {
  std::vector<DType> dtypes;
  std::vector<Shape> shapes;
  std::vector<std::int64_t> heads;  // features of one, of attention
  std::vector<DType> indexed;
};

std::vector<Entry> templates(const Scope& scope) {
  std::vector<Entry> all{products(f32, Precision::tf32)};
  for (const DType t : scope.dtypes) {
    all.push_back(products(t));
    all.push_back(attentions(t, scope.heads));
    all.push_back(shapes(t, scope.shapes));
  }
  all.push_back(updates(scope.indexed));
  all.push_back(many_operands(scope.indexed));
  return all;
}

/// Every sample of every op, with its derivatives.
std::vector<Entry> ops() {
  std::vector<Entry> all;
  for (ir::Op op : ir::all_ops()) {
    if (!op->samples) continue;
    Entry& e = all.emplace_back(Entry{std::string(op->name), {}});
    for (std::string_view text : op->samples()) add_sample(text, e);
  }
  return all;
}

// ---- What becomes of it ----

/// Of all kernels of an entry, the most that any of their functions takes.
struct Taken {
  int registers = 0;
  std::int64_t shared_bytes = 0;
};

class Gate {
 public:
  explicit Gate(const Architecture& a) : architecture_(a), target_(*codegen::parse_target(a.name)) {}

  void add(const Entry& entry) {
    std::set<std::string>& keys = keys_of_[entry.name];
    for (const ir::FunctionRef& f : entry.programs)
      for (const codegen::KernelCode& k : codegen::lower(passes::run_pipeline(f, {.target = target_}), target_).kernels)
        if (keys.insert(k.key).second) codes_.emplace(k.key, k);
  }

  std::size_t kernels() const { return codes_.size(); }

  /// Compiles everything, and has every kernel checked by itself.
  void compile() {
    std::vector<const codegen::KernelCode*> codes;
    for (const auto& [key, code] : codes_) codes.push_back(&code);
    const auto compiled = runtime::compile_cuda(codes);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      REQUIRE_MESSAGE(compiled[i].ok(), compiled[i].status().ToString());
      const auto& functions = compiled[i]->cuda->taken();
      for (std::size_t p = 0; p < functions.size(); ++p)
        check(*codes[i], codes[i]->phases[p], functions[p], taken_[codes[i]->key]);
    }
  }

  Taken taken_by(const std::string& entry) const {
    Taken most;
    for (const std::string& key : keys_of_.at(entry)) {
      most.registers = std::max(most.registers, taken_.at(key).registers);
      most.shared_bytes = std::max(most.shared_bytes, taken_.at(key).shared_bytes);
    }
    return most;
  }

 private:
  void check(const codegen::KernelCode& code, const codegen::Phase& phase, const codegen::CudaFunction& f,
             Taken& taken) {
    INFO(f.entry, " of ", code.name, " for ", target_.gpu, ": ", f.registers, " registers x ", phase.threads,
         " threads, ", f.shared_bytes, " bytes shared, ", f.stack_bytes, " of stack, ", f.spill_bytes, " spilled");
    CHECK(f.spill_bytes == 0);
    CHECK(f.stack_bytes == 0);
    CHECK(f.registers > 0);
    CHECK((f.registers + 7) / 8 * 8 * phase.threads <= 65536);
    const std::int64_t shared_bytes = f.shared_bytes + phase.shared_bytes;
    CHECK(f.shared_bytes <= kShared);
    CHECK(shared_bytes <= architecture_.shared_bytes);
    taken.registers = std::max(taken.registers, f.registers);
    taken.shared_bytes = std::max(taken.shared_bytes, shared_bytes);
  }

  const Architecture architecture_;
  const codegen::Target target_;
  std::map<std::string, codegen::KernelCode> codes_;  // by key
  std::map<std::string, std::set<std::string>> keys_of_;
  std::map<std::string, Taken> taken_;
};

std::string snapshot(const std::string& compiler, const std::vector<Entry>& entries, const std::vector<Gate>& gates) {
  std::string text = fmt::format("{}: registers/shared bytes of the hungriest kernel\n{:24}", compiler, "");
  for (const Architecture& a : kArchitectures) text += fmt::format("{:>12}", a.name);
  text += '\n';
  for (const Entry& e : entries) {
    text += fmt::format("{:24}", e.name);
    for (const Gate& g : gates) {
      const Taken t = g.taken_by(e.name);
      text += fmt::format("{:>12}", fmt::format("{}/{}", t.registers, t.shared_bytes));
    }
    text += '\n';
  }
  return text;
}

void compare_with_snapshot(const std::string& text) {
  if (const char* bless = std::getenv("SHEAF_BLESS"); bless && *bless == '1') {
    std::ofstream(kSnapshot) << text;
    return;
  }
  std::ostringstream known;
  known << std::ifstream(kSnapshot).rdbuf();
  const auto compiler = [](const std::string& t) { return t.substr(0, t.find(':')); };
  if (compiler(known.str()) != compiler(text)) {
    std::printf("cuda gate: not compared with what %s made\n", compiler(known.str()).c_str());
    return;
  }
  const auto lines = [](const std::string& t) {
    std::istringstream in(t);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  };
  const std::vector<std::string> was = lines(known.str()), is = lines(text);
  CHECK(is.size() == was.size());
  for (std::size_t i = 0; i < std::min(is.size(), was.size()); ++i) CHECK(is[i] == was[i]);
}

/// The snapshot's text; "" where something was skipped.
std::string through_the_gate(const std::vector<Entry>& entries) {
  std::vector<Gate> gates(std::begin(kArchitectures), std::end(kArchitectures));
  std::size_t kernels = 0, skipped = 0;
  const auto nvrtc = codegen::Nvrtc::load();
  for (std::size_t a = 0; a < gates.size(); ++a) {
    for (const Entry& e : entries) gates[a].add(e);
    kernels += gates[a].kernels();
    if (nvrtc.ok() && (*nvrtc)->supports(kArchitectures[a].name)) gates[a].compile();
    else skipped += gates[a].kernels();
  }
  CHECK(kernels > 100);
  std::printf("cuda gate: %zu kernels, %zu skipped%s\n", kernels, skipped,
              nvrtc.ok() ? "" : (" (" + nvrtc.status().ToString() + ")").c_str());
  return skipped == 0 ? snapshot((*nvrtc)->name(), entries, gates) : "";
}

}  // namespace

TEST_CASE("no kernel of any template spills, and every one can be launched" * doctest::test_suite("full")) {
  through_the_gate(templates({.dtypes = {bf16}, .shapes = {{1000, 777}}, .heads = {64}, .indexed = {bf16, i64}}));
}

TEST_CASE("no generated kernel spills, and what each takes is known" * doctest::test_suite("soak")) {
  std::vector<Entry> entries = ops();
  std::ranges::move(templates({.dtypes = {f32, f64, f16, bf16},
                               .shapes = {{7, 33}, {1000, 777}, {3, 100'000}, {100'000, 3}, {512, 4096}},
                               .heads = {16, 64, 128, 256},
                               .indexed = {f32, f64, f16, bf16, i16, u16, i32, u32, i64, u64}}),
                    std::back_inserter(entries));
  if (const std::string text = through_the_gate(entries); !text.empty()) compare_with_snapshot(text);
}
