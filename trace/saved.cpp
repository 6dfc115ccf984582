// A compiled program as one file: a line with the version, one with the fingerprint and the length of the rest, then
// fields: what a call is checked against, the traced program, its plan, captured arrays, and the machine code of its
// kernels. Loading builds what jit would have built, and finds all code in the file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>

#include "codegen/cpu_target.h"
#include "codegen/fingerprint.h"
#include "codegen/target.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/words.h"
#include "runtime/device.h"
#include "runtime/disk_cache.h"
#include "runtime/kernel_files.h"
#include "runtime/private_file.h"
#include "sheaf/load.h"
#include "trace/aot.h"
#include "trace/program_text.h"
#include "trace/text_file.h"

namespace sheaf::aot::detail {

struct CapturedArray {
  ir::Type type;
  bool is_weak = false;
  std::string lies;
  std::string bytes;
};

struct Saved {
  std::string name;  // of the file
  Program program;   // but its runnable, its structure and what it captures
  ProgramSource source;
  Mesh wished_mesh;
  passes::Plan plan;
  std::vector<std::string> in;  // how inputs lie
  std::vector<CapturedArray> captured;
  std::vector<runtime::KernelFile> code;
  std::string result_statics;
  std::vector<std::string> result_paths;
};

namespace {

constexpr std::string_view kFirstLine = "sheaf program 1\n";

// ---- Writing ----

class Writer {
 public:
  void field(std::string_view name, std::string_view value) { text_ += fmt::format("{}: {}\n", name, value); }
  void count(std::string_view name, std::size_t n) { field(name, fmt::format("{}", n)); }
  void bytes(std::string_view name, std::string_view value) {
    count(name, value.size());
    text_ += value;
    text_ += '\n';
  }
  void types(std::string_view name, const std::vector<ir::Type>& types) {
    count(name, types.size());
    for (const ir::Type t : types) field("type", ir::to_string(t));
  }
  std::string sealed() const {
    return fmt::format("{}{} {}\n{}", kFirstLine, codegen::fingerprint(text_), text_.size(), text_);
  }

