// Dumps as files. A folder is named after the function, with a number where several programs share the name.
#include "trace/dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "codegen/compiler.h"
#include "codegen/cpu_target.h"
#include "codegen/cuda/emit.h"
#include "codegen/kir/print.h"
#include "ir/log.h"
#include "ir/text.h"
#include "trace/communication.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

void warn_once(const std::string& what) {
  static std::once_flag once;
  std::call_once(once, [&] { ir::warn("SHEAF_DUMP: " + what); });
}

// Whether a file is one that a dump writes. Any other is the user's: SHEAF_DUMP=. and a function named src may meet.
bool is_ours(const std::string& name) {
  const bool is_numbered = name.size() > 3 && std::isdigit(static_cast<unsigned char>(name[0])) &&
                           std::isdigit(static_cast<unsigned char>(name[1])) && name[2] == '-' &&
                           name.ends_with(".sheaf");
  return is_numbered || name.starts_with("kernel-") || name == "memory.txt" || name == "steps.txt" ||
         name == "collectives.txt" || name == "timings.txt";
}

void remove_old_dumps(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_ours(at->path().filename())) old.push_back(at->path());
  for (const fs::path& path : old) fs::remove(path, error);
}

// "dir/step", then "dir/step.2", ...: numbered within the process, so that a second run overwrites the first one's.
std::string new_folder(const std::string& root, const std::string& name) {
  static auto& mutex = *new std::mutex;
  static auto& counts = *new std::map<std::string, int>;
  int n;
  {
    std::lock_guard lock(mutex);
    n = ++counts[name];
  }
  const fs::path folder = fs::path(root) / (n == 1 ? name : fmt::format("{}.{}", name, n));
  std::error_code error;
  remove_old_dumps(folder);
  fs::create_directories(folder, error);
  if (!error) return folder.string();
  warn_once(fmt::format("{} cannot be made: {}", folder.string(), error.message()));
  return "";
}

}  // namespace

Dump::Dump(const ir::FunctionRef& f) {
  const char* root = std::getenv("SHEAF_DUMP");
  if (root && *root) folder_ = new_folder(root, f->name());
}

void Dump::pass(int number, std::string_view name, const ir::FunctionRef& f) {
  passes_ = number + 1;
  if (is_on()) write(fmt::format("{:02}-{}.sheaf", number, name), ir::print(f, {.locs = true, .names = true}));
}

void Dump::plan(const passes::Plan& plan) {
  if (!is_on()) return;
  std::string text = fmt::format("arena: {} bytes\n", plan.arena_bytes);
  for (std::size_t j = 0; j < plan.alias.size(); ++j)
    if (plan.alias[j] >= 0) text += fmt::format("result {} takes the buffer of parameter {}\n", j, plan.alias[j]);
  write("memory.txt", text);
  if (plan.function->mesh()) write("collectives.txt", collectives_of(plan).text);
  write(fmt::format("{:02}-plan.sheaf", passes_), ir::print(plan.function, {.locs = true, .names = true}));
}

namespace {

constexpr std::string_view kRoutines[] = {"cholesky", "triangular_solve", "lu", "qr", "svd", "eigh"};

// One line per step, the steps of loops and branches indented under theirs.
class StepLines {
 public:
  explicit StepLines(const codegen::Program& program) : program_(program) {}

  std::string of(std::span<const codegen::Step> steps, const std::string& indent) {
    std::string text;
    for (const codegen::Step& s : steps) {
      const std::string loc = to_string(s.loc);
      text += s.control ? std::visit([&](const auto& what) { return of(what, indent, loc); }, s.control->what)
                        : of_kernel(s, indent, loc);
    }
    return text;
  }

  /// The user's lines of the steps so far that run this kernel.
  std::string lines_of(int kernel) const {
    const auto at = lines_.find(kernel);
    return at == lines_.end() ? "" : fmt::format("{}", fmt::join(at->second, ", "));
  }

