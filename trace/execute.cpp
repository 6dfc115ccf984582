// Programs by canonical text. Until a program is compiled here nothing has been decided about how it runs.
#include "trace/execute.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "ir/eval.h"
#include "ir/text.h"
#include "runtime/cache.h"
#include "runtime/device.h"

namespace sheaf {
namespace {

// The reference interpreter, for SHEAF_INTERPRET=1: slow, and right.
class Interpreted final : public Compiled {
 public:
  explicit Interpreted(ir::FunctionRef f) : f_(std::move(f)) {}

  std::vector<runtime::BufferPtr> run(std::span<const runtime::BufferPtr> inputs, const std::vector<bool>&,
                                      Loc loc) const override {
    ir::Literals literals;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      literals.emplace_back(f_->params()[i].type());
      check(inputs[i]->to_host(std::span(literals[i].data(), literals[i].bytes())), loc);
    }
    std::vector<runtime::BufferPtr> out;
    for (const ir::Literal& r : ir::eval(*f_, literals)) {
      auto buffer = runtime::Buffer::from_host(runtime::device(0), std::span(r.data(), r.bytes()), loc);
      check(buffer.status(), loc);
      out.push_back(*std::move(buffer));
    }
    return out;
  }

 private:
  ir::FunctionRef f_;
};

std::atomic<std::int64_t> loaded{0};

auto& programs() {
  static auto& cache = *new runtime::SingleFlightMap<std::string, CompiledPtr>;
  return cache;
}

CompiledPtr make(const ir::FunctionRef& f, const std::vector<bool>& donated, Loc loc) {
  (void)donated, (void)loc;
  auto program = std::make_shared<Interpreted>(f);
  program->inputs = f->param_types();
  program->outputs = f->result_types();
  return program;
}

}  // namespace

CompiledPtr compile(const ir::FunctionRef& f, const std::vector<bool>& donated, Loc loc, bool* is_new) {
  std::string key = ir::canonical_text(f);
  key += "donated:";
  for (const bool d : donated) key += d ? '1' : '0';
  const auto program = programs().get_or_make(key, [&]() -> absl::StatusOr<CompiledPtr> {
    CompiledPtr made = make(f, donated, loc);
    ++loaded;
    if (is_new) *is_new = true;
    return made;
  });
  check(program.status(), loc);
  return *program;
}

void run(const Compiled& f, std::span<const Array* const> inputs, const std::vector<bool>& donated,
         const std::vector<bool>& weak, Loc loc, std::vector<Array>& out) {
  std::vector<runtime::BufferPtr> buffers;
  buffers.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) buffers.push_back(buffer_of(*inputs[i], f.inputs[i], loc));
  std::vector<runtime::BufferPtr> results = f.run(buffers, donated, loc);
  out.reserve(out.size() + results.size());
  for (std::size_t j = 0; j < results.size(); ++j)
    out.push_back(concrete(std::move(results[j]), f.outputs[j], !weak.empty() && weak[j], loc));
}

std::int64_t programs_loaded() { return loaded; }

}  // namespace sheaf
