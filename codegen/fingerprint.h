// A 128-bit name for a text, the same in every process and on every machine: kernel keys and symbols are made of it.
#pragma once

#include <string>
#include <string_view>

namespace sheaf::codegen {

/// 32 hexadecimal digits.
std::string fingerprint(std::string_view text);

}  // namespace sheaf::codegen
