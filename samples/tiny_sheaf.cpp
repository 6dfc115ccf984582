// The whole idea of Sheaf in one file, with the standard library alone: lambdas are traced into functional programs,
// transforms make programs of programs (jvp, linearize, transpose, batch), and the last one is fused into loops, run
// and cached by shape. Read it from top to bottom; ir, trace, passes, codegen and runtime do the same at full size.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tiny {

// ---- Programs -------------------------------------------------------------------------------------------------------
// A program is a graph of equations that nothing ever changes: an equation means the same wherever it is used, so
// programs may share what they have in common, and a new one is made by adding to an old one. A function is no more
// than a cut through the graph, from some values that are called parameters to some that are called results.

using Dims = std::vector<int>;  // sizes of dims, or their positions
struct Op;
struct Array;
using Arrays = std::vector<Array>;
using A = const Array&;

struct Node {
  const Op* op = nullptr;  // none: a parameter, or numbers
  Arrays operands;
  Dims shape;
  Dims dims = {};  // sum: those it sums; broadcast: where each dim of the operand goes
  std::vector<double> numbers = {};  // row-major
  bool is_traced = true;  // depends on a parameter
};

/// A handle on a value: an array of numbers, or one that will be known when the program runs. User code cannot tell
/// which, and so the same lambda computes when it is given numbers, and writes itself down when it is given parameters.
struct Array {
  std::shared_ptr<const Node> node;  // none: zero, as a tangent or cotangent; it then costs nothing

  Array() = default;
  explicit Array(Node made) : node(std::make_shared<const Node>(std::move(made))) {}
  Array(Dims shape, std::vector<double> x) : Array(Node{nullptr, {}, std::move(shape), {}, std::move(x), false}) {}
  Array(double number) : Array(Dims(), std::vector{number}) {}  // NOLINT: a number is an array of rank 0
  const Node* operator->() const { return node.get(); }
  explicit operator bool() const { return node != nullptr; }
  auto operator<=>(const Array&) const = default;  // which value it is, not what it holds
};
Array parameter(const Dims& shape) { return Array(Node{nullptr, {}, shape}); }

struct Function {
  Arrays params, results;
};

/// The equations that depend on the parameters, operands first. All other values are known, wherever they come from:
/// numbers, or parameters of a function around this one that a lambda has captured.
Arrays equations(const Function& f) {
  std::map<Array, bool> depends;
  for (A p : f.params) depends[p] = true;
  Arrays out;
  const std::function<bool(A)> visit = [&](A x) {
    if (const auto found = depends.find(x); found != depends.end()) return found->second;
    bool does = false;
    for (A operand : x->operands) does = visit(operand) || does;
    if (does) out.push_back(x);
    return depends[x] = does;
  };
  for (A r : f.results) visit(r);
  return out;
}

int count(const auto& list) { return static_cast<int>(list.size()); }
int size_of(const Dims& shape) { return std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>()); }

/// The dims of an array of that rank that are not among `dims`.
Dims others(int rank, const Dims& dims = {}) {
  Dims out;
  for (int d = 0; d < rank; ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) out.push_back(d);
  return out;
}
Dims pick(const Dims& from, const Dims& at) {
  Dims out;
  for (int d : at) out.push_back(from[d]);
  return out;
}
std::string text(const Dims& dims) {
  std::string out;
  for (int d : dims) out += (out.empty() ? "" : ", ") + std::to_string(d);
  return "[" + out + "]";
}

// ---- Tracing --------------------------------------------------------------------------------------------------------
// Operators on numbers compute at once; on anything else they add an equation to the graph. What they add is simplified
// first, by rules that hold for every number, so neither users nor transforms need to care how plainly they write.

