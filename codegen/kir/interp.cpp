// Resolution: every value gets a register of one slot, or of 64 when it is defined inside a vector loop; every index
// becomes a sum whose leaves are array slots. Invariant: inside a vector loop, lane l is iteration base + l.
#include "codegen/kir/interp.h"

#include <algorithm>
#include <array>

#include "codegen/kir/contract.h"
#include "codegen/kir/lane_ops.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

std::int64_t div_floor(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && a < 0 ? quotient - 1 : quotient;
}

struct Register {
  int slot = -1;
  int step = 0;  // 1: one slot per lane
};

/// An index in a given loop context.
struct Address {
  struct Term {
    std::int64_t coefficient = 0;
    Atom::Kind kind = Atom::Kind::axis;
    int axis = 0;
    Register value;
    int operand = -1;  // into PhaseProgram::addresses
    std::int64_t divisor = 1;
  };
  std::vector<Term> terms;
  std::int64_t offset = 0;
  bool is_linear = true;    // lane l is lane 0 plus l * lane_stride
  std::int64_t lane_stride = 0;
};

struct Instruction {
  enum class Kind : std::uint8_t {
    scalar,
    constant,
    load,
    store,
    get,
    assign,
    index,
    in_range,
    loop,
    lane_reduce,
    branch
  };
  Kind kind = Kind::scalar;
  ir::ScalarOp op = ir::ScalarOp::arg;  // scalar; store: what is there and the value become, or arg
  DType in_dtype = DType::f32, dtype = DType::f32;  // dtype: of the result, or of the element
  bool is_vector = false;        // loop
  Register out,
      in[3];  // load: in[0] mask, in[1] other; store: in[0] mask, in[1] value; branch: in[0]; loop: in[0] limit
  int buffer = -1, address = -1;
  int axis = -1;  // loop
  int end = 0;  // loop, branch: the instruction after the body
  std::int64_t lo = 0, hi = 0;  // in_range; loop: the extent where in[1] holds, and elsewhere; load, store: hi is the
                                // buffer's element count
  std::uint64_t bits = 0;
  int reduce = -1;  // into PhaseProgram::reductions
};

struct Reduction {
  std::vector<Register> locals, results;
  std::vector<ir::ScalarFn> combine;
};

}  // namespace

class PhaseProgram {
 public:
  PhaseProgram(const Kernel& kernel, const Phase& phase);
  void run(void* const* buffers, std::int64_t begin, std::int64_t end, std::byte* scratch) const;

  std::vector<Instruction> code;
  std::vector<Address> addresses;
  std::vector<Reduction> reductions;
  int slots = 0, axes = 0;
  std::int64_t units = 0, scratch_size = 0;
  int params = 0;
  std::vector<std::int64_t> scratch_offsets;
};

namespace {

class Resolver {
 public:
  Resolver(const Kernel& kernel, const Phase& phase, PhaseProgram& out)
      : kernel_(kernel), phase_(phase), out_(out), registers_(phase.values.size()) {
    for (const Local& l : phase.locals) locals_.push_back(take(l.lanes == kLanes));
  }

  void block(const Block& b) {
    for (const Stmt& s : b) {
      std::visit([&](const auto& node) { statement(node); },
                 static_cast<const std::variant<Let, Assign, Store, For, LaneReduce, If, Barrier>&>(s));
    }
  }

 private:
  using Kind = Instruction::Kind;

  Register take(bool is_wide) {
    const Register r{out_.slots, is_wide ? 1 : 0};
    out_.slots += is_wide ? kLanes : 1;
    return r;
  }
  Register reg(ValueId v) const { return v < 0 ? Register{} : registers_[v]; }
  Instruction& emit(Kind kind, DType dtype) {
    Instruction i;
    i.kind = kind;
    i.dtype = dtype;
    out_.code.push_back(i);
    return out_.code.back();
  }
  std::int64_t count(BufferId b) const {
    const int params = static_cast<int>(kernel_.params.size());
    return b < params ? kernel_.params[b].count : phase_.scratch[b - params].count;
  }

