// oneDNN's C interface through dlsym: four objects for each convolution, and a reorder for its kernel.
#include "onednn.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "team.h"

#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>

namespace bench {
namespace {

void require(dnnl_status_t status, const char* what) {
  if (status != dnnl_success) throw std::runtime_error(fmt::format("oneDNN refuses {}", what));
}

// The functions used, found by name.
struct Library {
  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle, name));
  }

  explicit Library(void* library) : handle(library) {
    find(describe, "dnnl_memory_desc_init_by_tag");
    find(forward, "dnnl_dilated_convolution_forward_desc_init");
    find(backward_data, "dnnl_dilated_convolution_backward_data_desc_init");
    find(backward_weights, "dnnl_dilated_convolution_backward_weights_desc_init");
    find(product, "dnnl_matmul_desc_init");
    find(plan, "dnnl_primitive_desc_create");
    find(query, "dnnl_primitive_desc_query_md");
    find(create, "dnnl_primitive_create");
    find(execute, "dnnl_primitive_execute");
    find(wait, "dnnl_stream_wait");
    find(reorder, "dnnl_reorder_primitive_desc_create");
    find(allocate, "dnnl_memory_create");
    decltype(&dnnl_engine_create) make_engine;
    decltype(&dnnl_stream_create) make_stream;
    find(make_engine, "dnnl_engine_create");
    find(make_stream, "dnnl_stream_create");
    require(make_engine(&engine, dnnl_cpu, 0), "an engine");
    require(make_stream(&stream, engine, dnnl_stream_default_flags), "a stream");
  }

  dnnl_memory_desc_t memory(std::vector<dnnl_dim_t> dims, dnnl_format_tag_t tag,
                            dnnl_data_type_t dtype = dnnl_f32) const {
    dnnl_memory_desc_t d;
    require(describe(&d, static_cast<int>(dims.size()), dims.data(), dtype, tag), "a layout");
    return d;
  }
  dnnl_memory_t at(const dnnl_memory_desc_t& d, void* data) const {
    dnnl_memory_t m;
    require(allocate(&m, &d, engine, data), "a buffer");
    return m;
  }
  void run(dnnl_primitive_t primitive, const std::vector<dnnl_exec_arg_t>& args) const {
    require(execute(primitive, stream, static_cast<int>(args.size()), args.data()), "to run");
    require(wait(stream), "to finish");
  }
  void copy(const dnnl_memory_desc_t& from_desc, dnnl_memory_t from, const dnnl_memory_desc_t& to_desc,
            dnnl_memory_t to) const {
    dnnl_primitive_desc_t how;
    require(reorder(&how, &from_desc, engine, &to_desc, engine, nullptr), "a reorder");
    dnnl_primitive_t primitive;
    require(create(&primitive, how), "a reorder");
    run(primitive, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  void* handle;
  dnnl_engine_t engine = nullptr;
  dnnl_stream_t stream = nullptr;
  decltype(&dnnl_memory_desc_init_by_tag) describe;
  decltype(&dnnl_dilated_convolution_forward_desc_init) forward;
  decltype(&dnnl_dilated_convolution_backward_data_desc_init) backward_data;
  decltype(&dnnl_dilated_convolution_backward_weights_desc_init) backward_weights;
  decltype(&dnnl_matmul_desc_init) product;
  decltype(&dnnl_primitive_desc_create) plan;
  decltype(&dnnl_primitive_desc_query_md) query;
  decltype(&dnnl_primitive_create) create;
  decltype(&dnnl_primitive_execute) execute;
  decltype(&dnnl_stream_wait) wait;
  decltype(&dnnl_reorder_primitive_desc_create) reorder;
  decltype(&dnnl_memory_create) allocate;
};

// OpenMP reads the number of threads when it is loaded.
const Library* library() {
  static const Library* const loaded = [] {
    setenv("OMP_NUM_THREADS", fmt::format("{}", Team::global().size()).c_str(), 1);
    void* handle = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    return handle ? new Library(handle) : nullptr;
  }();
  return loaded;
}

struct Layouts {
  dnnl_memory_desc_t x, kernel, y;
};

dnnl_primitive_desc_t planned(const Library& l, const ConvShape& s, ConvPass pass, const Layouts& m) {
  const dnnl_dims_t strides = {s.stride, s.stride}, dilation = {0, 0}, low = {s.padding(), s.padding()};
  const dnnl_dim_t last = (s.result_extent() - 1) * s.stride + s.size - s.padding() - s.extent;
  const dnnl_dims_t high = {last, last};
  dnnl_convolution_desc_t forward, desc;
  dnnl_primitive_desc_t hint = nullptr, how = nullptr;
  require(l.forward(&forward, dnnl_forward_training, dnnl_convolution_direct, &m.x, &m.kernel, nullptr, &m.y, strides,
                    dilation, low, high),
          "the convolution");
  require(l.plan(&hint, &forward, nullptr, l.engine, nullptr), "the convolution");
  if (pass == ConvPass::forward) return hint;
  if (pass == ConvPass::input_gradient)
    require(l.backward_data(&desc, dnnl_convolution_direct, &m.x, &m.kernel, &m.y, strides, dilation, low, high),
            "a gradient");
  else
    require(l.backward_weights(&desc, dnnl_convolution_direct, &m.x, &m.kernel, nullptr, &m.y, strides, dilation, low,
                               high),
            "a gradient");
  require(l.plan(&how, &desc, nullptr, l.engine, hint), "a gradient");
  return how;
}

}  // namespace

