// jit: one cache per function from signatures to traced programs. Finding a known signature compares type pointers with
// those of the last few; only another one is hashed, and a new one traced and compiled, once even if many threads bring
// it.
#include "sheaf/jit.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "ir/builder.h"
#include "ir/log.h"
#include "ir/op.h"
#include "runtime/cache.h"
#include "runtime/counters.h"
#include "trace/aot.h"
#include "trace/apply.h"
#include "trace/axes.h"
#include "trace/buckets.h"
#include "trace/mesh.h"
#include "trace/messages.h"
#include "trace/precision.h"
#include "trace/recompile.h"
#include "trace/recorder.h"
#include "trace/runnable.h"
#include "trace/trace_call.h"

namespace sheaf {

namespace {

std::atomic<std::int64_t> all_traces{0};

// One signature: what was traced for it, and the program once it has run.
struct Entry {
  std::vector<LeafType> types;
  std::string statics, around;  // around: surroundings_key()
  const void* cpp_types = nullptr;
  Precision precision = Precision::full;  // of products that do not say theirs
  Traced traced;
  std::vector<bool> donated;  // per parameter
  std::vector<bool> result_weak;
  std::vector<const Array*> captured;
  bool is_reusable = true;  // false: belongs to the trace it was made in
  std::shared_ptr<const Runnable> program = nullptr;
};
using EntryPtr = std::shared_ptr<const Entry>;

Array without_value(const ArrayNode& node) {
  auto like = ir::make_recycled<ArrayNode>();
  like->kind = ArrayNode::Kind::abstract;
  like->is_weak = node.is_weak;
  like->type = node.type;
  like->made_at = node.made_at;
  like->placement = node.placement;
  return Array(std::move(like));
}

}  // namespace

class detail::JitFunction {
 public:
  JitFunction(Identity identity, JitOptions options, OptionTexts texts, Loc loc)
      : options_(std::move(options)), texts_(std::move(texts)), loc_(loc), site_{identity, loc} {
    static std::atomic<std::int64_t> made{0};
    number_ = ++made;
    what_ = options_.name.empty() ? "jit" : "jit " + options_.name;
    name_ = options_.name.empty() ? name_from(loc) : options_.name;
    for (char& c : name_)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    if (!options_.buckets.empty()) bucketed_ = bucketed_calls();
  }

  const Structure& call(const FlatCall& call, Leaves& out) {
    if (bucketed_ && !Recorder::current()) return bucketed_->call(call, out);
    const EntryPtr entry = find(call);
    if (Recorder* r = Recorder::current()) stage(*r, *entry, call, out);
    else execute(*entry, call, out);
    if (entry->is_reusable) return entry->traced.structure;  // kept alive by entries_
    thread_local EntryPtr last;
    return (last = entry)->traced.structure;
  }

  EntryPtr find(const FlatCall& call) {
    for (const std::atomic<const Entry*>& one : recent_) {
      const Entry* entry = one.load(std::memory_order_acquire);
      if (entry && matches(*entry, call)) return EntryPtr(EntryPtr(), entry);  // never freed before this
    }
    return find_or_trace(call);
  }

  aot::detail::Ptr<aot::detail::Program> program(const FlatCall& call) {
    const EntryPtr e = find(call);
    if (!e->is_reusable || !e->around.empty())
      throw TypeError(loc_, fmt::format("{}: it uses values or a named axis of the trace around it, and so has no "
                                        "program of its own",
                                        what_));
    aot::detail::Program p{.what = what_,
                           .loc = loc_,
                           .types = e->types,
                           .arguments = call.arguments(),
                           .statics = e->statics,
                           .traced = e->traced,
                           .runnable = e->program,
                           .wishes = wishes(call, e->traced)};
    for (const Array* x : call.leaves()) p.likes.push_back(without_value(*x->node()));
    if (bucketed_) p.bucket = bucketed_->runnable(call, p.bucket_likes);
    return std::make_shared<const aot::detail::Program>(std::move(p));
  }

  std::vector<Recompilation> recompilations() const { return again_->list(); }
  std::int64_t count_traces() const { return traces_; }
  std::int64_t count_compiles() const {
    std::lock_guard lock(mutex_);
    std::vector<const Compiled*> programs;
    for (const EntryPtr& e : entries_) {
      for (const Compiled* p : e->program->programs())
        if (std::find(programs.begin(), programs.end(), p) == programs.end()) programs.push_back(p);
    }
    if (bucketed_)
      for (const Compiled* p : bucketed_->programs())
        if (std::find(programs.begin(), programs.end(), p) == programs.end()) programs.push_back(p);
    return static_cast<std::int64_t>(programs.size());
  }