  int address(Index index) {
    Address a;
    const IndexPool& pool = phase_.indices;
    a.offset = pool.offset(index);
    for (const Term& t : pool.terms(index)) {
      const Atom& atom = pool.atom(t.atom);
      Address::Term term{.coefficient = t.coefficient,
                         .kind = atom.kind,
                         .axis = atom.id,
                         .value = {},
                         .operand = -1,
                         .divisor = atom.divisor};
      if (atom.kind == Atom::Kind::value) {
        term.value = reg(atom.id);
        a.is_linear &= term.value.step == 0;
      } else if (atom.kind == Atom::Kind::axis) {
        if (atom.id == vector_axis_) a.lane_stride = t.coefficient;
      } else {
        term.operand = address(atom.operand);
        const Address& inner = out_.addresses[term.operand];
        a.is_linear &= inner.is_linear && inner.lane_stride == 0;
      }
      a.terms.push_back(term);
    }
    out_.addresses.push_back(std::move(a));
    return static_cast<int>(out_.addresses.size()) - 1;
  }

  void expression(Register out, DType dtype, const Scalar& s) {
    Instruction& i = emit(Kind::scalar, dtype);
    i.op = s.op;
    i.out = out;
    for (int k = 0; k < ir::arity(s.op); ++k) i.in[k] = reg(s.in[k]);
    i.in_dtype = phase_.values[s.op == ir::ScalarOp::select ? s.in[1] : s.in[0]];
  }
  void expression(Register out, DType dtype, const Constant& c) {
    Instruction& i = emit(Kind::constant, dtype);
    i.out = out;
    i.bits = c.bits;
  }
  void expression(Register out, DType dtype, const Load& l) {
    const int at = address(l.index);
    Instruction& i = emit(Kind::load, dtype);
    i.out = out;
    i.buffer = l.buffer;
    i.address = at;
    i.hi = count(l.buffer);
    i.in[0] = reg(l.mask);
    i.in[1] = reg(l.other);
  }
  void expression(Register out, DType dtype, const Get& g) {
    Instruction& i = emit(Kind::get, dtype);
    i.out = out;
    i.in[0] = locals_[g.local];
  }
  void expression(Register out, DType dtype, const IndexValue& v) {
    const int at = address(v.index);
    Instruction& i = emit(Kind::index, dtype);
    i.out = out;
    i.address = at;
  }
  void expression(Register out, DType dtype, const InRange& r) {
    const int at = address(r.index);
    Instruction& i = emit(Kind::in_range, dtype);
    i.out = out;
    i.address = at;
    i.lo = r.lo;
    i.hi = r.hi;
  }

  void statement(const Let& s) {
    const Register out = take(vector_axis_ >= 0);
    std::visit([&](const auto& e) { expression(out, phase_.values[s.value], e); }, s.expr);
    registers_[s.value] = out;
  }
  void statement(const Assign& s) {
    Instruction& i = emit(Kind::assign, phase_.locals[s.local].dtype);
    i.out = locals_[s.local];
    i.in[0] = reg(s.value);
  }
  void statement(const Store& s) {
    const int at = address(s.index);
    Instruction& i = emit(Kind::store, phase_.values[s.value]);
    i.buffer = s.buffer;
    i.address = at;
    i.hi = count(s.buffer);
    i.in[0] = reg(s.mask);
    i.in[1] = reg(s.value);
    if (s.update) i.op = *s.update;
  }
  void statement(const For& s) {
    SHEAF_CHECK(s.kind != LoopKind::thread, "the interpreter runs CPU nests only");
    const std::size_t at = out_.code.size();
    Instruction& i = emit(Kind::loop, DType::i64);
    i.axis = s.axis;
    if (s.rest) i.lo = s.rest->extent, i.in[1] = reg(s.rest->where);
    i.hi = phase_.axes[s.axis].extent;
    i.in[0] = reg(s.limit);
    i.is_vector = s.kind == LoopKind::vector;
    if (i.is_vector) vector_axis_ = s.axis;
    block(s.body);
    vector_axis_ = -1;
    out_.code[at].end = static_cast<int>(out_.code.size());
  }
  void statement(const LaneReduce& s) {
    Reduction r;
    for (std::size_t k = 0; k < s.locals.size(); ++k) {
      r.locals.push_back(locals_[s.locals[k]]);
      r.results.push_back(registers_[s.results[k]] = take(false));
    }
    r.combine = s.combine;
    emit(Kind::lane_reduce, DType::f32).reduce = static_cast<int>(out_.reductions.size());
    out_.reductions.push_back(std::move(r));
  }
  void statement(const If& s) {
    const std::size_t at = out_.code.size();
    emit(Kind::branch, DType::bool_).in[0] = reg(s.condition);
    block(s.then);
    out_.code[at].end = static_cast<int>(out_.code.size());
  }
  void statement(const Barrier&) { SHEAF_CHECK(false, "the interpreter runs CPU nests only"); }

