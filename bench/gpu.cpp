// What a GPU reaches: kernels bound by memory against a copy on the device, products and attention against cuBLASLt,
// what a launch costs, and whole training steps. The references use the driver directly, on memory of their own.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <stdexcept>

#include "codegen/product.h"
#include "measure.h"
#include "runtime/cuda_products.h"
#include "runtime/driver/cuda.h"

namespace bench {
namespace {

using namespace sheaf;

/// That one wait is for.
int calls(const Options& options) { return options.quick ? 2 : 16; }

/// The first GPU, for references.
class Gpu {
 public:
  static Gpu& first() {
    static Gpu& gpu = *new Gpu;
    return gpu;
  }

  void check(cuda::CUresult result, const char* call) const {
    if (const absl::Status status = cuda_->status(result, call); !status.ok())
      throw std::runtime_error(std::string(status.message()));
  }
  void enter() const { check(cuda_->cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  std::byte* memory(std::int64_t bytes) const {
    enter();
    cuda::CUdeviceptr at = 0;
    check(cuda_->cuMemAlloc(&at, static_cast<std::size_t>(bytes)), "cuMemAlloc");
    check(cuda_->cuMemsetD8Async(at, 0, static_cast<std::size_t>(bytes), stream_), "cuMemsetD8Async");
    return std::bit_cast<std::byte*>(at);
  }
  void free(std::byte* at) const {
    enter();
    check(cuda_->cuMemFree(std::bit_cast<cuda::CUdeviceptr>(at)), "cuMemFree");
  }
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) const {
    check(cuda_->cuMemcpyDtoDAsync(std::bit_cast<cuda::CUdeviceptr>(to), std::bit_cast<cuda::CUdeviceptr>(from),
                                   static_cast<std::size_t>(bytes), stream_),
          "cuMemcpyDtoDAsync");
  }
  /// Numbers as those of our own side, a few over and over: products of zeros draw less power, and so are faster.
  void fill(std::byte* at, std::int64_t bytes, DType t) const {
    const HostArray numbers = to_host(random::normal(random::key(7), {1 << 18}, t));
    std::int64_t done = std::min<std::int64_t>(bytes, std::ssize(numbers.bytes));
    enter();
    check(cuda_->cuMemcpyHtoDAsync(std::bit_cast<cuda::CUdeviceptr>(at), numbers.bytes.data(),
                                   static_cast<std::size_t>(done), stream_),
          "cuMemcpyHtoDAsync");
    for (std::int64_t piece = 0; done < bytes; done += piece) {
      piece = std::min(done, bytes - done);
      copy(at + done, at, piece);
    }
    wait();
  }
  void wait() const { check(cuda_->cuStreamSynchronize(stream_), "cuStreamSynchronize"); }
  cuda::CUstream stream() const { return stream_; }
  runtime::CudaProducts& products() { return products_; }

  /// Multiply-adds in bf16 or f16 with sums in f32, times two, per second; 0 where that is not known.
  double peak_flops() const {
    const int capability = attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                           attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    const double per_clock = capability == 80                                            ? 2048
                             : capability == 90                                          ? 4096
                             : capability == 100 || capability == 103                    ? 8192
                             : capability == 86 || capability == 89 || capability == 120 ? 512
                                                                                         : 0;
    return per_clock * attribute(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
           attribute(cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE) * 1e3;
  }

 private:
  Gpu() {
    const auto opened = runtime::Cuda::load();
    if (!opened.ok()) throw std::runtime_error(std::string(opened.status().message()));
    cuda_ = *opened;
    check(cuda_->cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    enter();
    check(cuda_->cuStreamCreate(&stream_, cuda::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  int attribute(cuda::CUdevice_attribute which) const {
    int value = 0;
    check(cuda_->cuDeviceGetAttribute(&value, which, 0), "cuDeviceGetAttribute");
    return value;
  }

  const runtime::Cuda* cuda_ = nullptr;
  cuda::CUcontext context_ = nullptr;
  cuda::CUstream stream_ = nullptr;
  runtime::Allocator memory_{{.region_bytes = 1 << 20,
                              .source = {.take = [this](std::int64_t bytes) { return memory(bytes); },
                                         .give_back = [this](std::byte* at, std::int64_t) { free(at); }},
                              .where = "the references"}};
  runtime::CudaProducts products_{"the references", memory_};
};

class Memory {
 public:
  explicit Memory(std::int64_t bytes) : at_(Gpu::first().memory(bytes)) {}
  ~Memory() { Gpu::first().free(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return at_; }

 private:
  std::byte* at_;
};

/// So many calls of f, and a wait.
template <class F, class... Arrays>
Work calls_of(const Options& options, F f, Arrays... x) {
  return [f, x..., count = calls(options)] {
    for (int i = 1; i < count; ++i) f(x...);
    tree_leaves(f(x...)).back().wait();
  };
}

/// f reads and writes so many bytes: against a copy that reads half of them, and writes half.
template <class F, class... Arrays>
Result against_copy(const Options& options, std::int64_t bytes, F f, Arrays... x) {
  const Memory from(bytes / 2), to(bytes / 2);
  const Gpu& gpu = Gpu::first();
  const Work copies = [&] {
    gpu.enter();
    for (int i = 0; i < calls(options); ++i) gpu.copy(to.data(), from.data(), bytes / 2);
    gpu.wait();
  };
  Result r = per(calls(options),
                 compare(calls_of(options, jit(f), x...), {side("a copy on the device", copies, options)}, options));
  r.note = fmt::format("{:.0f} GB/s, {:.0f} % of the copy's", static_cast<double>(bytes) / r.ours * 1e-9,
                       100 / r.others[0].ratio);
  return r;
}

Array normal(const Shape& shape, DType t) { return random::normal(random::key(1), shape, t); }

struct Sizes {
  std::int64_t rows, columns;
};
Sizes sizes(const Options& options) { return options.quick ? Sizes{64, 96} : Sizes{16384, 8192}; }

template <class F>
Row memory_row(std::string name, DType t, double copies, F f) {
  return {std::move(name), "", [=](const Options& options) {
            const auto [rows, columns] = sizes(options);
            const double bytes = copies * static_cast<double>(rows * columns * size_bytes(t));
            return against_copy(options, static_cast<std::int64_t>(bytes), f, normal({rows, columns}, t));
          }};
}

/// Times that a GPU moves the whole array: in, out or both.
std::vector<Row> memory_rows() {
  constexpr double in = 1, both = 2;
  std::vector<Row> rows;
  for (const DType t : {f32, bf16}) {
    const std::string of = fmt::format(", {}", name(t));
    rows.push_back(memory_row("map: 2 x + 1" + of, t, both, [](Array x) { return x * 2 + 1; }));
    rows.push_back(memory_row("map: gelu" + of, t, both, [](Array x) { return gelu_tanh(x); }));
    rows.push_back(memory_row("transpose" + of, t, both, [](Array x) { return transpose(x); }));
    rows.push_back(memory_row("sum of rows" + of, t, in, [](Array x) { return sum(x, {.axes = {1}}); }));
    rows.push_back(memory_row("sum of columns" + of, t, in, [](Array x) { return sum(x, {.axes = {0}}); }));
    rows.push_back(memory_row("sum of all" + of, t, in, [](Array x) { return sum(x); }));
    rows.push_back(memory_row("softmax of rows" + of, t, both, [](Array x) { return softmax(x); }));
    rows.push_back(memory_row("layer norm" + of, t, both, [](Array x) {
      const Array one = ones({x.shape(-1)}, x.dtype());
      return layer_norm(x, one, one);
    }));
    rows.push_back(memory_row("cumulative sum of rows" + of, t, both, [](Array x) { return cumsum(x, {.axis = 1}); }));
  }
  rows.push_back(memory_row("rows by index, f32", f32, both,
                            [](Array x) { return take(x, arange(x.shape(0)) * 7919 % x.shape(0)); }));
  rows.push_back(memory_row("rows added by index, f32", f32, both,
                            [](Array x) { return zeros_like(x).at(arange(x.shape(0)) * 7919 % x.shape(0)).add(x); }));
  rows.push_back({"uniform random numbers, f32", "", [](const Options& options) {
                    const auto [r, columns] = sizes(options);
                    const auto draw = [r = r, columns = columns](Array key) {
                      return random::uniform(key, {r, columns});
                    };
                    return against_copy(options, r * columns * 4, draw, random::key(1));
                  }});
  return rows;
}

/// [batch, m, k] times [batch, k, n] by cuBLASLt.
class LibraryProduct {
 public:
  LibraryProduct(DType t, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                 Precision precision = Precision::full)
      : product_(describe(t, batch, m, n, k, precision)),
        a_(batch * m * k * size_bytes(t)),
        b_(batch * k * n * size_bytes(t)),
        out_(batch * m * n * size_bytes(t)) {
    Gpu::first().fill(a_.data(), batch * m * k * size_bytes(t), t);
    Gpu::first().fill(b_.data(), batch * k * n * size_bytes(t), t);
  }

  /// False: there is no library.
  bool enqueue() const {
    Gpu& gpu = Gpu::first();
    gpu.enter();
    const bool x = product_.is_exchanged;
    const auto done =
        gpu.products().run(product_, (x ? b_ : a_).data(), (x ? a_ : b_).data(), out_.data(), gpu.stream());
    if (!done.ok()) throw std::runtime_error(std::string(done.status().message()));
    return *done;
  }

 private:
  static codegen::Product describe(DType t, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                                   Precision precision) {
    kir::Contract c;
    c.lhs = c.rhs = c.out = t;
    c.accumulate = accumulator(t);
    c.precision = precision;
    c.batch = {.extents = {batch}, .lhs_strides = {m * k}, .rhs_strides = {k * n}, .out_strides = {m * n}};
    c.m = {.extents = {m}, .lhs_strides = {k}, .rhs_strides = {0}, .out_strides = {n}};
    c.n = {.extents = {n}, .lhs_strides = {0}, .rhs_strides = {1}, .out_strides = {1}};
    c.k = {.extents = {k}, .lhs_strides = {1}, .rhs_strides = {n}, .out_strides = {0}};
    return *codegen::as_product(c);
  }

  codegen::Product product_;
  Memory a_, b_, out_;
};

std::string rate(double flops, double seconds) {
  const double peak = Gpu::first().peak_flops();
  return fmt::format("{:.1f} TF/s{}", flops / seconds * 1e-12,
                     peak > 0 ? fmt::format(", {:.0f} % of the tensor cores", 100 * flops / seconds / peak) : "");
}

/// Against these products, one after the other.
template <class F, class... Arrays>
Result against_library(const Options& options, double flops, std::vector<std::shared_ptr<LibraryProduct>> products, F f,
                       Arrays... x) {
  const Work ours = calls_of(options, jit(f), x...);
  Result r;
  if (!products[0]->enqueue()) {
    r.ours = seconds_of(ours, options) / calls(options);
    r.note = rate(flops, r.ours) + "; no cuBLASLt";
    return r;
  }
  const Work reference = [&] {
    for (int i = 0; i < calls(options); ++i)
      for (const auto& product : products) (void)product->enqueue();
    Gpu::first().wait();
  };
  r = per(calls(options), compare(ours, {side("cuBLASLt's products", reference, options)}, options));
  r.note = rate(flops, r.ours);
  return r;
}

template <class F>
Row product_row(std::string name, DType t, std::int64_t side, F f, Precision precision = Precision::full) {
  return {std::move(name), "", [=](const Options& options) {
            const std::int64_t n = options.quick ? 48 : side;
            const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
            return against_library(options, flops, {std::make_shared<LibraryProduct>(t, 1, n, n, n, precision)}, f,
                                   normal({n, n}, t), normal({n, n}, t));
          }};
}

Row attention_row(std::string name, std::int64_t batch, std::int64_t length, std::int64_t heads, std::int64_t features,
                  bool is_gradient) {
  return {std::move(name), "", [=](const Options& options) {
            const std::int64_t b = options.quick ? 1 : batch, t = options.quick ? 32 : length,
                               n = options.quick ? 2 : heads, h = features;
            const int pairs =
                is_gradient ? 3 : 1;  // of products, one of queries and keys and one of weights and values
            const auto scores = std::make_shared<LibraryProduct>(bf16, b * n, t, t, h),
                       values = std::make_shared<LibraryProduct>(bf16, b * n, t, h, t);
            std::vector<std::shared_ptr<LibraryProduct>> products;
            for (int i = 0; i < pairs; ++i) products.insert(products.end(), {scores, values});
            const double flops =
                4.0 * pairs * static_cast<double>(b * n * h) * static_cast<double>(t) * static_cast<double>(t);
            const auto forward = [](Array q, Array k, Array v) { return dot_product_attention(q, k, v); };
            const auto backward = [=](Array q, Array k, Array v) {
              const auto loss = [=](Array x, Array y, Array z) { return sum(convert(forward(x, y, z), f32)); };
              return grad<0, 1, 2>(loss)(q, k, v);
            };
            const Array x = normal({b, t, n, h}, bf16);
            return is_gradient ? against_library(options, flops, products, backward, x, x, x)
                               : against_library(options, flops, products, forward, x, x, x);
          }};
}

std::vector<Row> library_rows() {
  const auto product = [](Array x, Array y) { return dot(x, y); };
  std::vector<Row> rows;
  for (const std::int64_t side : {1024, 4096, 8192})
    rows.push_back(product_row(fmt::format("product, bf16, {}", side), bf16, side, product));
  rows.push_back(product_row("product, f16, 4096", f16, 4096, product));
  rows.push_back(product_row("product, f32, 4096", f32, 4096, product));
  rows.push_back(product_row(
      "product, f32 in TF32, 4096", f32, 4096,
      [](Array x, Array y) { return dot(x, y, {.precision = Precision::tf32}); }, Precision::tf32));
  rows.push_back(product_row("product, f64, 2048", f64, 2048, product));
  rows.push_back(product_row("product with bias and gelu, bf16, 4096", bf16, 4096,
                             [](Array x, Array y) { return gelu_tanh(dot(x, y) + ones({y.shape(-1)}, y.dtype())); }));
  rows.push_back(attention_row("attention, bf16 [4, 4096, 16, 128]", 4, 4096, 16, 128, false));
  rows.push_back(attention_row("attention, bf16 [4, 4096, 16, 64]", 4, 4096, 16, 64, false));
  rows.push_back(attention_row("attention and its gradient, bf16 [4, 4096, 16, 64]", 4, 4096, 16, 64, true));
  return rows;
}

/// A chain that cannot become one kernel: every sum needs the one before.
Array chain(Array x, int kernels) {
  for (int i = 0; i < kernels; ++i) x = x * 0.5 + sum(x);
  return x;
}

Result launches(const Options& options, int kernels) {
  const auto f = jit([=](Array x) { return chain(x, kernels); });
  const Array x = normal({1024}, f32);
  Result r{.ours = seconds_of(calls_of(options, f, x), options) / calls(options)};
  r.note = fmt::format("one program, {} calls to a wait", calls(options));
  return r;
}

struct Mlp {
  Dense a, b, c;
};
Array mlp_loss(const Mlp& m, const Array& x, const Array& y) { return mse(m.c(relu(m.b(relu(m.a(x))))), y); }

Result mlp_step(const Options& options) {
  const std::int64_t width = options.quick ? 32 : 4096, batch = options.quick ? 16 : 8192;
  const Mlp m{dense(random::key(1), width, width, bf16), dense(random::key(2), width, width, bf16),
              dense(random::key(3), width, width, bf16)};
  const auto step = jit([](Mlp p, Array x, Array y) { return Sgd{}.step(p, grad(mlp_loss)(p, x, y), 0.01); });
  const Array x = normal({batch, width}, bf16), y = normal({batch, width}, bf16);
  const Work work = [&] { step(m, x, y).c.b.wait(); };
  Result r{.ours = seconds_of(work, options)};
  r.note = rate(6.0 * 3 * static_cast<double>(batch) * static_cast<double>(width) * static_cast<double>(width), r.ours);
  return r;
}

struct Block {
  Dense qkv, out, up, down;
  Array scale_a, shift_a, scale_b, shift_b;
};
struct Transformer {
  std::vector<Block> blocks;
};
Block make_block(int seed, std::int64_t width) {
  const auto part = [&](int i, std::int64_t from, std::int64_t to) {
    return dense(random::key(4 * seed + i), from, to, bf16);
  };
  const Array one = ones({width}, bf16), zero = zeros({width}, bf16);
  return {part(0, width, 3 * width),
          part(1, width, width),
          part(2, width, 4 * width),
          part(3, 4 * width, width),
          one,
          zero,
          one,
          zero};
}
Array apply(const Block& b, Array x, std::int64_t heads) {
  const std::int64_t batch = x.shape(0), length = x.shape(1), width = x.shape(2);
  const std::vector<Array> parts = split(b.qkv(layer_norm(x, b.scale_a, b.shift_a)), 3, -1);
  const auto heads_of = [&](int i) { return reshape(parts[i], {batch, length, heads, width / heads}); };
  const Array mixed = dot_product_attention(heads_of(0), heads_of(1), heads_of(2), {.causal = true});
  x = x + b.out(reshape(mixed, {batch, length, width}));
  return x + b.down(gelu_tanh(b.up(layer_norm(x, b.scale_b, b.shift_b))));
}

Result transformer_step(const Options& options) {
  const std::int64_t width = options.quick ? 32 : 1024, batch = options.quick ? 1 : 8,
                     length = options.quick ? 16 : 1024, heads = options.quick ? 2 : 16;
  const int depth = options.quick ? 1 : 8;
  Transformer t;
  for (int i = 0; i < depth; ++i) t.blocks.push_back(make_block(i, width));
  const auto loss = [=](const Transformer& m, const Array& x) {
    Array y = x;
    for (const Block& b : m.blocks) y = apply(b, y, heads);
    return mean(square(convert(y, f32)));
  };
  const auto step = jit([=](Transformer m, Array x) { return Sgd{}.step(m, grad(loss)(m, x), 0.01); });
  const Array x = normal({batch, length, width}, bf16);
  const Work work = [&] { step(t, x).blocks[0].out.b.wait(); };
  Result r{.ours = seconds_of(work, options)};
  const double tokens = static_cast<double>(batch * length);
  const double weights = 12.0 * static_cast<double>(depth * width * width);
  r.note = fmt::format("{}; {:.0f} tokens/s", rate(6 * tokens * weights, r.ours), tokens / r.ours);
  return r;
}

}  // namespace

std::vector<Row> gpu_rows() {
  std::vector<Row> rows = memory_rows();
  for (Row& row : library_rows()) rows.push_back(std::move(row));
  for (const int kernels : {1, 10, 40})
    rows.push_back({fmt::format("a program of {} small kernels", kernels), "",
                    [=](const Options& options) { return launches(options, kernels); }});
  rows.push_back({"MLP step, bf16, 3 layers of 4096, batch 8192", "", mlp_step});
  rows.push_back({"transformer step, bf16, 8 blocks of 1024, 8 x 1024 tokens", "", transformer_step});
  return rows;
}

}  // namespace bench