/// All that the system knows of an op; the data sheets follow below.
struct Op {
  const char* name;
  double (*element)(double x, double y) = nullptr;  // elementwise: what one element is, and ...
  std::vector<Array (*)(A x, A y, A out)> slopes = {};  // ... d out / dx, d out / dy
  Array (*transpose)(A ct, A out, int k) = nullptr;  // the cotangent of operand k, from that of `out`
  void (*batch)(Dims& shape, Dims& dims, int size) = nullptr;  // changes the attributes for a batch dim in front
};
namespace ops {
extern const Op exp, add, sub, mul, div, sum, broadcast;
}

Arrays compute(const Function& f, const Arrays& inputs);
bool is_number(A x, double value) { return !x->is_traced && x->shape.empty() && x->numbers[0] == value; }

Array apply(const Op& op, Arrays x, Dims dims = {}, Dims shape = {}) {
  if (&op == &ops::mul && is_number(x[0], 1)) return x[1];  // 1 * x = x
  if ((&op == &ops::mul || &op == &ops::div) && is_number(x[1], 1)) return x[0];  // x * 1 = x / 1 = x
  if (&op == &ops::sum && dims.empty()) return x[0];
  if (&op == &ops::broadcast && x[0]->op == &ops::broadcast)  // one does for two
    return apply(op, x[0]->operands, pick(dims, x[0]->dims), shape);
  if (&op == &ops::broadcast && shape == x[0]->shape && dims == others(count(shape))) return x[0];

  if (&op == &ops::sum) shape = pick(x[0]->shape, others(count(x[0]->shape), dims));
  if (op.element) shape = x.front()->shape.empty() ? x.back()->shape : x.front()->shape;
  const bool is_traced = x.front()->is_traced || x.back()->is_traced;
  const Array out(Node{&op, x, std::move(shape), std::move(dims)});
  return is_traced ? out : compute({x, {out}}, x)[0];
}

/// An operand of rank 0 is read everywhere.
Array elementwise(const Op& op, A x, A y) {
  if (x->shape == y->shape || x->shape.empty() || y->shape.empty()) return apply(op, {x, y});
  throw std::invalid_argument(op.name + (": shapes " + text(x->shape)) + " and " + text(y->shape) + " must match");
}
Array operator+(A x, A y) { return elementwise(ops::add, x, y); }
Array operator-(A x, A y) { return elementwise(ops::sub, x, y); }
Array operator*(A x, A y) { return elementwise(ops::mul, x, y); }
Array operator/(A x, A y) { return elementwise(ops::div, x, y); }
Array operator-(A x) { return -1 * x; }
Array exp(A x) { return apply(ops::exp, {x}); }
Array sum(A x, const Dims& dims) { return apply(ops::sum, {x}, dims); }
Array sum(A x) { return sum(x, others(count(x->shape))); }
/// Dim d of x becomes dim dims[d] of the result, in order; along all others x is repeated.
Array broadcast(A x, const Dims& shape, const Dims& dims = {}) { return apply(ops::broadcast, {x}, dims, shape); }
/// Matrix [m, k] times vector [k]: a sum of products, which fusion will make one loop nest of.
Array dot(A x, A y) { return sum(x * broadcast(y, x->shape, {1}), {1}); }

// ---- Ops ------------------------------------------------------------------------------------------------------------
// An op is a data sheet, so a new op is one more sheet and nothing else. Elementwise ops give their slopes, by which
// every tangent becomes a product. Only four ops are therefore ever applied to tangents, and only these have to say how
// they are transposed.

Array one(A, A, A) { return 1; }
Array minus_one(A, A, A) { return -1; }
Array first(A x, A, A) { return x; }
Array second(A, A y, A) { return y; }
Array inverse(A, A y, A) { return 1 / y; }
Array transpose_add(A ct, A, int) { return ct; }
Array transpose_mul(A ct, A out, int k) { return ct * out->operands[1 - k]; }

// A sum repeats its cotangent, and a broadcast sums it over what it repeated.
Array transpose_sum(A ct, A out, int) {
  const Dims& shape = out->operands[0]->shape;
  return broadcast(ct, shape, others(count(shape), out->dims));
}
Array transpose_broadcast(A ct, A out, int) { return sum(ct, others(count(out->shape), out->dims)); }

