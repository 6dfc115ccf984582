// A walk over the equations with one value per device. Devices that leave a loop or take different branches go on as
// smaller sets; whoever meets in a collective is checked to be in the same one.
#include "ir/eval_spmd.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/complex.h"
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/scalar.h"

namespace sheaf::ir {
namespace {

using lowering::Collective;
using Index = std::vector<std::int64_t>;

ScalarOp scalar_op_of(ReduceKind kind) {
  constexpr ScalarOp kOps[] = {ScalarOp::add, ScalarOp::mul,  ScalarOp::max,
                               ScalarOp::min, ScalarOp::and_, ScalarOp::or_};
  return kOps[static_cast<int>(kind)];
}

/// Element by element, from the first part to the last, in the accumulator's type and rounded once.
Literal reduced(std::span<const Literal* const> parts, ReduceKind kind) {
  Literal out(parts[0]->type());
  const DType wide = is_float(out.dtype()) ? accumulator(out.dtype()) : out.dtype();
  const ScalarFn& combine = scalar_primitive(scalar_op_of(kind), wide);
  const auto widened = [&](const Literal& x, std::int64_t i) {
    return wide == x.dtype() ? x.bits(i) : to_bits(wide, x.get(i));
  };
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::uint64_t total = widened(*parts[0], i);
    for (const Literal* part : parts.subspan(1)) {
      const std::uint64_t both[] = {total, widened(*part, i)};
      total = eval(combine, both);
    }
    if (wide == out.dtype()) {
      out.set_bits(i, total);
    } else {
      out.set(i, from_bits(wide, total));
    }
  }
  return out;
}

/// out[i] = in[from(i)] of parts[k], for all i; `from` turns the result's index into the operand's and gives k, or -1
/// for zero.
template <class From>
void gather_elements(std::span<const Literal* const> parts, Literal& out, From from) {
  if (out.size() == 0) return;
  Index index(out.dims().size(), 0);
  std::int64_t i = 0;
  do {
    Index at = index;
    const std::int64_t k = from(at);
    if (k >= 0) out.copy(i, *parts[k], flatten(at, strides_of(parts[k]->dims())));
    ++i;
  } while (next_index(index, out.dims()));
}

/// The result of a collective at position `self` of a group whose operands are `in`.
Literal collective_result(const Collective& what, std::span<const Literal* const> in, std::int64_t self, Type type) {
  const auto n = static_cast<std::int64_t>(in.size());
  Literal out(type);
  switch (what.kind) {
    case Collective::Kind::all_reduce: return reduced(in, what.reduce);
    case Collective::Kind::all_gather:
      gather_elements(in, out, [&](Index& at) {
        const std::int64_t own = what.tiled ? in[0]->dims()[what.dim] : 1, k = at[what.dim] / own;
        at[what.dim] %= own;
        if (!what.tiled) at.erase(at.begin() + what.dim);
        return k;
      });
      return out;
    case Collective::Kind::reduce_scatter: {
      const Literal all = reduced(in, what.reduce);
      const Literal* const parts[] = {&all};
      gather_elements(parts, out, [&](Index& at) {
        if (!what.tiled) at.insert(at.begin() + what.dim, 0);
        at[what.dim] += self * (all.dims()[what.dim] / n);
        return 0;
      });
      return out;
    }
    case Collective::Kind::all_to_all:
      gather_elements(in, out, [&](Index& at) {
        const std::int64_t joined = what.tiled ? out.dims()[what.concat] / n : 1, k = at[what.concat] / joined;
        at[what.concat] %= joined;
        if (!what.tiled) {
          at.erase(at.begin() + what.concat);
          at.insert(at.begin() + what.split, 0);
        }
        at[what.split] += self * (in[0]->dims()[what.split] / n);
        return k;
      });
      return out;
    case Collective::Kind::ppermute: {
      const auto target = std::find(what.targets.begin(), what.targets.end(), self);
      if (target != what.targets.end()) return *in[what.sources[target - what.targets.begin()]];
      return out;
    }
    case Collective::Kind::axis_index: out.set_int(0, self); return out;
  }
  return out;
}

using Devices = std::vector<int>;
using PerDevice = std::vector<Literals>;  // of all devices; empty for those that are elsewhere

Literals slice_of(const Literals& all, std::int64_t from, std::int64_t count) {
  return {all.begin() + from, all.begin() + from + count};
}
Literals joined(Literals a, const Literals& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Runs functions of one mesh; the devices given are those that are here.
class Lockstep {
 public:
  explicit Lockstep(Mesh mesh) : atoms_(mesh), size_(mesh.size()) {}

  PerDevice run(const Function& f, const Devices& here, const PerDevice& inputs) {
    std::vector<ValueTable<Literal>> values(size_, ValueTable<Literal>(f));
    for (const int d : here) {
      SHEAF_CHECK(inputs[d].size() == f.params().size(), "one literal per parameter");
      for (std::size_t i = 0; i < inputs[d].size(); ++i) {
        const Type given = inputs[d][i].type(), wanted = f.params()[i].type();
        SHEAF_CHECK(given.dtype() == wanted.dtype() && given.dims() == wanted.dims(),
                    fmt::format("input {} of device {} is {}, not {}", i, d, to_string(given), to_string(wanted)));
        values[d][f.params()[i]] = inputs[d][i];
      }
    }
    for (const Eqn* e : f.eqns()) {
      PerDevice in(size_);
      for (const int d : here)
        for (Value v : e->operands) in[d].push_back(values[d][v]);
      PerDevice out = equation(*e, here, in);
      for (const int d : here)
        for (int j = 0; j < e->num_out(); ++j) values[d][e->out(j)] = std::move(out[d][j]);
    }
    PerDevice results(size_);
    for (const int d : here)
      for (Value r : f.results()) results[d].push_back(values[d][r]);
    return results;
  }

 private:
  bool meets(const Function& f) {
    const auto known = meets_.find(&f);
    if (known != meets_.end()) return known->second;
    const bool any = std::any_of(f.eqns().begin(), f.eqns().end(), [this](const Eqn* e) { return meets(*e); });
    meets_[&f] = any;
    return any;
  }
  bool meets(const Eqn& e) {
    return e.op->axes ||
           std::any_of(e.regions.begin(), e.regions.end(), [this](const FunctionRef& r) { return meets(*r); });
  }

  PerDevice equation(const Eqn& e, const Devices& here, const PerDevice& in) {
    if (e.op->axes) return collective(e, here, in);
    if (!meets(e)) {
      PerDevice out(size_);
      for (const int d : here) {
        if (EvalObserver* o = Observed::current()) o->device(d);
        out[d] = eval(e, in[d]);
      }
      return out;
    }
    if (e.op == &ops::scan) return scan(e, here, in);
    if (e.op == &ops::while_) return while_loop(e, here, in);
    if (e.op == &ops::cond) return branch(e, here, in);
    SHEAF_CHECK(e.regions.size() == 1, std::string(e.op->name) + " with a collective inside");
    return run(*e.regions[0], here, in);
  }

  PerDevice collective(const Eqn& e, const Devices& here, const PerDevice& in) {
    const Lowering lowering = e.op->lower(e);
    const Collective& what = std::get<Collective>(lowering);
    PerDevice out(size_);
    for (const std::vector<int>& group : atoms_.groups(atoms_.of(what.axes))) {
      const auto is_here = [&](int d) { return std::find(here.begin(), here.end(), d) != here.end(); };
      if (what.kind != Collective::Kind::axis_index) {
        if (std::none_of(group.begin(), group.end(), is_here)) continue;
        const auto missing = std::find_if_not(group.begin(), group.end(), is_here);
        SHEAF_CHECK(missing == group.end(),
                    fmt::format("{}: device {} does not come to {}", to_string(e.loc), *missing, e.op->name));
      }
      std::vector<const Literal*> operands;
      if (e.num_in() > 0)
        for (const int d : group) operands.push_back(in[d].data());
      for (std::size_t self = 0; self < group.size(); ++self) {
        if (!is_here(group[self])) continue;
        out[group[self]] = {collective_result(what, operands, static_cast<std::int64_t>(self), e.out().type())};
        show(e, group[self], operands, out[group[self]]);
      }
    }
    return out;
  }

  static void show(const Eqn& e, int device, std::span<const Literal* const> operands, const Literals& results) {
    EvalObserver* o = Observed::current();
    if (!o) return;
    Literals in;
    for (const Literal* x : operands) in.push_back(*x);
    o->device(device);
    o->equation(e, in, results);
  }

  PerDevice scan(const Eqn& e, const Devices& here, const PerDevice& in) {
    const ops::Scan& a = e.attrs<ops::Scan>();
    const std::int64_t fixed = a.consts + a.carry;
    PerDevice args(size_), out(size_);
    for (const int d : here) {
      args[d] = slice_of(in[d], 0, fixed);
      args[d].resize(in[d].size());
      for (Value v : e.outs()) out[d].emplace_back(v.type());
    }
    for (std::int64_t i = 0; i < a.length; ++i) {
      const std::int64_t t = a.reverse ? a.length - 1 - i : i;
      if (EvalObserver* o = Observed::current()) o->step(e, t);
      for (const int d : here)
        for (std::size_t k = fixed; k < in[d].size(); ++k) {
          args[d][k] = Literal(e.regions[0]->params()[k].type());
          copy_row(in[d][k], t, args[d][k], 0, args[d][k].bytes());
        }
      PerDevice results = run(*e.regions[0], here, args);
      for (const int d : here) {
        for (std::int64_t k = 0; k < a.carry; ++k) args[d][a.consts + k] = std::move(results[d][k]);
        for (std::size_t j = a.carry; j < results[d].size(); ++j)
          copy_row(results[d][j], 0, out[d][j], t, results[d][j].bytes());
      }
    }
    if (EvalObserver* o = Observed::current(); o && a.length > 0) o->left(e);
    for (const int d : here)
      for (std::int64_t k = 0; k < a.carry; ++k) out[d][k] = std::move(args[d][a.consts + k]);
    return out;
  }

  static void copy_row(const Literal& from, std::int64_t i, Literal& to, std::int64_t j, std::size_t bytes) {
    const auto row = static_cast<std::int64_t>(bytes);
    if (row > 0) std::memcpy(to.data() + j * row, from.data() + i * row, bytes);
  }

  PerDevice while_loop(const Eqn& e, Devices here, const PerDevice& in) {
    const ops::While& a = e.attrs<ops::While>();
    const std::int64_t consts = a.cond_consts + a.body_consts;
    PerDevice carry(size_);
    for (const int d : here) carry[d] = slice_of(in[d], consts, std::ssize(in[d]) - consts);
    const auto args = [&](std::int64_t from, std::int64_t count) {
      PerDevice all(size_);
      for (const int d : here) all[d] = joined(slice_of(in[d], from, count), carry[d]);
      return all;
    };
    for (std::int64_t trip = 0; trip != a.max_trips && !here.empty(); ++trip) {
      if (EvalObserver* o = Observed::current()) o->step(e, trip);
      const PerDevice holds = run(*e.regions[0], here, args(0, a.cond_consts));
      std::erase_if(here, [&](int d) { return holds[d][0].get_int(0) == 0; });
      PerDevice next = run(*e.regions[1], here, args(a.cond_consts, a.body_consts));
      for (const int d : here) carry[d] = std::move(next[d]);
    }
    if (EvalObserver* o = Observed::current(); o && a.max_trips != 0) o->left(e);
    return carry;
  }

  PerDevice branch(const Eqn& e, const Devices& here, const PerDevice& in) {
    const std::int64_t last = std::ssize(e.regions) - 1;
    std::map<std::int64_t, Devices> takers;
    PerDevice args(size_), out(size_);
    for (const int d : here) {
      takers[std::clamp<std::int64_t>(in[d][0].get_int(0), 0, last)].push_back(d);
      args[d] = slice_of(in[d], 1, std::ssize(in[d]) - 1);
    }
    for (const auto& [index, devices] : takers) {
      PerDevice results = run(*e.regions[index], devices, args);
      for (const int d : devices) out[d] = std::move(results[d]);
    }
    return out;
  }

  const MeshAtoms atoms_;
  const std::int64_t size_;
  absl::flat_hash_map<const Function*, bool> meets_;
};

/// Where device d's part of a value begins.
Index begin_of(const MeshAtoms& atoms, const Sharding& sharding, const Shape& local, int d) {
  Index begin;
  for (std::size_t k = 0; k < local.size(); ++k) begin.push_back(atoms.coordinate(sharding.dims[k], d) * local[k]);
  return begin;
}

/// Calls f(position in the part, position in the whole).
template <class F>
void for_each_element(const Shape& local, const Shape& global, const Index& begin, F f) {
  if (std::find(local.begin(), local.end(), 0) != local.end()) return;
  Index index(local.size(), 0);
  std::int64_t i = 0;
  do {
    Index at = index;
    for (std::size_t k = 0; k < at.size(); ++k) at[k] += begin[k];
    f(i++, flatten(at, strides_of(global)));
  } while (next_index(index, local));
}

Literal filled(Type type, ReduceKind kind) {
  Literal out(type);
  if (kind == ReduceKind::prod)
    for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, 1);
  return out;
}

}  // namespace

