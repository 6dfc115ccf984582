// What a kernel text says of itself without a compiler: the entries it defines. Generated text and the tests' own are
// plain enough for that: `extern "C" __global__ void __launch_bounds__(threads) name(params)`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sheaf::emulator {

struct TextEntry {
  std::string name;
  int max_threads = 1024;  // of __launch_bounds__
};

std::vector<TextEntry> entries_of(std::string_view text);

}  // namespace sheaf::emulator
