// The lap in one call, for tests that compare its forms: passes, code generation, runtime, on one device.
#pragma once

#include <doctest/doctest.h>

#include "codegen/lower.h"
#include "ir/literal.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "runtime/executable.h"

namespace sheaf::tests {

/// f's results on `inputs`, through the whole pipeline in the given tier.
inline ir::Literals run(const ir::FunctionRef& f, const ir::Literals& inputs, runtime::Tier tier,
                        runtime::Device& device = runtime::device(0)) {
  const ir::Target target = device.backend().target();
  auto executable =
      runtime::Executable::load(codegen::lower(passes::run_pipeline(f, {.target = target}), target), {.tier = tier});
  REQUIRE_MESSAGE(executable.ok(), std::string(executable.status().message()));
  std::vector<runtime::BufferPtr> buffers;
  for (const ir::Literal& x : inputs) {
    auto buffer = runtime::Buffer::from_host(device, std::span(x.data(), x.bytes()), {});
    REQUIRE(buffer.ok());
    buffers.push_back(*std::move(buffer));
  }
  auto out = (*executable)->run(device, buffers);
  REQUIRE_MESSAGE(out.ok(), std::string(out.status().message()));
  ir::Literals results;
  for (std::size_t j = 0; j < out->size(); ++j) {
    results.emplace_back(f->results()[j].type());
    const absl::Status s = (*out)[j]->to_host(std::span(results[j].data(), results[j].bytes()));
    REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
  }
  return results;
}

/// Equal to the bit, any NaN equal to any other.
inline bool same_bits(const ir::Literal& a, const ir::Literal& b) {
  if (a.type() != b.type()) return false;
  if (is_complex(a.dtype())) return same_bits(a.as_parts(), b.as_parts());
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const bool nans = is_float(a.dtype()) && a.get(i) != a.get(i) && b.get(i) != b.get(i);
    if (!nans && a.bits(i) != b.bits(i)) return false;
  }
  return true;
}

}  // namespace sheaf::tests