std::vector<Literals> eval_spmd(const FunctionRef& local, std::span<const Literals> inputs) {
  const Mesh mesh = local->mesh();
  SHEAF_CHECK(mesh && std::ssize(inputs) == mesh.size(), "inputs for every device of a mesh");
  Devices all(mesh.size());
  for (std::size_t d = 0; d < all.size(); ++d) all[d] = static_cast<int>(d);
  const bool is_complex = has_complex(*local);
  PerDevice args(inputs.begin(), inputs.end());
  if (is_complex)
    for (Literals& of_device : args)
      for (Literal& x : of_device) x = x.as_parts();
  PerDevice results = Lockstep(mesh).run(is_complex ? *split_complex(*local) : *local, all, args);
  for (Literals& of_device : results)
    for (std::size_t j = 0; j < of_device.size(); ++j) of_device[j] = of_device[j].as(local->results()[j].type());
  return results;
}

Literals shard(const Literal& global, const MeshAtoms& atoms, const Sharding& sharding) {
  const Type type = local_type(global.type(), atoms, sharding);
  const bool is_split = sharding.kind == ReduceKind::sum || sharding.kind == ReduceKind::prod;
  Literals parts;
  for (int d = 0; d < atoms.mesh().size(); ++d) {
    parts.push_back(filled(type, sharding.kind));
    if (is_split && atoms.coordinate(sharding.unreduced, d) != 0) continue;
    for_each_element(type.dims(), global.dims(), begin_of(atoms, sharding, type.dims(), d),
                     [&](std::int64_t i, std::int64_t j) { parts.back().copy(i, global, j); });
  }
  return parts;
}