OneDnnConv onednn_conv(const ConvShape& s, ConvPass pass, float* x, float* kernel, float* y) {
  const Library* l = library();
  if (!l) return {};
  const std::int64_t e = s.result_extent();
  std::vector<dnnl_dim_t> weights = {s.out / s.groups, s.in / s.groups, s.size, s.size};
  if (s.groups > 1) weights.insert(weights.begin(), s.groups);
  const dnnl_format_tag_t tag = s.channels_first ? dnnl_nchw : dnnl_nhwc;
  const Layouts layouts{.x = l->memory({s.batch, s.in, s.extent, s.extent}, tag),
                        .kernel = l->memory(weights, dnnl_format_tag_any),
                        .y = l->memory({s.batch, s.out, e, e}, tag)};
  const dnnl_primitive_desc_t how = planned(*l, s, pass, layouts);
  const bool is_kernel_result = pass == ConvPass::kernel_gradient;
  const dnnl_memory_desc_t own =
      *l->query(how, is_kernel_result ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  const dnnl_memory_desc_t plain = l->memory(weights, s.groups > 1 ? dnnl_hwigo : dnnl_hwio);
  const dnnl_memory_t own_kernel = l->at(own, DNNL_MEMORY_ALLOCATE);
  if (!is_kernel_result) l->copy(plain, l->at(plain, kernel), own, own_kernel);
  dnnl_primitive_t primitive;
  require(l->create(&primitive, how), "the convolution");
  const dnnl_memory_t images = l->at(layouts.x, x), results = l->at(layouts.y, y);
  std::vector<dnnl_exec_arg_t> args;
  switch (pass) {
    case ConvPass::forward:
      args = {{DNNL_ARG_SRC, images}, {DNNL_ARG_WEIGHTS, own_kernel}, {DNNL_ARG_DST, results}};
      break;
    case ConvPass::input_gradient:
      args = {{DNNL_ARG_DIFF_SRC, images}, {DNNL_ARG_WEIGHTS, own_kernel}, {DNNL_ARG_DIFF_DST, results}};
      break;
    case ConvPass::kernel_gradient:
      args = {{DNNL_ARG_SRC, images}, {DNNL_ARG_DIFF_WEIGHTS, own_kernel}, {DNNL_ARG_DIFF_DST, results}};
      break;
  }
  const auto read_result = [=](float* to) {
    if (is_kernel_result) return l->copy(own, own_kernel, plain, l->at(plain, to));
    const std::int64_t count =
        pass == ConvPass::forward ? s.batch * e * e * s.out : s.batch * s.extent * s.extent * s.in;
    const float* from = pass == ConvPass::forward ? y : x;
    std::copy(from, from + count, to);
  };
  return {.run = [=] { l->run(primitive, args); }, .read_result = read_result};
}

std::function<void()> onednn_product(const ProductShape& s, void* x, void* y, void* out) {
  const Library* l = library();
  if (!l) return {};
  const bool is_i8 = s.dtype == sheaf::i8;
  const dnnl_data_type_t in = is_i8 ? dnnl_s8 : s.dtype == sheaf::bf16 ? dnnl_bf16 : dnnl_f32;
  const auto tag = [](bool is_transposed) { return is_transposed ? dnnl_ba : dnnl_ab; };
  const dnnl_memory_desc_t lhs = l->memory({s.rows, s.terms}, tag(s.transposes_x), in);
  const dnnl_memory_desc_t rhs = l->memory({s.terms, s.columns}, tag(s.transposes_y), in);
  const dnnl_memory_desc_t result = l->memory({s.rows, s.columns}, dnnl_ab, is_i8 ? dnnl_s32 : dnnl_f32);
  dnnl_matmul_desc_t desc;
  dnnl_primitive_desc_t how;
  require(l->product(&desc, &lhs, &rhs, nullptr, &result), "the product");
  if (l->plan(&how, &desc, nullptr, l->engine, nullptr) != dnnl_success) return {};
  dnnl_primitive_t primitive;
  require(l->create(&primitive, how), "the product");
  const std::vector<dnnl_exec_arg_t> args = {
      {DNNL_ARG_SRC, l->at(lhs, x)}, {DNNL_ARG_WEIGHTS, l->at(rhs, y)}, {DNNL_ARG_DST, l->at(result, out)}};
  return [=] { l->run(primitive, args); };
}

}  // namespace bench

#else

namespace bench {

std::function<void()> onednn_product(const ProductShape&, void*, void*, void*) { return {}; }

OneDnnConv onednn_conv(const ConvShape&, ConvPass, float*, float*, float*) { return {}; }

}  // namespace bench

#endif
