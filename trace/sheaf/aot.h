// Ahead of time: the steps behind the first call of a jitted function, as values to look into and to keep.
//   jit(f).trace(args...)  -> Traced    the program as written, and the types of its results; args may be abstract()
//   .lower()               -> Lowered   the program as optimised, and its plan
//   .compile()             -> Compiled  machine code for these types alone, called like f
//   .compile_for("sm_90a") -> CompiledFor  the same for a machine that need not be this one, to look into and for
//                                       SHEAF_CACHE_DIR, whence processes on such a machine read it
// Invariant: a Compiled neither traces nor compiles; all of that has happened before it exists.
#pragma once

#include "sheaf/call.h"
#include "sheaf/communication.h"

namespace sheaf::aot {

/// Work of one run, read off the program: a scan counts its length, a while its max_trips, or one trip if it has none,
/// a cond its dearest branch.
struct Cost {
  double flops = 0;            // operations on elements; a multiply-add is two
  double bytes = 0;            // read and written by each kernel (Lowered: by each equation)
  double transcendentals = 0;  // calls of exp, log, tanh, pow and their like, which are no flops
};

/// What becomes of the buffer of one donated leaf.
struct Donation {
  std::string argument = {};   // "argument 0 .W"
  std::string result = {};     // that lies there from then on: "result [1]"; empty: none does
  std::string otherwise = {};  // why none does
};

/// Bytes that one run needs; of a program on a mesh, on each device.
struct Memory {
  std::int64_t arguments = 0;    // captured arrays included
  std::int64_t outputs = 0;
  std::int64_t aliased = 0;      // of the outputs: in buffers of donated arguments
  std::int64_t temporaries = 0;  // the most that intermediate results take at any time
  std::int64_t constants = 0;
  std::int64_t code = 0;         // machine code, in whole pages; kernels that other programs share count too
  std::vector<Donation> donations = {};  // of each leaf of the arguments listed in `donate`
};

/// One function of a kernel on a GPU: how it is launched, and what it takes, as the assembler says.
struct Function {
  std::string name;
  std::int64_t blocks = 1;
  int threads = 1;    // of a block
  int registers = 0;  // of a thread
  std::int64_t shared_bytes = 0;  // of a block
  std::int64_t stack_bytes = 0;   // of a thread
  std::int64_t spilled_bytes = 0;  // of a thread: to memory, for want of registers
};

/// One kernel, in the languages it goes through: LLVM's and the machine's on a CPU, CUDA C++ on a GPU.
struct Kernel {
  std::string name;
  std::string loops = {};  // the loop nest
  std::string llvm = {};
  std::string assembly = {};
  std::string cuda = {};
  std::vector<Function> functions = {};
  /// Machine code for a GPU: of this kernel, and of those that were compiled with it.
  std::shared_ptr<const std::vector<std::byte>> cubin = nullptr;
};

namespace detail {

struct Program;   // a traced signature
struct Lowering;  // its plan
struct Code;      // its machine code
template <class T>
using Ptr = std::shared_ptr<const T>;

std::string text(const Program& p);
/// Leaves with shapes and dtypes and no values.
std::vector<Array> results(const Program& p);
const sheaf::detail::Structure& structure(const Program& p);
Ptr<Lowering> lower(const Ptr<Program>& p);
std::string text(const Lowering& l);
Cost cost(const Lowering& l);
Memory memory(const Lowering& l);
CollectiveReport collectives(const Lowering& l);
Ptr<Code> compile(const Ptr<Lowering>& l);
Ptr<Code> compile_for(const Ptr<Lowering>& l, std::string_view target, Loc loc);
std::string target(const Code& c);
std::string text(const Code& c);
std::vector<Kernel> kernels(const Code& c);
Cost cost(const Code& c);
Memory memory(const Code& c);
std::vector<std::byte> serialize(const Code& c, Loc loc);
void save(const Code& c, const std::string& path, Loc loc);
std::string report(const Code& c);
void write_report(const Code& c, const std::string& path, Loc loc);
/// Appends the result's leaves to `out`.
const sheaf::detail::Structure& call(const Code& c, const sheaf::detail::FlatCall& arguments,
                                     sheaf::detail::Leaves& out);

/// Stands for a function where only its arguments matter.
struct NoFunction {
  template <class... A>
  None operator()(const A&...) const {
    return {};
  }
};
inline constexpr NoFunction no_function{};

}  // namespace detail

/// Machine code for arguments of the types it was traced with. It cannot be traced again: inside jit, grad and vmap
/// call the function it was made from.
template <class R, class... A>
class Compiled {
 public:
  explicit Compiled(detail::Ptr<detail::Code> code) : code_(std::move(code)) {}

