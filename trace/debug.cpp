// Checks, prints and host functions, eager or as equations of the trace; and the search for the first NaN.
#include "sheaf/debug.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <cstdio>
#include <mutex>

#include "ir/callbacks.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "runtime/device.h"
#include "sheaf/print.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/nan_search.h"
#include "trace/recorder.h"
#include "trace/runnable.h"
#include "trace/trace_call.h"

namespace sheaf {
namespace {

ir::Literal literal_of(const Array& x, Loc loc) {
  ir::Literal value(node_of(x, loc).type);
  check(buffer_of(x, value.type(), loc)->to_host(std::span(value.data(), value.bytes())), loc);
  return value;
}

Array array_of(const ir::Literal& value) {
  auto buffer = runtime::Buffer::from_host(runtime::device(0), std::span(value.data(), value.bytes()), {});
  check(buffer.status(), {});
  return concrete(*std::move(buffer), value.type(), false, {});
}

// ---- debug_print ----

struct Output {
  std::mutex mutex;
  std::function<void(std::string_view)> write;
};

Output& output() {
  static auto& o = *new Output;
  return o;
}

void print_line(const std::string& line) {
  std::lock_guard lock(output().mutex);
  if (output().write) return output().write(line);
  std::fwrite((line + "\n").data(), 1, line.size() + 1, stdout);
  std::fflush(stdout);
}

std::vector<std::string> pieces_of(const std::string& format) {
  std::vector<std::string> pieces{""};
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format.compare(i, 2, "{}") == 0) {
      pieces.emplace_back();
      ++i;
    } else {
      pieces.back() += format[i];
    }
  }
  return pieces;
}

std::string filled(const std::vector<std::string>& pieces, std::span<const ir::Literal> values) {
  std::string line = pieces[0];
  for (std::size_t k = 0; k < values.size(); ++k) line += to_string(array_of(values[k])) + pieces[k + 1];
  return line;
}

// Compiled programs hand over complex numbers as pairs: read them as what they are.
ir::Literal read_as(const ir::Literal& x, DType dtype) {
  if (!is_complex(dtype) || is_complex(x.dtype())) return x;
  return x.as(ir::Type(dtype, Shape(x.dims().begin(), x.dims().end() - 1)));
}

// One slot per format and dtypes, so that tracing a print again gives the same program.
int print_slot(const std::string& format, std::span<const Array> arrays) {
  static auto& mutex = *new std::mutex;
  static auto& slots = *new absl::flat_hash_map<std::pair<std::string, std::vector<DType>>, int>;
  std::vector<DType> dtypes;
  for (const Array& x : arrays) dtypes.push_back(x.dtype());
  std::lock_guard lock(mutex);
  const auto [it, fresh] = slots.try_emplace(std::pair(format, dtypes), -1);
  if (fresh)
    it->second =
        ir::add_callback([pieces = pieces_of(format), dtypes](std::span<const ir::Literal> in, std::span<ir::Literal>) {
          ir::Literals values;
          for (std::size_t k = 0; k < in.size(); ++k) values.push_back(read_as(in[k], dtypes[k]));
          print_line(filled(pieces, values));
          return absl::OkStatus();
        });
  return it->second;
}

// An equation of the current trace, for its effect.
std::vector<Array> record(Recorder& r, const ir::OpDef& op, std::span<const Array> operands,
                          std::shared_ptr<const void> attrs, Loc loc) {
  ir::Values values;
  for (const Array& x : operands) values.push_back(r.lift(x, loc));
  r.builder().set_loc(loc);
  std::vector<Array> results;
  for (ir::Value v : r.builder().emit_all(&op, std::move(values), std::move(attrs)))
    if (v.dtype() != DType::token) results.push_back(r.wrap(v, false, loc));
  return results;
}

}  // namespace

void check(Operand pred, std::string message, Loc own) {
  const Loc loc = UserLine::or_own(own);
  const Array x = to_array(pred);
  const ir::Type type = node_of(x, loc).type;
  if (type != ir::Type(bool_, {})) {
    const Named named{"operand", &x};
    throw TypeError(loc, fmt::format("check: takes a bool scalar{}", describe({&named, 1})));
  }
  Recorder* r = Recorder::current();
  if (r) {
    record(*r, ir::ops::check, {&x, 1}, std::make_shared<const ir::ops::Check>(ir::ops::Check{std::move(message)}),
           loc);
  } else if (!literal_of(x, loc).get_int(0)) {
    throw RuntimeError(loc, "check failed: " + message);
  }
}

