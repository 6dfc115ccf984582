// A walk in execution order that knows which values are defined and which loops are open. Invariant: leaving a block
// undefines what it defined, so a use outside the defining block is an error.
#include "codegen/kir/verify.h"

#include <fmt/format.h>

#include <algorithm>

namespace sheaf::kir {
namespace {

using ir::ScalarOp;

class Verifier {
 public:
  Verifier(const Kernel& kernel, const Phase& phase)
      : kernel_(kernel), phase_(phase), defined_(phase.values.size(), 0), open_(phase.axes.size(), 0) {}

  std::string error;

  void check() {
    require(!phase_.axes.empty(), "a phase needs its unit axis");
    if (!error.empty()) return;
    open_[0] = 1;
    block(phase_.body);
  }

 private:
  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds && error.empty()) error = fmt::format(format, std::forward<Args>(args)...);
  }

  void block(const Block& b) {
    const std::vector<char> before = defined_;
    for (const Stmt& s : b) {
      std::visit([&](const auto& node) { statement(node); },
                 static_cast<const std::variant<Let, Assign, Store, For, LaneReduce, If, Barrier>&>(s));
      if (!error.empty()) return;
    }
    defined_ = before;
  }

  bool use(ValueId v) {
    const bool ok = v >= 0 && v < static_cast<int>(defined_.size()) && defined_[v];
    require(ok, "v{} is used before it is defined, or outside its block", v);
    return ok;
  }
  void use(ValueId v, DType dtype) {
    if (use(v)) require(phase_.values[v] == dtype, "v{} is {}, not {}", v, name(phase_.values[v]), name(dtype));
  }
  void define(ValueId v) {
    require(v >= 0 && v < static_cast<int>(defined_.size()) && !defined_[v], "v{} is defined twice or unknown", v);
    if (error.empty()) defined_[v] = 1;
  }
  void index(Index i) {
    require(i.node >= 0, "missing index");
    if (!error.empty()) return;
    for (const Term& t : phase_.indices.terms(i)) {
      const Atom& a = phase_.indices.atom(t.atom);
      switch (a.kind) {
        case Atom::Kind::axis: require(open_[a.id], "an index uses axis {} outside its loop", a.id); break;
        case Atom::Kind::value: use(a.id, DType::i64); break;
        case Atom::Kind::floor_div:
        case Atom::Kind::mod: index(a.operand); break;
      }
    }
  }
  const DType* buffer(BufferId id) {
    const int params = static_cast<int>(kernel_.params.size());
    const int all = params + static_cast<int>(phase_.scratch.size());
    require(id >= 0 && id < all, "buffer p{} does not exist", id);
    if (!error.empty()) return nullptr;
    return id < params ? &kernel_.params[id].dtype : &phase_.scratch[id - params].dtype;
  }
  void local(LocalId id) {
    require(id >= 0 && id < static_cast<int>(phase_.locals.size()), "local l{} does not exist", id);
    if (!error.empty() || phase_.locals[id].lanes == 1) return;
    require(vector_extent_ > 0 && vector_extent_ <= kLanes, "lane local l{} outside a vector loop of <= {}", id,
            kLanes);
  }

  void expression(ValueId v, const Scalar& s) {
    const int count = ir::arity(s.op);
    for (int i = 0; i < count; ++i) use(s.in[i]);
    if (!error.empty()) return;
    const DType result = phase_.values[v];
    const bool is_comparison = s.op >= ScalarOp::eq && s.op <= ScalarOp::ge;
    if (s.op == ScalarOp::convert) return;
    if (s.op == ScalarOp::bitcast) {
      require(size_bytes(phase_.values[s.in[0]]) == size_bytes(result), "v{}: bitcast changes the size", v);
      return;
    }
    const int first = s.op == ScalarOp::select ? 1 : 0;
    if (first == 1) use(s.in[0], DType::bool_);
    for (int i = first + 1; i < count; ++i) use(s.in[i], phase_.values[s.in[first]]);
    require(result == (is_comparison ? DType::bool_ : phase_.values[s.in[first]]), "v{}: {} yields another dtype", v,
            ir::name(s.op));
    require(result != DType::f16 && result != DType::bf16, "v{}: {} computes in a half type", v, ir::name(s.op));
  }
  void expression(ValueId, const Constant&) {}
  void expression(ValueId v, const Load& l) {
    const DType* dtype = buffer(l.buffer);
    index(l.index);
    if (l.mask >= 0) use(l.mask, DType::bool_);
    if (l.other >= 0) use(l.other, phase_.values[v]);
    if (dtype) require(*dtype == phase_.values[v], "v{}: load of p{} has another dtype", v, l.buffer);
  }
  void expression(ValueId v, const Get& g) {
    local(g.local);
    if (error.empty()) require(phase_.locals[g.local].dtype == phase_.values[v], "v{}: local has another dtype", v);
  }
  void expression(ValueId v, const IndexValue& i) {
    index(i.index);
    require(phase_.values[v] == DType::i64 || phase_.values[v] == DType::i32, "v{}: an index is i32 or i64", v);
  }
  void expression(ValueId v, const InRange& r) {
    index(r.index);
    require(phase_.values[v] == DType::bool_, "v{}: a range test is bool", v);
  }