void batch_sum(Dims&, Dims& dims, int) {
  for (int& d : dims) ++d;
}
void batch_broadcast(Dims& shape, Dims& dims, int size) {
  batch_sum(shape, dims, size);
  dims.insert(dims.begin(), 0);
  shape.insert(shape.begin(), size);
}

namespace ops {
const Op exp{"exp", [](double x, double) { return std::exp(x); }, {[](A, A, A out) { return out; }}};
const Op add{"add", [](double x, double y) { return x + y; }, {one, one}, transpose_add};
const Op sub{"sub", [](double x, double y) { return x - y; }, {one, minus_one}};
const Op mul{"mul", [](double x, double y) { return x * y; }, {second, first}, transpose_mul};
const Op div{"div", [](double x, double y) { return x / y; }, {inverse, [](A, A y, A out) { return -out / y; }}};
const Op sum{"sum", nullptr, {}, transpose_sum, batch_sum};
const Op broadcast{"broadcast", nullptr, {}, transpose_broadcast, batch_broadcast};
}  // namespace ops

// ---- Transforms -----------------------------------------------------------------------------------------------------
// A transform is a walk over the equations of a function that writes other ones. jvp puts a tangent beside each value;
// linearize keeps of that what depends on the tangent, everything else being known by then; transpose walks that
// linear rest backwards, so that one cotangent gives a whole gradient; batch gives each value a dim more. None of them
// knows of the others, and they compose because each takes and gives functions.

using Map = std::map<Array, Array>;
Array plus(A x, A y) { return x && y ? x + y : x ? x : y; }
/// x, of rank 0 or absent, as an array of that shape.
Array filled(A x, const Dims& shape) { return x && x->shape == shape ? x : broadcast(x ? x : 0, shape); }

/// f's results, its parameters being these.
Arrays substitute(const Function& f, const Arrays& in) {
  Map at;
  for (int k = 0; k < count(in); ++k) at[f.params[k]] = in[k];
  const auto moved = [&](Arrays list) {
    for (Array& x : list)
      if (const auto found = at.find(x); found != at.end()) x = found->second;
    return list;
  };
  for (A e : equations(f)) at[e] = apply(*e->op, moved(e->operands), e->dims, e->shape);
  return moved(f.results);
}

/// (x, dx) -> (y, dy).
Function jvp(const Function& f) {
  const Array x = f.params[0], dx = parameter(x->shape), y = f.results[0];
  Map tangent = {{x, dx}};
  for (A e : equations(f)) {
    for (int k = 0; k < count(e->operands); ++k) {
      const Array d = tangent[e->operands[k]];
      if (!d) continue;
      const Array part = e->op->element ? e->op->slopes[k](e->operands.front(), e->operands.back(), e) * d
                                        : apply(*e->op, {d}, e->dims, e->shape);
      tangent[e] = plus(tangent[e], filled(part, e->shape));
    }
  }
  return {{x, dx}, {y, filled(tangent[y], y->shape)}};
}

/// dx -> dy. This is the part of jvp that waits for dx; the rest is known by then, being computed beside f itself.
Function linearize(const Function& f) {
  const Function both = jvp(f);
  return {{both.params[1]}, {both.results[1]}};
}

/// A linear dx -> dy, as the cotangent of y -> the cotangent of x.
Function transpose(const Function& f) {
  const Array dx = f.params[0], dy = f.results[0], ct = parameter(dy->shape);
  const Arrays eqns = equations(f);
  std::set<Array> is_linear(eqns.begin(), eqns.end());
  is_linear.insert(dx);
  Map cotangent = {{dy, ct}};
  for (auto e = eqns.rbegin(); e != eqns.rend(); ++e) {  // readers first
    for (int k = 0; k < count((*e)->operands); ++k) {
      const Array operand = (*e)->operands[k];
      if (!is_linear.contains(operand)) continue;
      const Array part = (*e)->op->transpose(cotangent[*e], *e, k);
      const bool was_repeated = operand->shape.empty() && !part->shape.empty();
      cotangent[operand] = plus(cotangent[operand], was_repeated ? sum(part) : part);
    }
  }
  return {{ct}, {filled(cotangent[dx], dx->shape)}};
}