namespace detail {

void debug_print(std::string format, std::vector<Array> arrays, Loc own) {
  const Loc loc = UserLine::or_own(own);
  const std::vector<std::string> pieces = pieces_of(format);
  if (pieces.size() != arrays.size() + 1)
    throw TypeError(loc, fmt::format("debug_print: the format \"{}\" has {} {{}}, and {} arrays are given", format,
                                     pieces.size() - 1, arrays.size()));
  Recorder* r = Recorder::current();
  if (r) {
    const int slot = print_slot(format, arrays);
    record(*r, ir::ops::callback, arrays,
           std::make_shared<const ir::ops::CallbackAttrs>(ir::ops::CallbackAttrs{.name = "debug_print", .slot = slot}),
           loc);
    return;
  }
  ir::Literals values;
  for (const Array& x : arrays) values.push_back(literal_of(x, loc));
  print_line(filled(pieces, values));
}

}  // namespace detail

void set_debug_output(std::function<void(std::string_view)> write) {
  std::lock_guard lock(output().mutex);
  output().write = std::move(write);
}

// ---- host functions ----

namespace {

HostTensor view_of(const ir::Literal& x) {
  // Operands are views too; a body that writes to one writes to a copy of its own.
  return {x.dims(), x.dtype(), {const_cast<std::byte*>(x.data()), x.bytes()}};
}

}  // namespace

HostFunction::HostFunction(std::string name, Body f, HostFunctionOptions options)
    : name_(std::move(name)), is_pure_(options.pure) {
  slot_ = ir::add_callback([f = std::move(f)](std::span<const ir::Literal> in, std::span<ir::Literal> out) {
    std::vector<HostTensor> operands, results;
    for (const ir::Literal& x : in) operands.push_back(view_of(x));
    for (const ir::Literal& x : out) results.push_back(view_of(x));
    f(operands, results);
    return absl::OkStatus();
  });
}

std::vector<Array> HostFunction::operator()(const std::vector<Array>& operands, const std::vector<Array>& results_like,
                                            Loc own) const {
  const Loc loc = UserLine::or_own(own);
  for (const std::vector<Array>* arrays : {&operands, &results_like})
    for (const Array& x : *arrays)
      if (is_complex(node_of(x, loc).type.dtype()))
        throw TypeError(
            loc, fmt::format("{}: a host function takes and gives no {}: pass real() and imag()", name_, type_text(x)));
  ir::ops::CallbackAttrs attrs{.name = name_, .slot = slot_, .pure = is_pure_};
  ir::Literals results;
  for (const Array& x : results_like) {
    const ir::Type type = node_of(x, loc).type;
    attrs.dtypes.emplace_back(name(type.dtype()));
    attrs.ranks.push_back(type.rank());
    attrs.shapes.insert(attrs.shapes.end(), type.dims().begin(), type.dims().end());
    results.emplace_back(type);
  }
  if (Recorder* r = Recorder::current())
    return record(*r, ir::ops::callback, operands, std::make_shared<const ir::ops::CallbackAttrs>(std::move(attrs)),
                  loc);
  ir::Literals values;
  for (const Array& x : operands) values.push_back(literal_of(x, loc));
  if (const absl::Status s = ir::run_callback(slot_, 1, values, results); !s.ok())
    throw RuntimeError(loc, name_ + ": " + std::string(s.message()));
  std::vector<Array> out;
  for (const ir::Literal& x : results) out.push_back(array_of(x));
  return out;
}

// ---- find_nan ----

namespace detail {

std::string find_nan(const FlatCall& call, FindNanOptions options) {
  const Traced traced = trace_call(call, {.what = "find_nan", .name = "find_nan", .loc = call.loc()}, leaf_types(call));
  ir::Literals inputs;
  for (const Array& x : inputs_of(call, traced)) {
    const ir::Type type = traced.function->params()[inputs.size()].type();
    ir::Literal value(type);
    check(buffer_of(x, type, call.loc())->to_host(std::span(value.data(), value.bytes())), call.loc());
    inputs.push_back(std::move(value));
  }
  const Mesh mesh = mesh_named_in(*traced.function, "find_nan");
  const Source source = mesh ? source_on(mesh, traced.function) : Source{.function = traced.function};
  return first_bad_equation(source, inputs, {.nans = true, .infinities = options.infinities});
}

}  // namespace detail
}  // namespace sheaf