 private:
  std::unique_ptr<BucketedCalls> bucketed_calls() {
    if (options_.mesh || !options_.in_shardings.empty() || !options_.out_shardings.empty())
      throw TypeError(loc_, fmt::format("{}: .buckets are for programs of one device: leave out .mesh, .in_shardings "
                                        "and .out_shardings",
                                        what_));
    return std::make_unique<BucketedCalls>(BucketedCalls::Options{.how = tracing(),
                                                                  .buckets = options_.buckets,
                                                                  .donate = options_.donate,
                                                                  .site = site_,
                                                                  .function = number_,
                                                                  .texts = texts_,
                                                                  .again = again_,
                                                                  .count_trace = [this] { count_trace(); }});
  }

  Tracing tracing() const {
    return {.what = what_, .name = name_, .args = options_.args, .loc = loc_, .precise = true, .is_kept = true};
  }
  void count_trace() {
    ++traces_;
    ++all_traces;
  }

  static bool matches(const Entry& e, const FlatCall& call) {
    const std::span<const Array* const> leaves = call.leaves();
    if (call.types() != e.cpp_types || leaves.size() != e.types.size() || call.statics() != e.statics ||
        !is_surroundings_key(e.around) || default_precision() != e.precision)
      return false;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const ArrayNode* node = leaves[i]->node().get();
      if (!node || node->type != e.types[i].type || node->is_weak != e.types[i].is_weak) return false;
    }
    return true;
  }

  EntryPtr find_or_trace(const FlatCall& call) {
    const std::vector<LeafType> types = leaf_types(call);
    std::string key = call.statics();
    key += surroundings_key();
    key += static_cast<char>(default_precision());
    const auto add = [&](const void* p) { key.append(reinterpret_cast<const char*>(&p), sizeof p); };
    add(call.types());
    for (const LeafType& t : types) {
      add(&t.type.data());
      key += t.is_weak ? 'w' : 's';
    }
    EntryPtr made;
    const auto entry = cache_.get_or_make(key, [&]() -> absl::StatusOr<EntryPtr> { return made = trace(call, types); });
    if (!entry.ok())
      throw RuntimeError(call.loc() ? call.loc() : loc_,
                         fmt::format("{}: {}", what_, std::string(entry.status().message())));
    if (!(*entry)->is_reusable) {
      cache_.erase(key);
      // Captured values of another trace, or of this one before: only the maker may use them.
      return made ? made : trace(call, types);
    }
    std::lock_guard lock(mutex_);
    if (made) entries_.push_back(made);
    recent_[next_recent_++ % recent_.size()].store(entry->get(), std::memory_order_release);
    return *entry;
  }

  EntryPtr trace(const FlatCall& call, const std::vector<LeafType>& types) {
    auto e = std::make_shared<Entry>();
    e->types = types;
    e->statics = call.statics();
    e->around = surroundings_key();
    e->cpp_types = call.types();
    e->precision = default_precision();
    e->donated = donated_leaves(call);
    e->traced = trace_call(call, tracing(), types);
    count_trace();
    const std::vector<KeyChange> changes = note_why(call, types);
    if (std::find(e->donated.begin(), e->donated.end(), true) == e->donated.end()) e->donated.clear();
    else e->donated.resize(e->traced.function->params().size(), false);
    for (const LeafType& r : e->traced.results) e->result_weak.push_back(r.is_weak);
    for (const Array& c : e->traced.captured) {
      e->captured.push_back(&c);
      e->is_reusable &= c.node()->kind != ArrayNode::Kind::traced;
    }
    e->program =
        std::make_shared<const Runnable>(e->traced.function, RunnableOptions{.what = what_,
                                                                             .arguments = types.size(),
                                                                             .donated = e->donated,
                                                                             .weak = e->result_weak,
                                                                             .wishes = wishes(call, e->traced),
                                                                             .places = leaf_places(call, options_.args),
                                                                             .site = site_,
                                                                             .changes = changes,
                                                                             .again = again_});
    return e;
  }

  MeshWishes wishes(const FlatCall& call, const Traced& t) const {
    MeshWishes w{.mesh = options_.mesh, .limits = options_.limits};
    const std::vector<Argument> arguments = call.arguments();
    const std::vector<Specs>& in = options_.in_shardings;
    if (!in.empty() && in.size() != arguments.size())
      throw TypeError(loc_, fmt::format("{}: {} in_shardings for {} arguments", what_, in.size(), arguments.size()));
    for (std::size_t k = 0; k < in.size(); ++k)
      for (PartitionSpec& spec : leaf_specs(what_, in[k], arguments[k].paths, fmt::format("argument {}", k), loc_))
        w.in.emplace_back(std::move(spec));
    if (options_.out_shardings.empty()) return w;
    for (PartitionSpec& spec : result_specs(t.structure.paths)) w.out.emplace_back(std::move(spec));
    for (const std::string& path : t.structure.paths)
      w.result_names.push_back(path.empty() ? "the result" : "result " + path);
    return w;
  }