  /// Throws TypeError naming every leaf whose type is another one, with both types.
  R operator()(const A&... args, Loc loc = Loc::current()) const {
    const sheaf::detail::CallOf<detail::NoFunction, A...> call(detail::no_function, loc, args...);
    sheaf::detail::Leaves leaves;
    const sheaf::detail::Structure& structure = detail::call(*code_, call, leaves);
    return sheaf::detail::rebuild<R>(structure, leaves.span());
  }

  /// The plan: kernels and steps of the host in their order, with the offsets of what they write.
  std::string text() const { return detail::text(*code_); }
  /// What the kernels became. Slow: compiles them again for their texts.
  std::vector<Kernel> kernels() const { return detail::kernels(*code_); }
  Cost cost() const { return detail::cost(*code_); }
  Memory memory() const { return detail::memory(*code_); }
  /// A page of HTML, which needs no other file: what each pass changed, the kernels with their source lines, bytes and
  /// operations, memory over the steps, and how arrays lie on a mesh. Slow: runs the passes again.
  std::string report() const { return detail::report(*code_); }
  /// The same to a file. Throws RuntimeError where it cannot be written.
  void report(const std::string& path, Loc loc = Loc::current()) const { detail::write_report(*code_, path, loc); }

  /// All of it, for load (sheaf/load.h) in a process that neither traces nor compiles; captured arrays are in it.
  /// Throws TypeError where it calls functions of this process.
  std::vector<std::byte> serialize(Loc loc = Loc::current()) const { return detail::serialize(*code_, loc); }
  /// The same to a file, which takes the place of what is there once it is whole; folders that are missing are made,
  /// for this user alone. Throws RuntimeError too where it cannot be written.
  void save(const std::string& path, Loc loc = Loc::current()) const { detail::save(*code_, path, loc); }

 private:
  detail::Ptr<detail::Code> code_;
};

/// Machine code for a target: all of Compiled but the call.
class CompiledFor {
 public:
  explicit CompiledFor(detail::Ptr<detail::Code> code) : code_(std::move(code)) {}

  std::string target() const { return detail::target(*code_); }
  std::string text() const { return detail::text(*code_); }
  std::vector<Kernel> kernels() const { return detail::kernels(*code_); }
  Cost cost() const { return detail::cost(*code_); }
  Memory memory() const { return detail::memory(*code_); }
  /// A page of HTML, which needs no other file: what each pass changed, the kernels with their source lines, bytes and
  /// operations, memory over the steps, and how arrays lie on a mesh. Slow: runs the passes again.
  std::string report() const { return detail::report(*code_); }
  /// The same to a file. Throws RuntimeError where it cannot be written.
  void report(const std::string& path, Loc loc = Loc::current()) const { detail::write_report(*code_, path, loc); }

 private:
  detail::Ptr<detail::Code> code_;
};

/// The program after all passes but those that make kernels of it.
template <class R, class... A>
class Lowered {
 public:
  explicit Lowered(detail::Ptr<detail::Lowering> lowering) : lowering_(std::move(lowering)) {}

  std::string text() const { return detail::text(*lowering_); }
  /// As if each equation ran alone: Compiled::cost() says what fusion saves.
  Cost cost() const { return detail::cost(*lowering_); }
  /// Without constants and code, which are not there yet.
  Memory memory() const { return detail::memory(*lowering_); }
  /// What the devices of a mesh send each other; empty where there is none.
  CollectiveReport collectives() const { return detail::collectives(*lowering_); }
  /// Compiles every kernel, and touches the memory that a run needs.
  Compiled<R, A...> compile() const { return Compiled<R, A...>(detail::compile(lowering_)); }
  /// Plans and compiles for "cpu" or a GPU's architecture ("sm_90a"), whatever devices there are here. Throws
  /// RuntimeError for what is no target, and where the compiler is missing, or not for this architecture.
  CompiledFor compile_for(std::string_view target, Loc loc = Loc::current()) const {
    return CompiledFor(detail::compile_for(lowering_, target, loc));
  }

 private:
  detail::Ptr<detail::Lowering> lowering_;
};

/// The program as written.
template <class R, class... A>
class Traced {
 public:
  explicit Traced(detail::Ptr<detail::Program> program) : program_(std::move(program)) {}

  std::string text() const { return detail::text(*program_); }
  /// The result's tree, its leaves with shapes and dtypes and no values.
  R results() const { return sheaf::detail::rebuild<R>(detail::structure(*program_), detail::results(*program_)); }
  Lowered<R, A...> lower() const { return Lowered<R, A...>(detail::lower(program_)); }

 private:
  detail::Ptr<detail::Program> program_;
};

}  // namespace sheaf::aot
