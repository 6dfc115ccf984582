// Two kinds of file in the disk cache: "cubin", an image under the fingerprint of its bytes; and "kernel", under that
// of all that determines a kernel's code, which names the image and its functions in it. An image has all kernels that
// were compiled together, of which another process may want a few.
#include "runtime/cuda_compiler.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/fingerprint.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/log.h"
#include "ir/profile.h"
#include "runtime/counters.h"
#include "runtime/cuda_module.h"
#include "runtime/disk_cache.h"
#include "runtime/thread_pool.h"

namespace sheaf::runtime {
namespace {

using codegen::CudaFunction;
using codegen::KernelCode;

/// A program costs about as much as six small kernels; beyond the larger number there is little left to share.
constexpr std::int64_t kFewestTogether = 4, kMostTogether = 32;
/// Bytes of text from which on a kernel takes so long that it had better be alone.
constexpr std::size_t kLongText = 16'000;

// ---- On disk ----

/// A kernel's file: "module KEY", "origin TEXT", "bytes N" of the image that are its own, and its functions.
struct Record {
  std::string module, origin;
  std::int64_t code_bytes = 0;
  std::vector<CudaFunction> entries;
};

std::string to_text(const Record& r) {
  std::string text = fmt::format("module {}\norigin {}\nbytes {}\n", r.module, r.origin, r.code_bytes);
  for (const CudaFunction& f : r.entries)
    text += fmt::format("{} {} {} {} {}\n", f.entry, f.registers, f.shared_bytes, f.stack_bytes, f.spill_bytes);
  return text;
}

Record parse_record(const std::string& text) {
  Record r;
  std::istringstream in(text);
  std::string word;
  in >> word >> r.module >> word >> std::ws;
  std::getline(in, r.origin);
  in >> word >> r.code_bytes;
  for (CudaFunction f; in >> f.entry >> f.registers >> f.shared_bytes >> f.stack_bytes >> f.spill_bytes;)
    r.entries.push_back(f);
  return r;
}

bool is_of(const Record& r, const KernelCode& code) {
  return std::ranges::equal(r.entries, code.phases, {}, &CudaFunction::entry, &codegen::Phase::entry);
}

/// The image under this key, shared by the kernels that are in it; null where it is not there.
CudaModulePtr module_on_disk(DiskCache& disk, const Record& record) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::string, std::weak_ptr<CudaModule>>;
  std::lock_guard lock(mutex);
  if (CudaModulePtr module = known[record.module].lock()) return module;
  const std::optional<DiskCache::Found> found = disk.find("cubin", record.module);
  if (!found) return nullptr;
  std::vector<std::byte> image(found->bytes.size());
  std::memcpy(image.data(), found->bytes.data(), image.size());
  auto module =
      std::make_shared<CudaModule>(std::move(image), fmt::format("{}, read from {}", record.origin, found->path));
  known[record.module] = module;
  return module;
}

absl::StatusOr<CudaModulePtr> compile_again(const KernelCode& code);

std::optional<CompiledKernel> read_kernel(const KernelCode& code) {
  DiskCache& disk = DiskCache::global();
  const std::optional<DiskCache::Found> found = disk.find("kernel", code.key);
  if (!found) return {};
  Record record = parse_record(found->bytes);
  CudaModulePtr module = is_of(record, code) ? module_on_disk(disk, record) : nullptr;
  if (!module) return {};
  counters().kernels_read.fetch_add(1, std::memory_order_relaxed);
  ir::log(ir::LogTopic::cache, "{} read from {}", code.name, found->path);
  return CompiledKernel{.cuda = std::make_shared<CudaKernel>(std::move(module), code.phases, std::move(record.entries),
                                                             [&code] { return compile_again(code); }),
                        .code_bytes = record.code_bytes};
}

// ---- Compiling ----

/// Where it is the kernel that is at fault, and not that there is no compiler for it.
absl::Status of_kernel(const KernelCode& code, const absl::Status& status) {
  if (!absl::IsInvalidArgument(status) && !absl::IsInternal(status)) return status;
  const std::string where = code.loc ? fmt::format(", first needed at {}", to_string(code.loc)) : "";
  return {status.code(), fmt::format("kernel {}{}: {}", code.name, where, std::string(status.message()))};
}

struct Compiled {
  CudaModulePtr module;
  std::vector<CudaFunction> functions;
  std::string origin;
};

/// `functions`: those of the kernels, as one text.
absl::StatusOr<Compiled> compile_program(std::span<const KernelCode* const> kernels, std::string_view functions) {
  const ir::Span span(ir::Activity::compile, fmt::format("NVRTC, {} kernels", kernels.size()), kernels[0]->loc);
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<const codegen::Nvrtc*> nvrtc = codegen::Nvrtc::load();
  if (!nvrtc.ok()) return nvrtc.status();
  const std::string& target = kernels[0]->target.gpu;
  absl::StatusOr<codegen::CudaImage> image = (*nvrtc)->compile(codegen::cuda_program(functions), "kernels.cu", target);
  if (!image.ok()) return image.status();
  counters().kernels_compiled.fetch_add(std::ssize(kernels), std::memory_order_relaxed);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  const auto name = [](const KernelCode* kernel) { return kernel->name; };
  std::vector<std::string> names;
  std::ranges::transform(kernels, std::back_inserter(names), name);
  ir::log(ir::LogTopic::compile, "{}: {} bytes of code for {} in {:.1f} ms", fmt::join(names, ", "), image->code.size(),
          target, taken.count());
  for (const CudaFunction& f : image->functions)
    ir::log(ir::LogTopic::compile, "{}: {} registers, {} bytes shared, {} of stack, {} spilled", f.entry, f.registers,
            f.shared_bytes, f.stack_bytes, f.spill_bytes);
  Compiled compiled{.module = nullptr, .functions = std::move(image->functions), .origin = ""};
  compiled.origin = fmt::format("made by {} for {}", (*nvrtc)->name(), target);
  compiled.module = std::make_shared<CudaModule>(std::move(image->code), compiled.origin);
  return compiled;
}

/// What the assembler told of the kernel's functions, and the names of those that it did not tell of.
std::vector<CudaFunction> entries_of(const KernelCode& code, const std::vector<CudaFunction>& functions) {
  std::vector<CudaFunction> entries;
  for (const codegen::Phase& phase : code.phases) {
    const auto told = std::ranges::find(functions, phase.entry, &CudaFunction::entry);
    entries.push_back(told == functions.end() ? CudaFunction{.entry = phase.entry} : *told);
  }
  return entries;
}

std::vector<CompiledKernel> finish(std::span<const KernelCode* const> kernels, const Compiled& compiled) {
  DiskCache& disk = DiskCache::global();
  const std::vector<std::byte>& image = compiled.module->image();
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  const std::string module = codegen::fingerprint(bytes);
  disk.store("cubin", module, fmt::format("{} kernels, {}", kernels.size(), compiled.origin), bytes);
  std::vector<CompiledKernel> out;
  for (const KernelCode* code : kernels) {
    const Record record{.module = module,
                        .origin = compiled.origin,
                        .code_bytes = std::ssize(image) / std::ssize(kernels),
                        .entries = entries_of(*code, compiled.functions)};
    disk.store("kernel", code->key, fmt::format("{}, {}", code->name, compiled.origin), to_text(record));
    out.push_back({.cuda = std::make_shared<CudaKernel>(compiled.module, code->phases, record.entries),
                   .code_bytes = record.code_bytes});
  }
  return out;
}

absl::StatusOr<CudaModulePtr> compile_again(const KernelCode& code) {
  const KernelCode* const alone = &code;
  const absl::StatusOr<Compiled> compiled = compile_program({&alone, 1}, code.functions);
  if (!compiled.ok()) return of_kernel(code, compiled.status());
  finish({&alone, 1}, *compiled);
  return compiled->module;
}

/// With every block said to be content alone: `__launch_bounds__(256)` as `__launch_bounds__(256, 1)`.
std::string content_alone(std::string text) {
  constexpr std::string_view kBounds = "__launch_bounds__(";
  for (std::size_t at = text.find(kBounds); at != text.npos; at = text.find(kBounds, at + 1)) {
    const std::size_t end = text.find_first_of(",)", at + kBounds.size());
    if (end != text.npos && text[end] == ')') text.insert(end, ", 1");
  }
  return text;
}

/// An assembler that guesses how many blocks had better run at once spills even where half of the registers are free.
/// Told that one is enough it does not.
void compile_without_spills(const KernelCode& code, absl::StatusOr<CompiledKernel>& compiled) {
  const auto spills = [](const CudaFunction& f) { return f.spill_bytes > 0; };
  if (std::ranges::none_of(compiled->cuda->taken(), spills)) return;
  const KernelCode* const alone = &code;
  const absl::StatusOr<Compiled> again = compile_program({&alone, 1}, content_alone(code.functions));
  if (again.ok()) compiled = std::move(finish({&alone, 1}, *again)[0]);
}

/// Positions of kernels that are compiled together: of one target, and those with long texts alone.
using Together = std::vector<std::size_t>;

std::vector<Together> programs_of(std::span<const KernelCode* const> kernels, const std::vector<std::size_t>& missing) {
  const std::int64_t threads = ThreadPool::global().threads();
  const std::int64_t most = std::clamp((std::ssize(missing) + threads - 1) / threads, kFewestTogether, kMostTogether);
  std::vector<Together> programs;
  std::map<std::string, std::size_t> open;  // by target: the program that still takes kernels
  for (const std::size_t i : missing) {
    const KernelCode& code = *kernels[i];
    const auto at = open.find(code.target.gpu);
    if (code.functions.size() < kLongText && at != open.end() && std::ssize(programs[at->second]) < most) {
      programs[at->second].push_back(i);
      continue;
    }
    if (code.functions.size() < kLongText) open[code.target.gpu] = programs.size();
    programs.push_back({i});
  }
  return programs;
}

/// Of a program that is refused each kernel is tried by itself, so that the error is that of the one at fault.
void compile_together(std::span<const KernelCode* const> kernels, const Together& which,
                      std::vector<absl::StatusOr<CompiledKernel>>& out) {
  std::vector<const KernelCode*> codes;
  std::string functions;
  for (const std::size_t i : which) {
    codes.push_back(kernels[i]);
    functions += kernels[i]->functions;
  }
  const absl::StatusOr<Compiled> compiled = compile_program(codes, functions);
  if (absl::IsInvalidArgument(compiled.status()) && which.size() > 1) {
    for (const std::size_t i : which) compile_together(kernels, {i}, out);
    return;
  }
  if (!compiled.ok()) {
    for (const std::size_t i : which) out[i] = of_kernel(*kernels[i], compiled.status());
    return;
  }
  std::vector<CompiledKernel> made = finish(codes, *compiled);
  for (std::size_t k = 0; k < which.size(); ++k) {
    out[which[k]] = std::move(made[k]);
    compile_without_spills(*codes[k], out[which[k]]);
  }
}

}  // namespace

std::vector<KernelFile> cuda_files(const Kernel& kernel) {
  const CompiledKernel& compiled = *kernel.compiled();
  const CudaModulePtr module = compiled.cuda->module();
  std::string image(reinterpret_cast<const char*>(module->image().data()), module->image().size());
  const Record record{.module = codegen::fingerprint(image),
                      .origin = module->origin(),
                      .code_bytes = compiled.code_bytes,
                      .entries = compiled.cuda->taken()};
  return {{"kernel", kernel.code().key, to_text(record)}, {"cubin", record.module, std::move(image)}};
}

std::vector<absl::StatusOr<CompiledKernel>> compile_cuda(std::span<const KernelCode* const> kernels) {
  std::vector<absl::StatusOr<CompiledKernel>> out(kernels.size(), absl::UnknownError("not compiled"));
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (std::optional<CompiledKernel> read = read_kernel(*kernels[i])) out[i] = *std::move(read);
    else missing.push_back(i);
  }
  const std::vector<Together> programs = programs_of(kernels, missing);
  ThreadPool::global().parallel_for(std::ssize(programs), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) compile_together(kernels, programs[static_cast<std::size_t>(p)], out);
  });
  return out;
}

}  // namespace sheaf::runtime