/// f of `size` examples, whose parameters and result have them along a new first dim.
Function batch(const Function& f, int size) {
  Map at;
  const auto batched = [&](Dims shape) {
    shape.insert(shape.begin(), size);
    return shape;
  };
  const auto widened = [&](A x, const Dims& shape) {  // x for each example, of that shape
    const Array b = at[x] ? at[x] : broadcast(x, batched(x->shape), others(count(x->shape) + 1, {0}));
    return b->shape.size() == 1 ? broadcast(b, batched(shape), {0}) : b;
  };
  Arrays params;
  for (A p : f.params) params.push_back(at[p] = parameter(batched(p->shape)));
  for (A e : equations(f)) {
    Arrays x = e->operands;
    Dims shape = e->shape, dims = e->dims;
    for (Array& o : x) o = !e->op->element ? at[o] : at[o] || !o->shape.empty() ? widened(o, shape) : o;
    if (e->op->batch) e->op->batch(shape, dims, size);
    at[e] = apply(*e->op, x, dims, shape);
  }
  return {params, {widened(f.results[0], f.results[0]->shape)}};
}

// ---- Fusion and loops -----------------------------------------------------------------------------------------------
// A kernel is one loop nest that computes one value. The elementwise equations that nothing else reads are computed in
// it, element by element, and never stored; what a broadcast repeats is read with stride 0. Here kernels are
// interpreted, where Sheaf emits machine code from the same description, or CUDA C++.

struct Step {
  const Op* op = nullptr;  // of registers x and y; none: loads an element of `source`
  int x = 0, y = 0;
  Array source = {};
  Dims strides = {};  // how far each loop moves in the source
};

struct Kernel {
  Array target;
  Dims loops, strides;  // of the target: 0 along what is summed
  std::vector<Step> steps = {};  // each fills a register; the last one goes to the target
  std::map<Array, int> registers = {};  // where elements of values are
  bool is_sum() const { return target->op == &ops::sum; }
};

struct Executable {
  Function function;
  std::vector<Kernel> kernels;
};

/// Strides in a row-major array of that shape whose dim d is loop dims[d] of `rank`.
Dims strides_of(const Dims& shape, const Dims& dims, int rank) {
  Dims strides(rank);
  for (int d = count(shape) - 1, step = 1; d >= 0; step *= shape[d--]) strides[dims[d]] = step;
  return strides;
}

/// For each equation the value whose kernel computes it: itself, if readers are in two kernels or loop otherwise.
Map homes(const Function& f, const Arrays& eqns) {
  Map home;
  for (A r : f.results) home[r] = r;
  for (auto e = eqns.rbegin(); e != eqns.rend(); ++e) {  // readers first
    if ((*e)->op == &ops::sum) home[*e] = *e;
    for (A o : (*e)->operands) {
      if (o->op == &ops::broadcast) continue;  // a way to read, not a value
      const bool loops_differ = (*e)->op == &ops::broadcast || ((*e)->op->element && o->shape != (*e)->shape);
      const Array wanted = loops_differ ? o : home[*e];
      home[o] = !home[o] || home[o] == wanted ? wanted : o;
    }
  }
  return home;
}