absl::StatusOr<Literal> unshard(std::span<const Literal> parts, Type global, const MeshAtoms& atoms,
                                const Sharding& sharding) {
  if (is_complex(global.dtype())) {
    Literals reals;
    for (const Literal& part : parts) reals.push_back(part.as_parts());
    Sharding of_reals = sharding;
    of_reals.dims.emplace_back();
    absl::StatusOr<Literal> whole = unshard(reals, parts_type(global), atoms, of_reals);
    if (whole.ok()) return whole->as(global);
    return whole;
  }
  const Type type = local_type(global, atoms, sharding);
  SHEAF_CHECK(std::ssize(parts) == atoms.mesh().size(), "a part for every device");
  Literal out(global);
  absl::flat_hash_map<Index, int> first;  // the device that a part of the value was taken from
  for (const std::vector<int>& group : atoms.groups(sharding.unreduced)) {
    std::vector<const Literal*> of_group;
    for (const int d : group) {
      SHEAF_CHECK(parts[d].dtype() == type.dtype() && parts[d].dims() == type.dims(),
                  fmt::format("device {} holds {}, not {}", d, to_string(parts[d].type()), to_string(type)));
      of_group.push_back(&parts[d]);
    }
    const Literal part = sharding.unreduced.empty() ? *of_group[0] : reduced(of_group, sharding.kind);
    const Index begin = begin_of(atoms, sharding, type.dims(), group[0]);
    const auto [it, is_new] = first.try_emplace(begin, group[0]);
    bool is_equal = true;
    for_each_element(type.dims(), global.dims(), begin, [&](std::int64_t i, std::int64_t j) {
      if (is_new) out.copy(j, part, i);
      is_equal &= std::memcmp(out.data() + j * size_bytes(out.dtype()), part.data() + i * size_bytes(out.dtype()),
                              size_bytes(out.dtype())) == 0;
    });
    if (!is_equal)
      return absl::InvalidArgumentError(fmt::format("devices {} and {} hold different values of one part of {} {}",
                                                    it->second, group[0], to_string(global),
                                                    to_string(sharding, atoms)));
  }
  return out;
}

}  // namespace sheaf::ir