  const Kernel& kernel_;
  const Phase& phase_;
  PhaseProgram& out_;
  std::vector<Register> registers_, locals_;
  AxisId vector_axis_ = -1;
};

/// The state of one thread running one phase.
class Machine {
 public:
  Machine(const PhaseProgram& program, void* const* buffers, std::byte* scratch)
      : program_(program), registers_(program.slots), axes_(program.axes) {
    for (int i = 0; i < program.params; ++i) buffers_.push_back(static_cast<std::byte*>(buffers[i]));
    for (std::int64_t offset : program.scratch_offsets) buffers_.push_back(scratch + offset);
  }

  void run_unit(std::int64_t unit) {
    axes_[0] = unit;
    run(0, static_cast<int>(program_.code.size()));
  }

 private:
  using Kind = Instruction::Kind;
  using Indices = std::array<std::int64_t, kLanes>;

  void run(int pc, int end) {
    while (pc < end) {
      const Instruction& i = program_.code[pc];
      switch (i.kind) {
        case Kind::loop:
          loop(i, pc + 1);
          pc = i.end;
          continue;
        case Kind::branch:
          if (registers_[i.in[0].slot] == 0) {
            pc = i.end;
            continue;
          }
          break;
        case Kind::scalar: {
          const LaneRef in[3] = {ref(i.in[0]), ref(i.in[1]), ref(i.in[2])};
          apply(i.op, i.in_dtype, i.dtype, &registers_[i.out.slot], in, lanes_);
          break;
        }
        case Kind::constant: std::fill_n(&registers_[i.out.slot], lanes_, i.bits); break;
        case Kind::get:
        case Kind::assign: copy(i); break;
        case Kind::load: load(i); break;
        case Kind::store: store(i); break;
        case Kind::index: index_value(i); break;
        case Kind::in_range: in_range(i); break;
        case Kind::lane_reduce: lane_reduce(program_.reductions[i.reduce]); break;
      }
      ++pc;
    }
  }

  std::int64_t steps(const Instruction& loop) const {
    if (loop.in[1].slot >= 0 && registers_[loop.in[1].slot] != 0) return loop.lo;
    if (loop.in[0].slot < 0) return loop.hi;
    return std::min(loop.hi, static_cast<std::int64_t>(registers_[loop.in[0].slot]));
  }

  void loop(const Instruction& i, int body) {
    const std::int64_t end = steps(i);
    if (!i.is_vector) {
      for (std::int64_t k = 0; k < end; ++k) {
        axes_[i.axis] = k;
        run(body, i.end);
      }
      return;
    }
    vector_axis_ = i.axis;
    for (std::int64_t base = 0; base < end; base += kLanes) {
      axes_[i.axis] = base;
      lanes_ = static_cast<int>(std::min<std::int64_t>(kLanes, end - base));
      run(body, i.end);
    }
    lanes_ = 1;
    vector_axis_ = -1;
  }