 private:
  std::string of_kernel(const codegen::Step& s, const std::string& indent, const std::string& loc) {
    lines_[s.kernel].insert(loc);
    return fmt::format("{}{}{}  {}\n", indent, program_.kernels[s.kernel].name,
                       s.joins_next ? ", together with the next" : "", loc);
  }
  std::string of(const codegen::Loop& loop, const std::string& indent, const std::string& loc) {
    const std::string head =
        loop.length >= 0 ? fmt::format("{}scan, {} steps  {}\n", indent, loop.length, loc)
                         : fmt::format("{}while  {}\n{}{}do\n", indent, loc, of(loop.condition, indent + "  "), indent);
    return head + of(loop.body, indent + "  ");
  }
  std::string of(const codegen::Branch& branch, const std::string& indent, const std::string& loc) {
    std::string text;
    for (std::size_t b = 0; b < branch.branches.size(); ++b)
      text += fmt::format("{}branch {} of {}  {}\n", indent, b, branch.branches.size(), loc) +
              of(branch.branches[b], indent + "  ");
    return text;
  }
  std::string of(const codegen::Check& check, const std::string& indent, const std::string& loc) {
    return fmt::format("{}check \"{}\"  {}\n", indent, check.message, loc);
  }
  std::string of(const codegen::Callback& callback, const std::string& indent, const std::string& loc) {
    return fmt::format("{}callback {}, slot {}  {}\n", indent, callback.name, callback.slot, loc);
  }
  std::string of(const codegen::LibraryCall& call, const std::string& indent, const std::string& loc) {
    if (const auto* product = std::get_if<codegen::Product>(&call.what))
      return fmt::format("{}product by the library, {} of {} x {} x {}  {}\n{}or else\n{}", indent, product->batch,
                         product->rows, product->terms, product->columns, loc, indent,
                         of(call.otherwise, indent + "  "));
    const auto& what = std::get<ir::lowering::Library>(call.what);
    return fmt::format("{}{}, {} of {} x {}  {}\n", indent, kRoutines[static_cast<int>(what.routine)], what.batch,
                       what.rows, what.columns, loc);
  }
  std::string of(const codegen::Collective& meeting, const std::string& indent, const std::string& loc) {
    return fmt::format("{}{}{}, {} bytes  {}\n", indent, meeting.waits ? "" : "begin ", meeting.name,
                       meeting.result.bytes, loc);
  }
  std::string of(const codegen::Await&, const std::string& indent, const std::string& loc) {
    return fmt::format("{}await  {}\n", indent, loc);
  }

  const codegen::Program& program_;
  std::map<int, std::set<std::string>> lines_;
};

}  // namespace

void Dump::kernels(const codegen::Program& program) {
  if (!is_on()) return;
  StepLines steps(program);
  write("steps.txt", steps.of(program.steps, ""));
  const codegen::CpuTarget& target = codegen::host_cpu_target();
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    const codegen::KernelCode& k = program.kernels[i];
    const std::string base = fmt::format("kernel-{:02}-{}", i, k.name);
    write(base + ".kir", kir::to_text(*k.kir));
    if (k.target.is_gpu()) {
      write(base + ".cu",
            fmt::format("// {}\n{}", steps.lines_of(static_cast<int>(i)), codegen::cuda_program(k.functions)));
      continue;
    }
    const codegen::CompileUnit unit{k.kir.get(), k.name};
    const std::pair<codegen::Listing, const char*> listings[] = {{codegen::Listing::llvm_ir, ".ll"},
                                                                 {codegen::Listing::assembly, ".s"}};
    for (const auto& [listing, suffix] : listings)
      if (const auto text = codegen::list_cpu({&unit, 1}, target, listing); text.ok()) write(base + suffix, *text);
  }
}

void Dump::time(std::string_view what, double milliseconds) {
  if (is_on()) write("timings.txt", fmt::format("{:<10} {:9.3f} ms\n", what, milliseconds), true);
}

void Dump::write(const std::string& name, const std::string& text, bool append) {
  const std::string path = folder_ + "/" + name;
  std::ofstream file(path, append ? std::ios::app : std::ios::trunc);
  file << text;
  if (!file.flush()) warn_once(path + " cannot be written");
}

}  // namespace sheaf
