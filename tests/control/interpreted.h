// A function as the interpreter computes it: traced, and its calls, custom rules and checkpoints expanded. Whatever is
// interpreted is compiled and run too, and must agree.
#pragma once

#include <doctest/doctest.h>

#include <cstring>

#include "ir/text.h"
#include "sheaf/sheaf.h"
#include "tests/passes/programs.h"
#include "trace/recorder.h"
#include "trace/trace_call.h"

namespace sheaf::tests {

inline ir::Literal literal_of(const Array& x) {
  ir::Literal out(ir::Type(x.dtype(), x.shape()));
  for (std::int64_t i = 0; const double v : x.to_vector<double>()) out.set(i++, v);
  return out;
}

/// What the compiled program gives must be what the interpreter does, but for the rounding of functions like sin.
inline void check_compiled(const Traced& t, const std::vector<Array>& inputs, const ir::Literals& want) {
  const std::vector<Array> got = apply_function(t.function, inputs, Loc{});
  for (std::size_t j = 0; j < want.size(); ++j) {
    const double epsilon = size_bytes(want[j].dtype()) == 8 ? 1e-9 : 1e-4;
    const std::vector<double> values = got[j].to_vector<double>();
    for (std::int64_t i = 0; i < want[j].size(); ++i)
      CHECK_MESSAGE(values[i] == doctest::Approx(want[j].get(i)).epsilon(epsilon), "compiled, result ", j, ", element ",
                    i);
  }
}

struct Interpreted {
  ir::FunctionRef function;  // with what it captures as its last parameters
  ir::Literals results;

  std::vector<double> operator[](int j) const {
    std::vector<double> v;
    for (std::int64_t i = 0; i < results[j].size(); ++i) v.push_back(results[j].get(i));
    return v;
  }
  double scalar() const { return results[0].get(0); }
  std::string text() const { return ir::print(function); }
};

inline Interpreted interpreted_call(const detail::FlatCall& call, bool compiled) {
  const Traced t = trace_call(call, {.what = "test", .name = "f", .loc = {}}, leaf_types(call));
  ir::Literals in;
  for (const Array& x : inputs_of(call, t)) in.push_back(literal_of(x));
  Interpreted out{t.function, value_of(t.function, in)};
  if (compiled) check_compiled(t, inputs_of(call, t), out.results);
  return out;
}

template <class F, class... A>
Interpreted interpreted(const F& f, const A&... args) {
  const typename detail::StoredArgs<typename detail::ParamsFor<F, sizeof...(A)>::type, A...>::type stored(args...);
  return std::apply(
      [&]<class... S>(const S&... s) {
        const detail::CallOf<F, S...> call(f, Loc{}, s...);
        return interpreted_call(call, true);
      },
      stored);
}

/// The results alone, of a function of Arrays; nothing is compiled.
template <class F>
ir::Literals traced_value(const F& f, const Array& x, const Array& y) {
  return interpreted_call(detail::CallOf<F, Array, Array>(f, Loc{}, x, y), false).results;
}

}  // namespace sheaf::tests