  LaneRef ref(Register r) const { return {r.slot < 0 ? nullptr : &registers_[r.slot], r.step}; }

  void copy(const Instruction& i) {
    const LaneRef from = ref(i.in[0]);
    std::uint64_t* to = &registers_[i.out.slot];
    if (i.out.step == 0) {
      *to = from[lanes_ - 1];  // a scalar local assigned in a vector loop keeps the last iteration
      return;
    }
    for (int l = 0; l < lanes_; ++l) to[l] = from[l];
  }

  std::int64_t evaluate(const Address& a, int lane) const {
    std::int64_t sum = a.offset;
    for (const Address::Term& t : a.terms) {
      std::int64_t v = 0;
      switch (t.kind) {
        case Atom::Kind::axis: v = axes_[t.axis] + (t.axis == vector_axis_ ? lane : 0); break;
        case Atom::Kind::value: v = static_cast<std::int64_t>(ref(t.value)[lane]); break;
        case Atom::Kind::floor_div: v = div_floor(evaluate(program_.addresses[t.operand], lane), t.divisor); break;
        case Atom::Kind::mod: {
          const std::int64_t x = evaluate(program_.addresses[t.operand], lane);
          v = x - div_floor(x, t.divisor) * t.divisor;
          break;
        }
      }
      sum += t.coefficient * v;
    }
    return sum;
  }

  void indices(int address, Indices& out) const {
    const Address& a = program_.addresses[address];
    if (!a.is_linear) {
      for (int l = 0; l < lanes_; ++l) out[l] = evaluate(a, l);
      return;
    }
    const std::int64_t first = evaluate(a, 0);
    for (int l = 0; l < lanes_; ++l) out[l] = first + l * a.lane_stride;
  }

  static void check_bounds(std::int64_t index, const Instruction& i) {
    SHEAF_CHECK(index >= 0 && index < i.hi,
                "p" + std::to_string(i.buffer) + "[" + std::to_string(index) + "] of " + std::to_string(i.hi));
  }

  void load(const Instruction& i) {
    Indices at;
    indices(i.address, at);
    const LaneRef mask = ref(i.in[0]), other = ref(i.in[1]);
    const int size = size_bytes(i.dtype);
    std::uint64_t* out = &registers_[i.out.slot];
    for (int l = 0; l < lanes_; ++l) {
      if (mask.bits && mask[l] == 0) {
        out[l] = other.bits ? other[l] : 0;
        continue;
      }
      if (at[l] < 0 || at[l] >= i.hi) check_bounds(at[l], i);
      out[l] = read_element(buffers_[i.buffer] + at[l] * size, size);
    }
  }

  void store(const Instruction& i) {
    Indices at;
    indices(i.address, at);
    const LaneRef mask = ref(i.in[0]), value = ref(i.in[1]);
    const int size = size_bytes(i.dtype);
    for (int l = 0; l < lanes_; ++l) {
      if (mask.bits && mask[l] == 0) continue;
      if (at[l] < 0 || at[l] >= i.hi) check_bounds(at[l], i);
      std::byte* const to = buffers_[i.buffer] + at[l] * size;
      const std::uint64_t both[] = {i.op == ir::ScalarOp::arg ? 0 : read_element(to, size), value[l]};
      write_element(to, size,
                    i.op == ir::ScalarOp::arg ? value[l] : ir::eval(ir::scalar_primitive(i.op, i.dtype), both));
    }
  }

  void index_value(const Instruction& i) {
    Indices at;
    indices(i.address, at);
    for (int l = 0; l < lanes_; ++l) {
      registers_[i.out.slot + l] =
          i.dtype == DType::i32 ? static_cast<std::uint32_t>(at[l]) : static_cast<std::uint64_t>(at[l]);
    }
  }