 private:
  std::string text_;
};

// "anywhere", "on 3", or the type with the axes of the program's mesh.
std::string lies_field(const Placement* p, ir::Type type) {
  if (!p) return "anywhere";
  if (!p->is_on_mesh()) return fmt::format("on {}", p->mesh.devices()[0].id);
  return ir::to_string(ir::with_sharding(type, p->atoms(), p->layout));
}

std::string specs_field(const std::vector<std::optional<PartitionSpec>>& specs) {
  std::vector<std::string> texts;
  for (const auto& s : specs)
    texts.push_back(s ? fmt::format("({})", ir::to_text(ir_spec(*s, static_cast<int>(s->dims.size())))) : "any");
  return fmt::format("{}", fmt::join(texts, " "));
}

void write_captured(Writer& out, const Program& p, Loc loc) {
  out.count("captured", p.traced.captured.size());
  for (std::size_t c = 0; c < p.traced.captured.size(); ++c) {
    const Array& x = p.traced.captured[c];
    const ArrayNode& node = *x.node();
    const ir::Type type = p.traced.function->params()[p.types.size() + c].type();  // a C++ number has another itself
    const runtime::BufferPtr whole = node.placement ? gathered(node, loc) : buffer_of(x, type, loc);
    std::string bytes(static_cast<std::size_t>(whole->bytes()), '\0');
    check(whole->to_host(std::as_writable_bytes(std::span(bytes))), loc);
    out.field("type", ir::to_string(type));
    out.field("weak", node.is_weak ? "1" : "0");
    out.field("lies", lies_field(node.placement, type));
    out.bytes("bytes", bytes);
  }
}

void write_plan(Writer& out, const passes::Plan& plan) {
  out.bytes("plan", ir::print(plan.function, {.locs = true}));
  out.bytes("optimised", ir::print(plan.optimised, {.locs = true}));
  out.count("arena", static_cast<std::size_t>(plan.arena_bytes));
  out.field("alias", fmt::format("{}", fmt::join(plan.alias, " ")));
  out.count("not taken", plan.not_taken.size());
  for (const passes::NotTaken& x : plan.not_taken)
    out.field("donation", fmt::format("{} {} {} {}", x.param, static_cast<int>(x.why), x.result, loc_field(x.reader)));
  out.types("inputs of the mesh", plan.in_types);
  out.types("results of the mesh", plan.out_types);
}

void write_signature(Writer& out, const Program& p) {
  out.field("what", line_text(p.what));
  out.field("at", loc_field(p.loc));
  out.count("arguments", p.arguments.size());
  std::size_t leaf = 0;
  for (const sheaf::detail::Argument& a : p.arguments) {
    out.field("static", line_text(a.text));
    out.count("leaves", a.paths.size());
    for (const std::string& path : a.paths) {
      out.field("path", line_text(path));
      out.field("type", ir::to_string(p.types[leaf].type));
      out.field("weak", p.types[leaf].is_weak ? "1" : "0");
      ++leaf;
    }
  }
  out.bytes("statics", p.statics);
  out.count("results", p.traced.results.size());
  for (std::size_t j = 0; j < p.traced.results.size(); ++j) {
    out.field("path", line_text(p.traced.structure.paths[j]));
    out.field("type", ir::to_string(p.traced.results[j].type));
    out.field("weak", p.traced.results[j].is_weak ? "1" : "0");
  }
  out.bytes("statics of the results", p.traced.structure.statics);
}

// The function of the host that it calls; null: none.
const ir::Eqn* host_call(const ir::Function& f) {
  for (const ir::Eqn* e : f.eqns()) {
    if (e->op == &ir::ops::callback) return e;
    for (const ir::FunctionRef& r : e->regions)
      if (const ir::Eqn* inner = host_call(*r)) return inner;
  }
  return nullptr;
}

std::string text_of(const Code& c, Loc loc) {
  const Lowering& l = *c.lowering;
  const Program& p = *l.program;
  if (const ir::Eqn* e = host_call(*p.traced.function))
    throw TypeError(loc, fmt::format("serialize: {} calls a function of this process at {}, which a file cannot hold",
                                     p.what, to_string(e->loc)));
  const runtime::ExecutablePtr executable = c.compiled->executable();
  if (!executable) throw TypeError(loc, fmt::format("serialize: {}: the interpreter runs it, and has no code", p.what));
  Writer out;
  out.field("key", line_text(codegen::key_of(l.planned.program.target)));
  write_signature(out, p);
  out.bytes("traced", ir::print(p.traced.function, {.locs = true}));
  out.bytes("program", to_text(ProgramSource{l.planned.program, l.planned.donated, p.what, p.loc}));
  out.field("in", specs_field(p.wishes.in));
  out.field("out", specs_field(p.wishes.out));
  out.count("inputs", l.in.size());
  for (std::size_t i = 0; i < l.in.size(); ++i)
    out.field("lies", lies_field(l.in[i], p.traced.function->params()[i].type()));
  write_plan(out, l.planned.plan);
  write_captured(out, p, loc);
  const auto code = runtime::kernel_files(executable->kernels());
  check(code.status(), loc);
  out.count("files", code->size());
  for (const runtime::KernelFile& file : *code) {
    out.field("file", file.kind + " " + file.key);
    out.bytes("bytes", file.bytes);
  }
  return out.sealed();
}

// ---- Reading ----

class Reader : public FieldReader {
 public:
  using FieldReader::FieldReader;
  std::size_t count(std::string_view name) {
    const std::optional<std::int64_t> n = ir::parse_int(take(name));
    if (n && *n >= 0 && *n <= std::ssize(rest())) return static_cast<std::size_t>(*n);
    fail(fmt::format("{}: no number that can be", name));
    return 0;
  }
  std::string bytes(std::string_view name) {
    const std::size_t n = count(name);
    return std::string(take_bytes(n));
  }
  ir::Type type() {
    const absl::StatusOr<ir::Type> t = ir::parse_type(take("type"));
    if (!t.ok()) fail(std::string(t.status().message()));
    return t.value_or(ir::Type(DType::f32, {}));
  }
  LeafType leaf() {
    const ir::Type t = type();
    return {t, take("weak") == "1"};
  }
  ir::FunctionRef function(std::string_view name) {
    const absl::StatusOr<ir::Module> module = ir::parse(bytes(name));
    if (module.ok() && !module->functions.empty()) return module->functions[0];
    fail(fmt::format("{}: {}", name, module.ok() ? "no function" : std::string(module.status().message())));
    return nullptr;
  }
  passes::NotTaken donation() {
    const std::string text = take("donation");
    const std::vector<std::string_view> words = ir::split(text, ' ');
    const auto number = [&](std::size_t i) {
      return static_cast<int>(i < words.size() ? ir::parse_int(words[i]).value_or(0) : 0);
    };
    passes::NotTaken x;
    x.param = number(0);
    x.why = static_cast<passes::NotTaken::Why>(number(1));
    x.result = number(2);
    if (words.size() > 3) x.reader = parse_loc_field(words[3]);
    return x;
  }
  std::vector<ir::Type> types(std::string_view name) {
    std::vector<ir::Type> all;
    for (std::size_t n = count(name); n > 0 && status().ok(); --n) all.push_back(type());
    return all;
  }
  std::vector<std::optional<PartitionSpec>> specs(std::string_view name) {
    std::vector<std::optional<PartitionSpec>> all;
    for (const std::string_view word : words_of(take(name))) {
      if (word == "any") {
        all.emplace_back();
        continue;
      }
      const auto spec =
          word.size() < 2 ? absl::InvalidArgumentError("no spec") : ir::parse_spec(word.substr(1, word.size() - 2));
      if (!spec.ok()) fail(fmt::format("{}: {}", name, std::string(spec.status().message())));
      PartitionSpec one;
      for (const ir::DimSpec& d : spec.value_or(ir::Spec())) {
        one.dims.emplace_back(d.axes);
        one.dims.back().is_open = d.open;
      }
      all.emplace_back(std::move(one));
    }
    return all;
  }

