// `jit`: a function that is traced once per signature, compiled, and from then on run. The signature decides what is
// traced: Arrays, anywhere in the argument trees, are; everything else is static and part of the key, so another value
// means another trace. Captured Arrays are inputs, never baked in; captured host values are baked in.
#pragma once

#include "sheaf/aot.h"
#include "sheaf/call.h"
#include "sheaf/communication.h"
#include "sheaf/mesh.h"

namespace sheaf {

/// One length that varies from call to call, where it is in the arguments (of all arrays of a tree), and the lengths
/// that programs are made for: docs/buckets.md.
struct Buckets {
  struct Dim {
    int argument = 0, dim = 0;
  };
  std::vector<std::int64_t> sizes = {};
  std::vector<Dim> dims = {{0, 0}};
};

struct JitOptions {
  std::string name = {};               // in messages, dumps and profiles
  std::vector<std::string> args = {};  // the arguments' names there
  std::vector<int> donate = {};        // positions of arguments whose buffers the call may overwrite
  bool inlined = false;                // inside another jit: no call, the equations themselves
  // Of a call on a mesh; docs/sharding.md says what becomes of arguments that lie otherwise.
  Mesh mesh = {};  // where no argument is on one
  std::vector<Specs> in_shardings =
      {};   // per argument; empty: where they are, and what nobody put anywhere whole on all devices
  std::vector<Specs> out_shardings = {};  // per element of a tuple or pair returned, or one for the result; empty, or
                                          // unconstrained: as the compiler likes
  CommunicationLimits limits = {};  // of the outermost jit
  std::vector<Buckets> buckets = {};  // lengths that share programs
};

namespace detail {

class JitFunction;  // the cache of one jitted function

/// A stateless lambda is known by its type and the line of jit, a function by its address too; a capturing lambda by
/// the object alone.
struct Identity {
  const void* type = nullptr;
  const void* address = nullptr;
  bool is_object = false;
};

std::shared_ptr<JitFunction> make_jit(Identity identity, JitOptions options, Loc loc);
/// Appends the result's leaves to `out`.
const Structure& call_jit(JitFunction& f, const FlatCall& call, Leaves& out);
std::int64_t count_compiles(const JitFunction& f);
std::int64_t count_traces(const JitFunction& f);
/// The program of the function for this call.
aot::detail::Ptr<aot::detail::Program> trace_jit(JitFunction& f, const FlatCall& call);

template <class F>
Identity identity_of(const F& f) {
  if constexpr (std::is_empty_v<F>) return {&type_identity<F>, nullptr};
  else if constexpr (FunctionPointer<F>) return {&type_identity<F>, reinterpret_cast<const void*>(f)};
  else return {&type_identity<F>, nullptr, true};
}

template <class F>
class JitBody {
 public:
  JitBody(F f, JitOptions options, Loc loc)
      : f_(std::move(f)), loc_(loc), function_(make_jit(identity_of(f_), std::move(options), loc)) {}

  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    const CallOf<F, A...> call(f_, loc, args...);
    Leaves leaves;
    const Structure& structure = call_jit(*function_, call, leaves);
    return rebuild<typename CallOf<F, A...>::Result>(structure, leaves.span());
  }

  /// The program for arguments of these types (abstract() will do), traced unless it has been; see sheaf/aot.h. What is
  /// no array is part of the program. Nothing is run. Throws what f throws, and TypeError where f uses values or a
  /// named axis of a trace around it.
  template <class... A>
  auto trace(const A&... args) const {
    return trace_as(typename ParamsFor<F, sizeof...(A)>::type{}, args...);
  }
  /// Its text; nothing is run.
  template <class... A>
  std::string text(const A&... args) const {
    return trace(args...).text();
  }

  /// The page that its compiled form gives, Compiled::report() in sheaf/aot.h; nothing is run.
  template <class... A>
  std::string report(const A&... args) const {
    return trace(args...).lower().compile().report();
  }

  Loc made_at() const { return loc_; }
  JitFunction& function() const { return *function_; }

 private:
  template <class... P, class... A>
  auto trace_as(Params<P...>, const A&... args) const {
    return trace_stored<Stored<P>...>(args...);
  }
  template <class... A>
  auto trace_as(Generic, const A&... args) const {
    return trace_stored<std::decay_t<A>...>(args...);
  }
  template <class... S>
  auto trace_stored(const S&... args) const {
    const CallOf<F, S...> call(f_, loc_, args...);
    return aot::Traced<typename CallOf<F, S...>::Result, S...>(trace_jit(*function_, call));
  }

  F f_;
  Loc loc_;
  std::shared_ptr<JitFunction> function_;
};

/// Traces without running and gives leaves that have a shape and a dtype, and no value.
std::vector<Array> abstract_call(const FlatCall& call, Structure& result);

}  // namespace detail

/// f, compiled. The result is called like f; copies share what has been compiled.
template <class F>
auto jit(F f, JitOptions options = {}, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::JitBody<F>>(std::move(f), std::move(options), loc);
}

/// Programs that calls of f have used so far; signatures that give the same program share one. What warm compiled
/// counts from the first call on: whether a call compiles, stats().programs says.
template <class J>
std::int64_t compiles(const J& f) {
  return detail::count_compiles(f.function());
}
/// Times f has been traced.
template <class J>
std::int64_t traces(const J& f) {
  return detail::count_traces(f.function());
}

/// An Array with a shape and a dtype and no value, for eval_shape.
Array abstract(const Shape& shape, DType dtype = f32, Loc loc = Loc::current());

namespace detail {
struct EvalShape {
  template <class F, class... A>
  auto operator()(Loc loc, const F& f, const A&... args) const {
    const typename StoredArgs<typename ParamsOf<F>::type, A...>::type stored(args...);
    return std::apply(
        [&]<class... S>(const S&... s) {
          Structure structure;
          const CallOf<F, S...> call(f, loc, s...);
          const std::vector<Array> leaves = abstract_call(call, structure);
          return rebuild<typename CallOf<F, S...>::Result>(structure, leaves);
        },
        stored);
  }
};
}  // namespace detail

/// eval_shape(f, arguments...): the result of f with leaves that have only shapes and dtypes. Nothing is run.
inline constexpr detail::WithLine<detail::EvalShape> eval_shape{};

/// What has happened in this process so far.
struct Stats {
  std::int64_t traces = 0;  // user functions traced by jit
  std::int64_t programs = 0;  // programs planned and loaded
  std::int64_t kernels_compiled = 0;
  std::int64_t kernels_loaded = 0;  // made callable: compiled or read from a cache
  std::int64_t executions = 0;  // programs run
  std::int64_t launches = 0;  // kernels run
  std::int64_t interpreted_launches = 0;  // of those, by the interpreter
};
Stats stats();

}  // namespace sheaf
