// Modules: what a compiled text exports, read once. A run is a Machine's life.
#include "tests/emulator/engine.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "tests/emulator/host_compiler.h"
#include "tests/emulator/kernel_text.h"
#include "tests/emulator/machine.h"

namespace sheaf::emulator {

Module::~Module() { dlclose(library_); }

int Module::line_of(const void* site) const {
  Dl_info info;
  if (!dladdr(site, &info)) return 0;
  const auto offset = reinterpret_cast<std::uintptr_t>(site) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = lines_.try_emplace(offset, 0);
  if (is_new) it->second = emulator::line_of(object_, offset);
  return it->second;
}

absl::StatusOr<std::shared_ptr<Module>> load(std::string_view text) {
  const auto object = compile_for_host(text);
  if (!object.ok()) return object.status();
  void* library = dlopen(object->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return absl::InternalError(dlerror());
  auto module = std::make_shared<Module>(library, *object);
  const auto* table = static_cast<const sf_host::ModuleTable*>(dlsym(library, "sf_module"));
  if (!table) return absl::InternalError(fmt::format("{} has no table of entries", *object));
  const std::vector<TextEntry> entries = entries_of(text);
  for (int i = 0; i < table->num_kernels; ++i) {
    const sf_host::KernelEntry& e = table->kernels[i];
    Kernel k{.name = e.name, .max_threads = entries[static_cast<std::size_t>(i)].max_threads};
    k.param_bytes.assign(e.param_bytes, e.param_bytes + e.params);
    k.call = e.call;
    k.module = module.get();
    for (const sf_host::SharedArray* a = table->shared_begin; a != table->shared_end; ++a) {
      if (k.name != a->kernel) continue;
      k.shared.push_back({a, a->name, static_cast<std::int64_t>(a->bytes)});
      k.static_shared_bytes += static_cast<std::int64_t>(a->bytes);
    }
    module->kernels_.push_back(std::move(k));
  }
  return module;
}

const Kernel* find(const Module& module, std::string_view entry) {
  for (const Kernel& k : module.kernels()) {
    if (k.name == entry) return &k;
  }
  return nullptr;
}

absl::StatusOr<Counters> run(const Kernel& kernel, const Launch& launch, void* const* params,
                             std::span<Allocation> allocations, const Policy& policy) {
  return Machine(kernel, launch, params, allocations, policy).run();
}

std::string_view fault_kind(const absl::Status& fault) {
  const std::string_view text(fault.message().data(), fault.message().size());
  return text.substr(0, text.find(':'));
}

}  // namespace sheaf::emulator