 private:
  std::vector<std::string_view> words_of(std::string text) {
    kept_.push_back(std::move(text));
    return ir::split(kept_.back(), ' ');
  }
  std::deque<std::string> kept_;
};

void read_signature(Reader& in, Saved& s) {
  Program& p = s.program;
  p.what = text_of_line(in.take("what"));
  p.loc = parse_loc_field(in.take("at"));
  for (std::size_t k = in.count("arguments"); k > 0 && in.status().ok(); --k) {
    sheaf::detail::Argument& a = p.arguments.emplace_back();
    a.text = text_of_line(in.take("static"));
    for (std::size_t i = in.count("leaves"); i > 0 && in.status().ok(); --i) {
      a.paths.push_back(text_of_line(in.take("path")));
      p.types.push_back(in.leaf());
    }
  }
  p.statics = in.bytes("statics");
  for (std::size_t j = in.count("results"); j > 0 && in.status().ok(); --j) {
    s.result_paths.push_back(text_of_line(in.take("path")));
    p.traced.results.push_back(in.leaf());
  }
  s.result_statics = in.bytes("statics of the results");
}

void read_plan(Reader& in, passes::Plan& plan) {
  plan.function = in.function("plan");
  plan.optimised = in.function("optimised");
  plan.arena_bytes = ir::parse_int(in.take("arena")).value_or(-1);
  const std::string alias = in.take("alias");
  for (const std::string_view word : ir::split(alias, ' '))
    plan.alias.push_back(static_cast<int>(ir::parse_int(word).value_or(-1)));
  for (std::size_t i = in.count("not taken"); i > 0 && in.status().ok(); --i) plan.not_taken.push_back(in.donation());
  plan.in_types = in.types("inputs of the mesh");
  plan.out_types = in.types("results of the mesh");
}

absl::Status read_all(Reader& in, Saved& s) {
  read_signature(in, s);
  s.program.traced.function = in.function("traced");
  const std::string program = in.bytes("program");
  if (!in.status().ok()) return in.status();
  absl::StatusOr<ProgramSource> source = parse_program(program);
  if (!source.ok()) return source.status();
  s.source = *std::move(source);
  s.plan.target = s.source.program.target;
  s.program.wishes.in = in.specs("in");
  s.program.wishes.out = in.specs("out");
  for (std::size_t i = in.count("inputs"); i > 0 && in.status().ok(); --i) s.in.push_back(in.take("lies"));
  read_plan(in, s.plan);
  for (std::size_t i = in.count("captured"); i > 0 && in.status().ok(); --i) {
    const LeafType leaf = in.leaf();
    CapturedArray x{leaf.type, leaf.is_weak, in.take("lies"), ""};
    x.bytes = in.bytes("bytes");
    if (std::ssize(x.bytes) != x.type.bytes()) in.fail("a captured array has other bytes than its type");
    s.captured.push_back(std::move(x));
  }
  for (std::size_t i = in.count("files"); i > 0 && in.status().ok(); --i) {
    const std::string file = in.take("file");
    const std::size_t space = file.find(' ');
    s.code.push_back({file.substr(0, space), space == file.npos ? "" : file.substr(space + 1), in.bytes("bytes")});
  }
  if (in.status().ok() && !in.rest().empty()) in.fail("there is more behind its end");
  if (!in.status().ok()) return in.status();
  const std::size_t params = s.program.traced.function->params().size();
  if (s.in.size() != params || s.program.types.size() + s.captured.size() != params ||
      s.program.traced.results.size() != s.program.traced.function->results().size())
    return absl::InvalidArgumentError("its parts do not fit together");
  return absl::OkStatus();
}

const Placement* placement_from(const std::string& lies, const Mesh& mesh, int rank, const std::string& what, Loc loc) {
  if (lies == "anywhere") return nullptr;
  if (lies.starts_with("on ")) {
    const Device device{static_cast<int>(ir::parse_int(lies.substr(3)).value_or(-1))};
    check_is_there(what, device, loc);
    return placement_on(device, rank);
  }
  const absl::StatusOr<ir::Type> type = ir::parse_type(lies);
  if (!type.ok() || !mesh) throw RuntimeError(loc, fmt::format("{}: '{}' is no place", what, lies));
  return placement_of(mesh, ir::sharding_of(*type, atoms_of(mesh)));
}

Array array_of(const CapturedArray& x, const Placement* placement, Loc loc) {
  auto buffer = runtime::Buffer::from_host(runtime::device(0), std::as_bytes(std::span(x.bytes)), loc);
  check(buffer.status(), loc);
  Array whole = concrete(*std::move(buffer), x.type, x.is_weak, loc);
  if (!placement) return whole;
  return placed(placement, moved(whole, x.type, placement, loc), x.type, x.is_weak, loc);
}

bool has_code(const Saved& s, const codegen::KernelCode& kernel) {
  const std::string kind = kernel.target.is_gpu() ? "kernel" : "object";
  return std::ranges::any_of(s.code, [&](const auto& file) { return file.kind == kind && file.key == kernel.key; });
}

// What this process has where the key has that.
std::string own_key(std::string_view key) {
  const std::vector<std::string_view> words = ir::split(key, ' ');
  const bool is_for_gpu = words.size() > 1 && words[0] == "cuda";
  const absl::StatusOr<codegen::Target> target = codegen::parse_target(is_for_gpu ? words[1] : "cpu");
  return target.ok() ? codegen::key_of(*target) : codegen::key_of({});
}

// "its CPU is x86-64-v4, and here it is x86-64-v3: save it again with SHEAF_CPU_ISA=x86-64-v3": what is not the same,
// and what helps where the CPU is all. A key for one is a line for the compiler and one for the CPU, whose level comes
// first; a level that is named comes without features, and the names of levels sort as they grow.
std::string differences(std::string_view key, std::string_view own) {
  const auto told = [](std::string_view what, std::string_view was, std::string_view is) {
    return fmt::format("its {} is {}, and here it is {}", what, line_text(was), line_text(is));
  };
  if (key.starts_with("cuda ") || own.starts_with("cuda ")) return told("code for GPUs", key, own);
  const std::vector<std::string_view> was = ir::split(key, '\n'), is = ir::split(own, '\n');
  if (was.size() != 2 || is.size() != 2) return told("code", key, own);
  if (was[0] != is[0]) {
    const std::string compiler = told("compiler", was[0], is[0]);
    return was[1] == is[1] ? compiler : compiler + "; " + told("CPU", was[1], is[1]);
  }
  const auto level = [](std::string_view cpu) { return cpu.substr(0, cpu.find('+')); };
  const std::string_view both = std::min(level(was[1]), level(is[1]));
  const std::string cpu = told("CPU", was[1], is[1]);
  if (!codegen::cpu_target(both).ok()) return cpu;
  const char* remedy = was[1] == both ? "load it" : is[1] == both ? "save it again" : "save it again and load it";
  return fmt::format("{}: {} with SHEAF_CPU_ISA={}", cpu, remedy, both);
}

}  // namespace

std::vector<std::byte> serialize(const Code& c, Loc loc) {
  const std::string text = text_of(c, loc);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void save(const Code& c, const std::string& path, Loc loc) {
  const absl::Status status = runtime::write_whole_file(path, text_of(c, loc), 0644);
  if (!status.ok()) throw RuntimeError(loc, fmt::format("save: {}: {}", path, std::string(status.message())));
}

std::vector<std::byte> read_file(const std::string& path, Loc loc) {
  const absl::StatusOr<std::string> text = contents_of(path);
  if (!text.ok()) throw RuntimeError(loc, fmt::format("load: {}: {}", path, std::string(text.status().message())));
  const auto bytes = std::as_bytes(std::span(*text));
  return {bytes.begin(), bytes.end()};
}

Ptr<Saved> read_saved(std::span<const std::byte> bytes, const std::string& name, std::size_t arguments, Loc loc) {
  const auto fail = [&](const std::string& why) { throw RuntimeError(loc, fmt::format("load: {}: {}", name, why)); };
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kFirstLine))
    fail(fmt::format("is no compiled program, or of another version: it begins with '{}' and not with '{}'",
                     line_text(text.substr(0, std::min<std::size_t>(text.find('\n'), 40))),
                     kFirstLine.substr(0, kFirstLine.size() - 1)));
  text.remove_prefix(kFirstLine.size());
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line != fmt::format("{} {}", codegen::fingerprint(text), text.size()))
    fail("it is damaged: its fingerprint is another one");
  auto saved = std::make_shared<Saved>();
  saved->name = name;
  Reader in(text);
  const std::string key = text_of_line(in.take("key")), own = own_key(key);
  if (key != own)  // before the rest, which another version may write in another way
    fail("it was compiled by another version of Sheaf or for another machine: " + differences(key, own));
  const absl::Status status = read_all(in, *saved);
  if (!status.ok()) fail(std::string(status.message()));
  if (saved->program.arguments.size() != arguments)
    throw TypeError(loc, fmt::format("load: {}: {} takes {} arguments, and the signature has {}", name,
                                     saved->program.what, saved->program.arguments.size(), arguments));
  return saved;
}

