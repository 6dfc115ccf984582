// A function as the interpreter computes it: traced, and its calls, custom rules and checkpoints expanded. The oracle for
// what the compiled program gives.
#pragma once

#include <doctest/doctest.h>

#include <cstring>

#include "ir/text.h"
#include "sheaf/sheaf.h"
#include "tests/passes/programs.h"
#include "trace/trace_call.h"

namespace sheaf::tests {

inline ir::Literal literal_of(const Array& x) {
  ir::Literal out(ir::Type(x.dtype(), x.shape()));
  for (std::int64_t i = 0; const double v : x.to_vector<double>()) out.set(i++, v);
  return out;
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

template <class F, class... A>
Interpreted interpreted(const F& f, const A&... args) {
  const typename detail::StoredArgs<typename detail::ParamsOf<F>::type, A...>::type stored(args...);
  return std::apply(
      [&]<class... S>(const S&... s) {
        const detail::CallOf<F, S...> call(f, Loc{}, s...);
        const Traced t = trace_call(call, {.what = "test", .name = "f", .loc = {}}, leaf_types(call));
        ir::Literals in;
        for (const Array& x : inputs_of(call, t)) in.push_back(literal_of(x));
        return Interpreted{t.function, value_of(t.function, in)};
      },
      stored);
}

}  // namespace sheaf::tests