/// The register of the kernel that holds an element of x.
int element(Kernel& k, const Map& home, A x) {
  if (const auto found = k.registers.find(x); found != k.registers.end()) return found->second;
  Step s;
  if (x->op && x->op->element && home.at(x) == k.target) {
    s.op = x->op;
    s.x = element(k, home, x->operands.front());
    s.y = element(k, home, x->operands.back());
  } else {
    const bool is_view = x->op == &ops::broadcast;
    s.source = is_view ? x->operands[0] : x;
    s.strides = strides_of(s.source->shape, is_view ? x->dims : others(count(x->shape)), count(k.loops));
  }
  k.steps.push_back(s);
  return k.registers[x] = count(k.steps) - 1;
}

Executable compile(const Function& f) {
  const Arrays eqns = equations(f);
  const Map home = homes(f, eqns);
  Executable out{f, {}};
  for (A e : eqns) {
    if (!home.contains(e) || home.at(e) != e) continue;
    const Array over = e->op == &ops::sum ? e->operands[0] : e;
    const int rank = count(over->shape);
    Kernel k{e, over->shape, strides_of(e->shape, others(rank, over == e ? Dims() : e->dims), rank)};
    element(k, home, over);
    out.kernels.push_back(std::move(k));
  }
  return out;
}

Arrays run(const Executable& x, const Arrays& inputs) {
  Map memory;
  for (int k = 0; k < count(inputs); ++k) memory[x.function.params[k]] = inputs[k];
  const auto stored = [&](A value) {
    if (const auto found = memory.find(value); found != memory.end()) return found->second;
    if (value->is_traced) throw std::logic_error("a traced value is used after its trace ended");
    return value;
  };
  for (const Kernel& k : x.kernels) {
    std::vector<double> out(size_of(k.target->shape)), registers(k.steps.size());
    Dims at(k.loops.size());
    const auto offset = [&](const Dims& strides) {
      return std::inner_product(at.begin(), at.end(), strides.begin(), 0);
    };
    for (int n = size_of(k.loops); n > 0; --n) {
      for (int r = 0; r < count(k.steps); ++r) {
        const Step& s = k.steps[r];
        registers[r] =
            s.op ? s.op->element(registers[s.x], registers[s.y]) : stored(s.source)->numbers[offset(s.strides)];
      }
      double& to = out[offset(k.strides)];
      to = k.is_sum() ? to + registers.back() : registers.back();
      for (int d = count(at) - 1; d >= 0 && ++at[d] == k.loops[d]; --d) at[d] = 0;
    }
    memory[k.target] = Array(k.target->shape, std::move(out));
  }
  Arrays results;
  for (A r : x.function.results) results.push_back(stored(r));
  return results;
}

Arrays compute(const Function& f, const Arrays& inputs) { return run(compile(f), inputs); }

std::string text(const Kernel& k) {
  std::string out = "loops over " + text(k.loops);
  for (int r = 0; r < count(k.steps); ++r) {
    const Step& s = k.steps[r];
    out += "\n  v" + std::to_string(r) + " = " + (s.op ? s.op->name : "load, strides " + text(s.strides));
    if (s.op) out += " v" + std::to_string(s.x) + " v" + std::to_string(s.y);
  }
  return out + "\n  store" + (k.is_sum() ? " the sum" : "") + ", strides " + text(k.strides) + "\n";
}

// ---- What users call ------------------------------------------------------------------------------------------------
// Here C++ types end: a lambda is called with parameters, and from then on there are functions only. jit keeps what it
// has compiled by the shapes of the arguments, since nothing else in a program depends on them.

template <class F, std::size_t... I>
Function trace(const F& f, const std::vector<Dims>& shapes, std::index_sequence<I...>) {
  const Arrays p = {parameter(shapes[I])...};
  return {p, {f(p[I]...)}};
}

/// The gradient in the first argument.
template <class F>
auto grad(F f) {
  return [=](A x, const auto&... rest) {
    // Fresh even where x is traced already: f may also have captured x, and has no derivative in that.
    const Array p = parameter(x->shape), y = f(p, rest...);
    if (!y->shape.empty()) throw std::invalid_argument("grad: the result has shape " + text(y->shape) + ", not []");
    const Array gradient = substitute(transpose(linearize({{p}, {y}})), {1})[0];
    return substitute({{p}, {gradient}}, {x})[0];
  };
}

