// The command line over the same functions the library calls: `sheaf opt` prints what a pass makes of a file, `sheaf
// run` runs a file, dumps included, with the interpreter or compiled, `sheaf compile` compiles one for any target and
// tells what its kernels take, `sheaf cache` looks after the disk cache, `sheaf calibrate` measures collectives, and
// `sheaf ops` prints docs/ops.md.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "ir/eval.h"
#include "ir/op.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "ir/words.h"
#include "passes/pass.h"
#include "passes/transforms.h"
#include "runtime/device.h"
#include "sheaf/data.h"
#include "sheaf/error.h"
#include "tools/cache.h"
#include "tools/calibrate.h"
#include "tools/gpus.h"
#include "tools/ops_table.h"
#include "trace/aot.h"
#include "trace/element.h"
#include "trace/execute.h"
#include "trace/text_file.h"

namespace {

using namespace sheaf;

constexpr const char* kUsage = R"(sheaf: reads, transforms and runs IR text

  sheaf opt --pass=NAME[,NAME...] [--locs] FILE      print the first function of FILE after the passes
  sheaf run [--interpret] [--seed=N] [--input=X.npy ...] FILE
                                                     run the first function of FILE, on one device, and print its
                                                     results; parameters without an --input get random numbers
  sheaf compile --target=NAME FILE                   compile the first function of FILE for a GPU's architecture, such
                                                     as sm_90a, and print what its kernels take; SHEAF_CACHE_DIR
                                                     keeps the code for processes that run it
  sheaf cache list|stats|verify|purge|build|pack|unpack
                                                     look after compiled kernels on disk; see sheaf cache --help
  sheaf gpus                                         list the GPUs and NVIDIA's libraries, and what is missing; fails
                                                     where no GPU can be used
  sheaf passes                                       list the passes
  sheaf ops                                          print what every op has, as docs/ops.md
  sheaf calibrate [--devices=N] [FILE]               measure collectives between N virtual devices (4) and write a
                                                     profile for SHEAF_MESH_PROFILE to FILE, or print it

FILE is a .sheaf file, such as any SHEAF_DUMP writes; - is standard input.
)";

struct Options {
  std::string command, file, passes, target;
  bool interpret = false, locs = false;
  std::uint64_t seed = 0;
  int devices = 4;
  std::vector<std::string> inputs;
};

Options parse_options(int argc, char** argv) {
  Options o;
  if (argc < 2) throw Error("no command; see sheaf --help");
  o.command = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&](std::string_view flag) { return std::string(arg.substr(flag.size())); };
    if (arg.starts_with("--pass=")) o.passes = value("--pass=");
    else if (arg.starts_with("--target=")) o.target = value("--target=");
    else if (arg.starts_with("--seed=")) {
      const std::string text = value("--seed=");
      char* end = nullptr;
      o.seed = std::strtoull(text.c_str(), &end, 10);
      if (text.empty() || *end) throw Error("--seed takes a number, not '" + text + "'");
    } else if (arg.starts_with("--devices=")) {
      const std::string text = value("--devices=");
      const std::optional<std::int64_t> count = ir::parse_int(text);
      if (!count || *count < 2 || *count > 1024)
        throw Error("--devices takes a number from 2 to 1024, not '" + text + "'");
      o.devices = static_cast<int>(*count);
    } else if (arg.starts_with("--input=")) o.inputs.push_back(value("--input="));
    else if (arg == "--interpret") o.interpret = true;
    else if (arg == "--locs") o.locs = true;
    else if (arg.starts_with("--")) throw Error("unknown option " + std::string(arg) + "; see sheaf --help");
    else if (o.file.empty()) o.file = arg;
    else throw Error("one FILE at a time: " + o.file + " and " + std::string(arg));
  }
  return o;
}

std::string read_text(const std::string& file) {
  if (file.empty()) throw Error("no FILE; see sheaf --help");
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  absl::StatusOr<std::string> text = contents_of(file);
  if (!text.ok()) throw RuntimeError(file + ": " + std::string(text.status().message()));
  return *std::move(text);
}

ir::FunctionRef read_function(const std::string& file) {
  const auto module = ir::parse(read_text(file));
  if (!module.ok()) throw Error(file + ":" + std::string(module.status().message()));
  if (module->functions.empty()) throw Error(file + ": holds no function");
  return module->functions[0];
}

int opt(const Options& o) {
  ir::FunctionRef f = read_function(o.file);
  std::istringstream names(o.passes);
  for (std::string name; std::getline(names, name, ',');) {
    const passes::Pass* pass = passes::find_pass(name);
    if (!pass) throw Error("no pass named '" + name + "'; see sheaf passes");
    if (const std::string why = passes::why_not(*pass, f); !why.empty()) throw Error("--pass=" + name + ": " + why);
    f = pass->run(f, {});
  }
  std::fputs(ir::print(f, {.locs = o.locs}).c_str(), stdout);
  return 0;
}

// Parameters from the files given, in order; the others random.
ir::Literals inputs_of(const ir::Function& f, const Options& o) {
  for (const ir::Value p : f.params())
    if (!is_bool(p.dtype()) && !is_int(p.dtype()) && !is_float(p.dtype()))
      throw TypeError(
          fmt::format("parameter {} is {}; only bool, integers and floats can be run", p.index(), to_string(p.type())));
  ir::Literals inputs = ir::random_inputs(f, o.seed);
  if (o.inputs.size() > inputs.size())
    throw Error(fmt::format("{} inputs for {} parameters", o.inputs.size(), inputs.size()));
  for (std::size_t i = 0; i < o.inputs.size(); ++i) {
    const HostArray x = read_npy(o.inputs[i], {});
    if (x.dtype != inputs[i].dtype() || x.dims != inputs[i].dims())
      throw TypeError(fmt::format("{}: is {}, parameter {} is {}", o.inputs[i], to_string(ir::Type(x.dtype, x.dims)), i,
                                  to_string(inputs[i].type())));
    std::copy(x.bytes.begin(), x.bytes.end(), inputs[i].data());
  }
  return inputs;
}

