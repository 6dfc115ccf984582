// An ELF64 header for machine 190, then "SFSRC", and the text and the architecture, each after its length.
#include "tests/emulator/image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace sheaf::emulator {
namespace {

constexpr std::uint16_t kCudaMachine = 190;  // EM_CUDA
constexpr std::string_view kMark("SFSRC\0\0\0", 8);

std::string take(const char*& at) {
  std::uint64_t length = 0;
  std::memcpy(&length, at, sizeof length);
  std::string part(at + sizeof length, length);
  at += sizeof length + length;
  return part;
}

}  // namespace

std::string write_image(const Image& image) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_machine = kCudaMachine;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  out += kMark;
  for (const std::string* part : {&image.text, &image.architecture}) {
    const std::uint64_t length = part->size();
    out.append(reinterpret_cast<const char*>(&length), sizeof length);
    out += *part;
  }
  return out;
}

absl::StatusOr<Image> read_image(const void* bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, SELFMAG);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return absl::InvalidArgumentError("not machine code");
  std::memcpy(&header, bytes, sizeof header);
  if (header.e_machine != kCudaMachine) return absl::InvalidArgumentError("machine code of another machine");
  const char* at = static_cast<const char*>(bytes) + sizeof header;
  if (std::string_view(at, kMark.size()) != kMark) {
    return absl::FailedPreconditionError("machine code without the text that the emulator runs");
  }
  at += kMark.size();
  Image image;
  image.text = take(at);
  image.architecture = take(at);
  return image;
}

}  // namespace sheaf::emulator