  // Of several elements each has the leaves whose paths begin with its number.
  std::vector<PartitionSpec> result_specs(const std::vector<std::string>& paths) const {
    const std::vector<Specs>& out = options_.out_shardings;
    if (out.size() == 1) return leaf_specs(what_, out[0], paths, "the result", loc_);
    std::vector<PartitionSpec> all;
    for (std::size_t k = 0; k < out.size(); ++k) {
      const std::string number = fmt::format("[{}]", k);
      std::vector<std::string> own;
      for (const std::string& path : paths)
        if (path.starts_with(number)) own.push_back(path.substr(number.size()));
      for (PartitionSpec& spec : leaf_specs(what_, out[k], own, "result " + number, loc_))
        all.push_back(std::move(spec));
    }
    if (all.size() != paths.size())
      throw TypeError(loc_, fmt::format("{}: {} out_shardings, and the result has other elements", what_, out.size()));
    return all;
  }

  std::vector<bool> donated_leaves(const FlatCall& call) const {
    std::vector<bool> donated;
    const std::span<const std::size_t> counts = call.leaf_counts();
    for (const int d : options_.donate)
      if (d < 0 || d >= static_cast<int>(counts.size()))
        throw TypeError(loc_, fmt::format("{}: donate lists argument {}, and there are {}", what_, d, counts.size()));
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const bool d =
          std::find(options_.donate.begin(), options_.donate.end(), static_cast<int>(k)) != options_.donate.end();
      donated.insert(donated.end(), counts[k], d);
    }
    return donated;
  }

  // Which part of the key is new, for SHEAF_LOG=cache and why_recompiled.
  std::vector<KeyChange> note_why(const FlatCall& call, const std::vector<LeafType>& types) const {
    const Signature signature{
        types, call.statics(), surroundings_key(), call.types(), default_precision(), call.arguments(), options_.args};
    std::vector<KeyChange> changes = note_trace(what_, site_, number_, texts_, signature);
    ir::log(ir::LogTopic::cache, "{} at {} is traced: {}", what_, to_string(loc_),
            changes.empty() ? "first call" : to_string(changes));
    if (!changes.empty()) again_->add({.called_at = call.loc() ? call.loc() : loc_, .changes = changes});
    return changes;
  }

  void execute(const Entry& e, const FlatCall& call, Leaves& out) const {
    const Loc loc = call.loc() ? call.loc() : loc_;
    if (e.captured.empty()) return e.program->run(call.leaves(), {}, loc, out);
    std::vector<const Array*> inputs(call.leaves().begin(), call.leaves().end());
    inputs.insert(inputs.end(), e.captured.begin(), e.captured.end());
    e.program->run(inputs, {}, loc, out);
  }

  // Inside another trace: a call of the same Function, so that transforms treat equal calls once. Where arguments and
  // results are wanted becomes constraints around it.
  void stage(Recorder& r, const Entry& e, const FlatCall& call, Leaves& out) const {
    const Loc loc = UserLine::or_own(call.loc() ? call.loc() : loc_);
    e.program->check_can_be_part(Recorder::outermost()->info(), loc);
    if (const Mesh& mesh = e.program->named_mesh()) note_mesh(mesh, what_, loc);
    std::vector<Array> inputs = inputs_of(call, e.traced);
    e.program->constrain_inputs(inputs, loc);
    std::vector<Array> results =
        options_.inlined ? apply_function(e.traced.function, inputs, loc) : staged_call(r, e, inputs, loc);
    e.program->constrain_results(results, loc);
    for (Array& x : results) out.push_back(std::move(x));
  }

  static std::vector<Array> staged_call(Recorder& r, const Entry& e, std::span<const Array> inputs, Loc loc) {
    const ir::FunctionRef& f = e.traced.function;
    r.builder().set_loc(loc);
    ir::Values args;
    for (std::size_t i = 0; i < inputs.size(); ++i) args.push_back(r.lift(inputs[i], loc, f->params()[i].dtype()));
    const ir::Values results = r.builder().emit_all(&ir::ops::call, std::move(args), nullptr, {f});
    std::vector<Array> out;
    for (std::size_t j = 0; j < results.size(); ++j) out.push_back(r.wrap(results[j], e.result_weak[j], loc));
    return out;
  }

  JitOptions options_;
  OptionTexts texts_;
  Loc loc_;
  FunctionSite site_;
  std::int64_t number_ = 0;  // among all there have been
  std::shared_ptr<Recompilations> again_ = std::make_shared<Recompilations>();
  std::unique_ptr<BucketedCalls> bucketed_;  // null: there are none
  std::string what_, name_;
  std::atomic<std::int64_t> traces_{0};
  std::array<std::atomic<const Entry*>, 4> recent_{};  // that calls have come to; of more, who comes is hashed
  runtime::SingleFlightMap<std::string, EntryPtr> cache_;
  mutable std::mutex mutex_;  // guards what follows
  std::size_t next_recent_ = 0;
  std::vector<EntryPtr> entries_;  // all that can be reused, for ever
};

