// A kernel may touch what is alive on its device, pinned memory, and what its device was given access to elsewhere.
#include "tests/emulator/fake_cuda/kernel.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/emulator/image.h"

namespace sheaf::fake_cuda {
namespace {

using namespace cuda;

// A cubin runs on devices of its own major number and no older minor one; "a" means exactly that device.
bool runs_on(std::string_view architecture, const Options& device) {
  int number = 0;
  char variant = 0;
  const int read = std::sscanf(std::string(architecture).c_str(), "sm_%d%c", &number, &variant);
  if (read < 1 || number / 10 != device.major) return false;
  return read == 2 ? number % 10 == device.minor : number % 10 <= device.minor;
}

/// A block that the kernel may touch, and whose memory it is.
struct Seen {
  Memory* memory = nullptr;
  BlockPtr block;
};

std::vector<Seen> seen_by(const Device& device) {
  std::vector<Seen> seen;
  for (const auto& d : driver().devices) {
    const auto& from = d->memory.accessible_from;
    const bool sees_pool = d.get() == &device || std::find(from.begin(), from.end(), device.ordinal) != from.end();
    const bool sees_plain = d.get() == &device || device.peers.count(d->ordinal) > 0;
    for (const auto& [base, block] : d->memory.alive())
      if (block->is_pooled ? sees_pool : sees_plain) seen.push_back({&d->memory, block});
  }
  return seen;
}

/// First those of `seen`, then the host's.
std::vector<emulator::Allocation> allocations_of(const std::vector<Seen>& seen) {
  std::vector<emulator::Allocation> allocations;
  for (const Seen& s : seen)
    allocations.push_back({.data = reinterpret_cast<std::byte*>(s.block->base),
                           .bytes = s.block->bytes,
                           .name = s.block->name(),
                           .marks = s.memory->marks(s.block->base)});
  for (const auto& [at, block] : driver().host)
    allocations.push_back({.data = reinterpret_cast<std::byte*>(at),
                           .bytes = block.bytes,
                           .name = fmt::format("{} bytes of pinned memory", block.bytes)});
  return allocations;
}

// A launch that touches a block in more places than this is known by the first of them.
constexpr std::size_t kMaxRanges = 256;

/// The first byte from `i` on with this mark, or `end`. Most of a large block has none, so eight are looked at
/// together.
std::int64_t next_marked(const std::uint8_t* marks, std::int64_t i, std::int64_t end, std::uint8_t mark) {
  const std::uint64_t all = 0x0101010101010101 * mark;
  for (std::uint64_t eight; i + 8 <= end; i += 8) {
    std::memcpy(&eight, marks + i, sizeof eight);
    if (eight & all) break;
  }
  while (i < end && !(marks[i] & mark)) ++i;
  return i;
}

/// The runs of bytes that have this mark, which they lose.
std::vector<Range> take_marked(const BlockPtr& block, const emulator::Allocation& a, std::uint8_t mark) {
  std::vector<Range> runs;
  for (std::int64_t i = a.touched_begin; (i = next_marked(a.marks, i, a.touched_end, mark)) < a.touched_end; ++i) {
    a.marks[i] = static_cast<std::uint8_t>(a.marks[i] & ~mark);
    if (!runs.empty() && runs.back().offset + runs.back().bytes == i) ++runs.back().bytes;
    else if (runs.size() < kMaxRanges) runs.push_back({block, i, 1});
  }
  return runs;
}

/// What is wrong with the order of this launch among others, or "".
std::string note_touches(const std::vector<Seen>& seen, const std::vector<emulator::Allocation>& allocations,
                         const Position& at) {
  using emulator::Mark;
  std::string wrong;
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (const std::uint8_t mark : {Mark::kRead, Mark::kWritten})
      for (const Range& r : take_marked(seen[i].block, allocations[i], mark)) {
        std::string w = touch(*seen[i].memory, r, mark == Mark::kWritten, at);
        if (wrong.empty()) wrong = std::move(w);
      }
  return driver().options.checks_kernels ? wrong : "";  // unchecked, a run marks everything
}

CUresult result_of(std::string_view fault_kind) {
  if (fault_kind == "bounds") return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (fault_kind == "misaligned") return CUDA_ERROR_MISALIGNED_ADDRESS;
  return CUDA_ERROR_LAUNCH_FAILED;
}

void count(const emulator::Counters& c) {
  Counters& sum = driver().counters;
  sum.sectors_read += c.sectors_read;
  sum.sectors_written += c.sectors_written;
  sum.ideal_sectors_read += c.ideal_sectors_read;
  sum.ideal_sectors_written += c.ideal_sectors_written;
  sum.shared_wavefronts += c.shared_wavefronts;
  sum.ideal_shared_wavefronts += c.ideal_shared_wavefronts;
}

emulator::Policy next_policy() {
  const Options& o = driver().options;
  emulator::Policy policy{
      .is_checked = o.checks_kernels, .counts_accesses = o.counts_accesses, .seed = driver().random()};
  if (o.order == Options::Order::waited_last) policy.order = emulator::Order::reverse;
  if (o.order != Options::Order::random) return policy;
  policy.order = static_cast<emulator::Order>(driver().random() % 3);
  policy.late_copies = driver().random() % 2 == 0;
  return policy;
}

CUresult run(const LaunchCall& call, const Position& at) {
  Device& device = *call.function->device;
  const std::vector<Seen> seen = seen_by(device);
  std::vector<emulator::Allocation> allocations = allocations_of(seen);
  std::vector<void*> parameters;
  for (const auto& a : call.arguments) parameters.push_back(const_cast<std::byte*>(a.data()));
  ++driver().counters.kernels;
  const auto ran = emulator::run(*call.function->kernel, call.launch, parameters.data(), allocations, next_policy());
  const std::string wrong = note_touches(seen, allocations, at);
  if (!ran.ok())
    return fault(device, result_of(emulator::fault_kind(ran.status())),
                 fmt::format("{}: {}", at.what, std::string(ran.status().message())));
  count(*ran);
  return wrong.empty() ? CUDA_SUCCESS : fault(device, CUDA_ERROR_LAUNCH_FAILED, wrong);
}

}  // namespace

Limits limits() {
  const auto [major, minor] = std::pair(driver().options.major, driver().options.minor);
  if (major == 12)
    return {.shared_bytes_opt_in = 101376,
            .shared_bytes_per_multiprocessor = 102400,
            .multiprocessors = 170,
            .threads_per_multiprocessor = 1536,
            .blocks_per_multiprocessor = 24};
  if (major == 8 && minor == 0)
    return {.shared_bytes_opt_in = 166912, .shared_bytes_per_multiprocessor = 167936, .multiprocessors = 108};
  if (major == 8)
    return {.shared_bytes_opt_in = 101376,
            .shared_bytes_per_multiprocessor = 102400,
            .multiprocessors = 84,
            .threads_per_multiprocessor = 1536,
            .blocks_per_multiprocessor = 16};
  return {.shared_bytes_opt_in = 232448, .shared_bytes_per_multiprocessor = 233472, .multiprocessors = 132};
}

CUresult load_module(Device& device, const void* bytes, std::shared_ptr<Module>* module, std::string* log) {
  const auto image = emulator::read_image(bytes);
  if (!image.ok()) {
    *log = std::string(image.status().message());
    return misuse(absl::IsFailedPrecondition(image.status()) ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE,
                  "cuModuleLoadDataEx: " + *log);
  }
  if (!runs_on(image->architecture, driver().options)) {
    *log = fmt::format("an image for {}, and device {} is sm_{}{}", image->architecture, device.ordinal,
                       driver().options.major, driver().options.minor);
    return misuse(CUDA_ERROR_NO_BINARY_FOR_GPU, "cuModuleLoadDataEx: " + *log);
  }
  auto code = emulator::load(image->text);
  if (!code.ok()) {
    *log = std::string(code.status().message());
    return misuse(CUDA_ERROR_INVALID_SOURCE, "cuModuleLoadDataEx: " + *log);
  }
  *module = std::make_shared<Module>(Module{.device = &device, .code = *std::move(code)});
  return CUDA_SUCCESS;
}

std::string wrong_with(const Function& f, const emulator::Launch& l) {
  const auto [grid, block] = std::pair(l.grid, l.block);
  const std::int64_t threads = std::int64_t{block.x} * block.y * block.z;
  const auto wrong = [&](std::string_view what) { return fmt::format("{}: {}", f.kernel->name, what); };
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || threads < 1)
    return wrong(fmt::format("an empty grid ({}, {}, {}) or block ({}, {}, {})", grid.x, grid.y, grid.z, block.x,
                             block.y, block.z));
  if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
    return wrong(
        fmt::format("a grid of ({}, {}, {}), the limit is (2147483647, 65535, 65535)", grid.x, grid.y, grid.z));
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || threads > 1024)
    return wrong(fmt::format("a block of ({}, {}, {}), the limit is (1024, 1024, 64) and 1024 threads", block.x,
                             block.y, block.z));
  if (threads > f.kernel->max_threads)
    return wrong(fmt::format("{} threads, its launch bound is {}", threads, f.kernel->max_threads));
  std::int64_t parameter_bytes = 0;
  for (const int bytes : f.kernel->param_bytes) parameter_bytes += (bytes + 7) / 8 * 8;
  const int most_bytes = driver().options.version >= 12010 ? 32764 : 4096;
  if (parameter_bytes > most_bytes)
    return wrong(fmt::format("{} bytes of parameters, the limit is {}", parameter_bytes, most_bytes));
  if (l.dynamic_shared_bytes > f.max_dynamic_bytes)
    return wrong(
        fmt::format("{} bytes of dynamic shared memory, it may have {}", l.dynamic_shared_bytes, f.max_dynamic_bytes));
  return "";
}

std::vector<std::vector<std::byte>> arguments_of(const Function& function, void* const* parameters) {
  std::vector<std::vector<std::byte>> arguments;
  for (std::size_t i = 0; i < function.kernel->param_bytes.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(parameters[i]);
    arguments.emplace_back(from, from + function.kernel->param_bytes[i]);
  }
  return arguments;
}

Work work_of(LaunchCall call) {
  return {.kind = Work::Kind::run, .what = call.name(), .run = [call = std::move(call)](const Position& at) {
            return run(call, at);
          }};
}

}  // namespace sheaf::fake_cuda
