// FNV-1a with 128 bits (draft-eastlake-fnv): no seed, no state, and far more bits than there will be kernels. It guards
// against accidents, not against adversaries: whoever can write the cache can write the code in it.
#include "codegen/fingerprint.h"

#include <cstdint>

namespace sheaf::codegen {

std::string fingerprint(std::string_view text) {
  __extension__ using Wide = unsigned __int128;
  const Wide prime = (Wide{1} << 88) + 0x13b;
  Wide hash = (Wide{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
  for (char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= prime;
  }
  std::string digits(32, '0');
  for (int i = 31; i >= 0; --i, hash >>= 4) digits[static_cast<std::size_t>(i)] = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace sheaf::codegen