  void statement(const Let& s) {
    std::visit([&](const auto& e) { expression(s.value, e); }, s.expr);
    define(s.value);
  }
  void statement(const Assign& s) {
    local(s.local);
    if (error.empty()) use(s.value, phase_.locals[s.local].dtype);
  }
  void statement(const Store& s) {
    const DType* dtype = buffer(s.buffer);
    index(s.index);
    if (s.mask >= 0) use(s.mask, DType::bool_);
    if (dtype) use(s.value, *dtype);
    if (s.buffer < static_cast<int>(kernel_.params.size()) && error.empty()) {
      require(kernel_.params[s.buffer].access != Param::Access::read, "store to p{}, which is only read", s.buffer);
    }
    if (s.update) {
      require(s.buffer < static_cast<int>(kernel_.params.size()), "update of scratch p{}", s.buffer);
      require(dtype && size_bytes(*dtype) > 1 && !is_complex(*dtype), "update of p{}, whose elements have 8 bits",
              s.buffer);
    }
  }
  void statement(const For& s) {
    require(s.axis > 0 && s.axis < static_cast<int>(open_.size()) && !open_[s.axis], "loop over an unknown axis");
    require(vector_extent_ == 0, "a vector loop holds another loop");
    require(s.limit < 0 || s.kind == LoopKind::serial, "a limit of another than a serial loop");
    if (s.limit >= 0) use(s.limit, DType::i64);
    if (s.rest) rest(s);
    if (!error.empty()) return;
    open_[s.axis] = 1;
    if (s.kind == LoopKind::vector) vector_extent_ = s.rest ? kLanes + 1 : phase_.axes[s.axis].extent;
    block(s.body);
    vector_extent_ = 0;
    open_[s.axis] = 0;
  }
  void rest(const For& s) {
    const std::int64_t extent = error.empty() ? phase_.axes[s.axis].extent : 0;
    require(s.kind == LoopKind::serial || s.kind == LoopKind::vector, "a rest of another than a serial or vector loop");
    require(s.limit < 0, "a loop with a rest and a limit");
    require(s.rest->extent >= 1 && s.rest->extent <= extent, "a rest of {} steps of {}", s.rest->extent, extent);
    require(s.kind == LoopKind::serial || extent % kLanes == 0, "a rest of a vector loop of {} steps", extent);
    use(s.rest->where, DType::bool_);
  }
  void statement(const LaneReduce& s) {
    require(vector_extent_ == 0, "lane_reduce inside a vector loop");
    require(s.combine.size() == s.locals.size() && s.results.size() == s.locals.size(), "lane_reduce of unequal lists");
    for (std::size_t i = 0; i < s.locals.size() && error.empty(); ++i) {
      require(phase_.locals[s.locals[i]].lanes == kLanes, "lane_reduce of scalar local l{}", s.locals[i]);
      require(s.combine[i].args.size() == 2 * s.locals.size(), "lane_reduce combines another number of parts");
      define(s.results[i]);
    }
  }
  void statement(const If& s) {
    require(vector_extent_ == 0, "a vector loop holds an if");
    use(s.condition, DType::bool_);
    if (error.empty()) block(s.then);
  }
  void statement(const Barrier&) { require(phase_.threads > 1, "barrier in a phase of one thread"); }

  const Kernel& kernel_;
  const Phase& phase_;
  std::vector<char> defined_, open_;
  std::int64_t vector_extent_ = 0;
};

}  // namespace

absl::Status verify(const Kernel& kernel) {
  for (std::size_t i = 0; i < kernel.phases.size(); ++i) {
    Verifier verifier(kernel, kernel.phases[i]);
    verifier.check();
    if (!verifier.error.empty()) {
      return absl::InternalError(fmt::format("{}, phase {}: {}", kernel.name, i, verifier.error));
    }
  }
  return absl::OkStatus();
}

}  // namespace sheaf::kir