std::string_view result_statics(const Saved& s) { return s.result_statics; }
std::size_t result_leaves(const Saved& s) { return s.result_paths.size(); }

Ptr<Code> load_saved(const Ptr<Saved>& s, sheaf::detail::Structure tree, Loc loc) {
  if (!tree.tree || tree.paths != s->result_paths)
    throw TypeError(loc, fmt::format("load: {}: the result of {} has other leaves than the signature's: [{}]", s->name,
                                     s->program.what, fmt::join(s->result_paths, ", ")));
  const MeshProgram& mesh_program = s->source.program;
  const Mesh& mesh = mesh_program.mesh;
  if (mesh && mesh.is_abstract())
    throw ShardingError(loc, fmt::format("load: {}: {} runs on devices of the mesh {} that are not here", s->name,
                                         s->program.what, to_string(mesh)));
  const std::vector<Device> devices = mesh ? mesh.devices() : std::vector<Device>{{}};
  for (const Device d : devices)
    if (const codegen::Target own = runtime::device(d.id).backend().target(); own != mesh_program.target)
      throw RuntimeError(loc,
                         fmt::format("load: {}: {} was compiled for {}, and {} is one of {}", s->name, s->program.what,
                                     to_string(mesh_program.target), to_string(d), to_string(own)));
  for (const runtime::KernelFile& file : s->code)
    runtime::DiskCache::global().carry(file.kind, file.key, file.bytes, s->name);
  auto p = std::make_shared<Program>(s->program);
  p->traced.structure = std::move(tree);
  std::vector<const Placement*> in;
  for (std::size_t i = 0; i < s->in.size(); ++i) {
    const ir::Type type = p->traced.function->params()[i].type();
    in.push_back(placement_from(s->in[i], mesh, type.rank(), "load: " + s->name, loc));
    if (i < p->types.size()) continue;
    const CapturedArray& x = s->captured[i - p->types.size()];
    const Placement* place = placement_from(x.lies, mesh, type.rank(), "load: " + s->name, loc);
    p->traced.captured.push_back(array_of(x, place, loc));
  }
  p->wishes.mesh = mesh;
  if (!p->wishes.out.empty())
    for (const std::string& path : s->result_paths)
      p->wishes.result_names.push_back(path.empty() ? "the result" : "result " + path);
  std::vector<bool> weak;
  for (const LeafType& r : p->traced.results) weak.push_back(r.is_weak);
  p->runnable = std::make_shared<const Runnable>(p->traced.function, RunnableOptions{.what = p->what,
                                                                                     .arguments = p->types.size(),
                                                                                     .donated = s->source.donated,
                                                                                     .weak = std::move(weak),
                                                                                     .wishes = p->wishes});
  const sheaf::Lowered lowered = sheaf::lower(Planned{
      .program = mesh_program, .donated = s->source.donated, .plan = s->plan, .dump = Dump(mesh_program.function)});
  for (const codegen::KernelCode& kernel : lowered.code.kernels)
    if (!has_code(*s, kernel))
      throw RuntimeError(loc, fmt::format("load: {}: it lacks the code of kernel {}", s->name, kernel.name));
  CompiledPtr compiled = sheaf::compile(lowered, {.what = p->what, .loc = loc, .is_loaded = true});
  if (const runtime::ExecutablePtr e = compiled->executable())
    for (const Device d : devices) check(e->warm(runtime::device(d.id)), loc);
  auto lowering = std::make_shared<const Lowering>(Lowering{std::move(p), lowered.planned, std::move(in)});
  return std::make_shared<const Code>(Code{std::move(lowering), std::move(compiled)});
}

}  // namespace sheaf::aot::detail