/// f of every example; all arguments have them along their first dim.
template <class F>
auto vmap(F f) {
  return [=](const auto&... x) {
    const Arrays in = {Array(x)...};
    std::vector<Dims> shapes;
    for (A a : in) shapes.emplace_back(a->shape.begin() + 1, a->shape.end());
    return substitute(batch(trace(f, shapes, std::index_sequence_for<decltype(x)...>()), in[0]->shape[0]), in)[0];
  };
}

/// f, compiled once for all arguments of the same shapes.
template <class F>
struct Jit {
  F f;
  std::map<std::vector<Dims>, Executable> programs = {};

  template <class... X>
  Array operator()(const X&... x) {
    const Arrays in = {Array(x)...};
    std::vector<Dims> shapes;
    for (A a : in) {
      if (a->is_traced) return f(x...);  // part of a larger program
      shapes.push_back(a->shape);
    }
    if (!programs.contains(shapes)) programs[shapes] = compile(trace(f, shapes, std::index_sequence_for<X...>()));
    return run(programs[shapes], in)[0];
  }
};

}  // namespace tiny

// ---- A program ------------------------------------------------------------------------------------------------------
// A regression learns three slopes by gradient descent, and each transform is held against what calculus says.

using tiny::Array;

Array loss(const Array& slopes, const Array& x, const Array& y) {
  const Array error = dot(x, slopes) - y;
  return sum(error * error) / x->shape[0];
}

bool is_near(const Array& got, const Array& want) {
  const auto near = [](double x, double y) { return std::abs(x - y) < 1e-9; };
  return std::equal(got->numbers.begin(), got->numbers.end(), want->numbers.begin(), want->numbers.end(), near);
}

bool learns() {
  std::vector<double> points;
  for (int i = 0; i < 48; ++i) points.push_back(std::sin(i * i));
  const Array x({16, 3}, points), truth({3}, {2, -1, 0.5}), y = dot(x, truth);
  tiny::Jit step{
      [](const Array& w, const Array& in, const Array& out) { return w - 0.5 * tiny::grad(loss)(w, in, out); }};
  Array slopes({3}, {0, 0, 0});
  for (int i = 0; i < 400; ++i) slopes = step(slopes, x, y);
  const auto& kernels = step.programs.begin()->second.kernels;
  std::printf("a step is %d kernels, the first: %s", tiny::count(kernels), text(kernels.front()).c_str());
  return is_near(slopes, truth) && step.programs.size() == 1;
}

// Of the logistic function s, whose second derivative is s (1 - s) (1 - 2 s), at many points.
bool maps_second_derivatives() {
  const auto logistic = [](const Array& x) { return 1 / (1 + exp(-x)); };
  const Array xs({4}, {-3, -0.5, 0, 2}), s = logistic(xs);
  tiny::Jit second{tiny::vmap(tiny::grad(tiny::grad(logistic)))};
  return is_near(second(xs), s * (1 - s) * (1 - 2 * s));
}

// The gradient in what is not mapped, for each example that is: of sum(e^(w x)) it is x e^(w x).
bool maps_gradients() {
  const auto f = [](const Array& w, const Array& x) { return sum(exp(w * x)); };
  const Array w({3}, {0.5, -1, 2}), xs({2, 3}, {1, 2, 3, -1, 0, 0.25});
  tiny::Jit per_example{tiny::vmap([&](const Array& x) { return tiny::grad(f)(w, x); })};
  return is_near(per_example(xs), xs * exp(broadcast(w, {2, 3}, {1}) * xs));
}

int main() {
  const bool ok = learns() && maps_second_derivatives() && maps_gradients();
  std::printf("tiny_sheaf: %s\n", ok ? "all checks hold" : "A CHECK FAILED");
  return ok ? 0 : 1;
}