namespace detail {
namespace {

// Functions known by identity, shared by every jit of the same lambda on the same line.
struct IdentityKey {
  const void *type, *address;
  std::string file, options;
  int line;
  bool operator==(const IdentityKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const IdentityKey& k) {
    return H::combine(std::move(h), k.type, k.address, k.file, k.options, k.line);
  }
};

std::string buckets_text(const std::vector<Buckets>& buckets) {
  std::string s;
  for (const Buckets& b : buckets) {
    s += fmt::format("{}[{}] for", s.empty() ? "" : "; ", fmt::join(b.sizes, ", "));
    for (const Buckets::Dim& d : b.dims) s += fmt::format(" dim {} of argument {}", d.dim, d.argument);
  }
  return s;
}

OptionTexts option_texts(const JitOptions& o) {
  const auto specs_text = [](const std::vector<Specs>& list) {
    std::string s;
    for (const Specs& specs : list) s += (s.empty() ? "" : "; ") + to_string(specs);
    return s;
  };
  return {{"name", o.name},
          {"args", fmt::format("{}", fmt::join(o.args, ", "))},
          {"donate", fmt::format("[{}]", fmt::join(o.donate, ", "))},
          {"inlined", o.inlined ? "true" : "false"},
          {"mesh", o.mesh ? text_with_devices(o.mesh) : "none"},
          {"in_shardings", specs_text(o.in_shardings)},
          {"out_shardings", specs_text(o.out_shardings)},
          {"limits", limits_text(o.limits)},
          {"buckets", buckets_text(o.buckets)}};
}

std::string joined(const OptionTexts& texts) {
  std::string s;
  for (const auto& [name, text] : texts) s += fmt::format("{}={}\n", name, text);
  return s;
}

}  // namespace

std::shared_ptr<JitFunction> make_jit(Identity identity, JitOptions options, Loc loc) {
  OptionTexts texts = option_texts(options);
  if (identity.is_object) return std::make_shared<JitFunction>(identity, std::move(options), std::move(texts), loc);
  static auto& mutex = *new std::mutex;
  static auto& known = *new absl::flat_hash_map<IdentityKey, std::shared_ptr<JitFunction>>;
  const IdentityKey key{identity.type, identity.address, loc.file ? loc.file : "", joined(texts), loc.line};
  std::lock_guard lock(mutex);
  std::shared_ptr<JitFunction>& f = known[key];
  if (!f) f = std::make_shared<JitFunction>(identity, std::move(options), std::move(texts), loc);
  return f;
}

const Structure& call_jit(JitFunction& f, const FlatCall& call, Leaves& out) { return f.call(call, out); }
std::int64_t count_compiles(const JitFunction& f) { return f.count_compiles(); }
std::int64_t count_traces(const JitFunction& f) { return f.count_traces(); }
std::vector<Recompilation> recompilations(const JitFunction& f) { return f.recompilations(); }
aot::detail::Ptr<aot::detail::Program> trace_jit(JitFunction& f, const FlatCall& call) { return f.program(call); }

std::vector<Array> abstract_call(const FlatCall& call, Structure& result) {
  Traced t = trace_call(call, {.what = "eval_shape", .name = "eval_shape", .loc = call.loc()}, leaf_types(call));
  result = std::move(t.structure);
  std::vector<Array> leaves;
  for (const LeafType& r : t.results) leaves.push_back(abstract(r.type.dims(), r.type.dtype(), call.loc()));
  return leaves;
}

}  // namespace detail

Array abstract(const Shape& shape, DType dtype, Loc loc) {
  check_shape("abstract", shape, loc);
  auto node = ir::make_recycled<ArrayNode>();
  node->kind = ArrayNode::Kind::abstract;
  node->type = ir::Type(dtype, shape);
  node->made_at = loc;
  return Array(std::move(node));
}

Stats stats() {
  const runtime::Counters& c = runtime::counters();
  return {.traces = all_traces,
          .programs = programs_loaded(),
          .kernels_compiled = c.kernels_compiled,
          .kernels_loaded = c.kernels_loaded,
          .executions = c.executions,
          .launches = c.launches,
          .interpreted_launches = c.interpreted_launches};
}

}  // namespace sheaf