ir::Literals run_compiled(const ir::FunctionRef& f, const ir::Literals& inputs) {
  runtime::Device& device = runtime::device(0);
  const CompiledPtr program = compile({.function = f, .target = device.backend().target()}, {}, {});
  std::vector<runtime::BufferPtr> buffers;
  for (const ir::Literal& x : inputs) {
    auto buffer = runtime::Buffer::from_host(device, std::span(x.data(), x.bytes()), {});
    if (!buffer.ok()) throw RuntimeError(std::string(buffer.status().message()));
    buffers.push_back(*std::move(buffer));
  }
  ir::Literals results;
  for (const runtime::BufferPtr& r : program->run(device, runtime::pointers_to(buffers), {}, {})) {
    results.emplace_back(f->results()[results.size()].type());
    const absl::Status s = r->to_host(std::span(results.back().data(), results.back().bytes()));
    if (!s.ok()) throw RuntimeError(std::string(s.message()));
  }
  return results;
}

// One line per result: its type, and up to sixteen elements.
void show(const ir::Literals& results) {
  for (std::size_t j = 0; j < results.size(); ++j) {
    std::string line = fmt::format("%{}: {} =", j, to_string(results[j].type()));
    const std::int64_t shown = std::min<std::int64_t>(results[j].size(), 16);
    for (std::int64_t i = 0; i < shown; ++i) line += " " + element_text(results[j], i);
    if (shown < results[j].size()) line += " ...";
    std::puts(line.c_str());
  }
}

bool has_reference(const ir::Function& f) {
  return std::all_of(f.eqns().begin(), f.eqns().end(), [](const ir::Eqn* e) {
    return e->op->eval && std::all_of(e->regions.begin(), e->regions.end(),
                                      [](const ir::FunctionRef& r) { return has_reference(*r); });
  });
}

// A linear map known by its transpose has no reference; expanded it has.
ir::Literals interpret(const ir::FunctionRef& f, const ir::Literals& inputs) {
  return ir::eval(has_reference(*f) ? *f : *passes::expand_ops(f), inputs);
}

int run(const Options& o) {
  const ir::FunctionRef f = read_function(o.file);
  if (const ir::Mesh mesh = f->mesh())
    throw Error(
        fmt::format("@{} is for the devices of [{}]; run takes programs of one device", f->name(), to_string(mesh)));
  const ir::Literals inputs = inputs_of(*f, o);
  show(o.interpret ? interpret(f, inputs) : run_compiled(f, inputs));
  return 0;
}

// Of each function of each kernel one line.
int compile_for(const Options& o) {
  const absl::StatusOr<codegen::Target> target = codegen::parse_target(o.target);
  if (!target.ok() || !target->is_gpu())
    throw Error("--target takes the architecture of a GPU, such as sm_90a, not '" + o.target + "'");
  const CompiledPtr program = compile({.function = read_function(o.file), .target = *target}, {}, {});
  std::size_t width = 0;
  const std::vector<aot::Kernel> kernels = shown_kernels(*program->executable(), {});
  for (const aot::Kernel& k : kernels) width = std::max(width, k.name.size());
  constexpr const char* kRow = "{:<{}}  {:>9} {:>7} {:>9} {:>7} {:>7} {:>7}\n";
  fmt::print(kRow, to_string(*target), width, "blocks", "threads", "registers", "shared", "stack", "spilled");
  for (const aot::Kernel& k : kernels)
    for (const aot::Function& f : k.functions)
      fmt::print(kRow, k.name, width, f.blocks, f.threads, f.registers, f.shared_bytes, f.stack_bytes, f.spilled_bytes);
  return 0;
}

int list_passes() {
  for (const std::span<const passes::Pass> list : {passes::pipeline_passes(), passes::transform_passes()})
    for (const passes::Pass& p : list)
      std::printf("%-10s %s\n", std::string(p.name).c_str(), std::string(p.doc).c_str());
  return 0;
}

int write_profile(const Options& o) {
  const std::string text = to_text(calibrate(o.devices));
  if (o.file.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  if (const std::string why = why_not_written(o.file, text); !why.empty()) throw RuntimeError(why);
  return 0;
}

int dispatch(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "cache") return cache_command({argv + 2, argv + argc});
  const Options o = parse_options(argc, argv);
  if (o.command == "opt") return opt(o);
  if (o.command == "run") return run(o);
  if (o.command == "compile") return compile_for(o);
  if (o.command == "calibrate") return write_profile(o);
  if (o.command == "gpus") {
    const GpuReport report = report_gpus();
    std::fputs(report.text.c_str(), stdout);
    return report.is_usable ? 0 : 1;
  }
  if (o.command == "passes") return list_passes();
  if (o.command == "ops") {
    std::fputs(ops_table().c_str(), stdout);
    return 0;
  }
  if (o.command == "--help" || o.command == "help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  throw Error("no command '" + o.command + "'; see sheaf --help");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("sheaf: out of memory\n", stderr);
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sheaf: %s\n", e.what());
    return 2;
  }
}