  void in_range(const Instruction& i) {
    Indices at;
    indices(i.address, at);
    for (int l = 0; l < lanes_; ++l) registers_[i.out.slot + l] = at[l] >= i.lo && at[l] < i.hi ? 1 : 0;
  }

  void lane_reduce(const Reduction& r) {
    const std::size_t parts = r.locals.size();
    std::vector<std::uint64_t> args(2 * parts), combined(parts);
    for (int half = kLanes / 2; half >= 1; half /= 2) {
      for (int l = 0; l < half; ++l) {
        for (std::size_t k = 0; k < parts; ++k) {
          args[k] = registers_[r.locals[k].slot + l];
          args[parts + k] = registers_[r.locals[k].slot + l + half];
        }
        for (std::size_t k = 0; k < parts; ++k) combined[k] = ir::eval(r.combine[k], args);
        for (std::size_t k = 0; k < parts; ++k) registers_[r.locals[k].slot + l] = combined[k];
      }
    }
    for (std::size_t k = 0; k < parts; ++k) registers_[r.results[k].slot] = registers_[r.locals[k].slot];
  }

  const PhaseProgram& program_;
  std::vector<std::uint64_t> registers_;
  std::vector<std::int64_t> axes_;
  std::vector<std::byte*> buffers_;
  int lanes_ = 1;
  AxisId vector_axis_ = -1;
};

}  // namespace

PhaseProgram::PhaseProgram(const Kernel& kernel, const Phase& phase)
    : axes(static_cast<int>(phase.axes.size())),
      units(phase.axes[0].extent),
      scratch_size(scratch_bytes(phase)),
      params(static_cast<int>(kernel.params.size())) {
  std::int64_t offset = 0;
  for (const Scratch& s : phase.scratch) {
    scratch_offsets.push_back(offset);
    offset += (s.count * size_bytes(s.dtype) + 63) / 64 * 64;
  }
  Resolver(kernel, phase, *this).block(phase.body);
}

void PhaseProgram::run(void* const* buffers, std::int64_t begin, std::int64_t end, std::byte* scratch) const {
  Machine machine(*this, buffers, scratch);
  for (std::int64_t unit = begin; unit < end; ++unit) machine.run_unit(unit);
}

Interpreter::Interpreter(const Kernel& kernel) {
  for (const Phase& phase : kernel.phases) phases_.push_back(std::make_unique<const PhaseProgram>(kernel, phase));
  if (!kernel.contract) return;
  contract_ = std::make_unique<const Contract>(*kernel.contract);
  const Phase* epilogue = epilogue_of(kernel);
  prologues_ = epilogue ? static_cast<std::size_t>(epilogue - kernel.phases.data()) : kernel.phases.size();
  params_ = kernel.params.size();
  const Param& result = kernel.params[static_cast<std::size_t>(contract_->result)];
  if (result.access == Param::Access::temporary) sum_bytes_ = result.count * size_bytes(result.dtype);
}
Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&&) noexcept = default;

void Interpreter::run(int phase, void* const* buffers, std::int64_t begin, std::int64_t end, std::byte* scratch) const {
  phases_[phase]->run(buffers, begin, end, scratch);
}

void Interpreter::run(void* const* buffers) const {
  std::vector<std::byte> sums(static_cast<std::size_t>(sum_bytes_));
  std::vector<void*> with_sums;
  if (sum_bytes_ > 0) {
    with_sums.assign(buffers, buffers + params_);
    with_sums[static_cast<std::size_t>(contract_->result)] = sums.data();
    buffers = with_sums.data();
  }
  for (std::size_t i = 0; i <= phases_.size(); ++i) {
    if (contract_ && i == prologues_) run_contract(*contract_, buffers);
    if (i == phases_.size()) break;
    std::vector<std::byte> scratch(static_cast<std::size_t>(phases_[i]->scratch_size));
    phases_[i]->run(buffers, 0, phases_[i]->units, scratch.data());
  }
}

}  // namespace sheaf::kir
