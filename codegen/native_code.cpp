// Loads an ELF relocatable object: code pages first, data pages after them, in one mapping, so that every 32-bit
// PC-relative reference reaches. Functions outside the object (a closed list) are reached through stubs behind the
// code. Invariant: every offset taken from the file is checked against its length, because the file may come from a
// disk cache.
#include "codegen/native_code.h"

#include <elf.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>

#include "fmt/format.h"

namespace sheaf::codegen {

namespace {

template <typename F>
void* address(F* function) {
  return reinterpret_cast<void*>(function);
}

struct External {
  std::string_view name;
  void* address;
};

// What LLVM may call on its own: block moves, and the float operations that a lower level has no instruction for.
std::span<const External> externals() {
  using F = float (*)(float);
  using D = double (*)(double);
  static const External table[] = {
      {"memcpy", address(std::memcpy)},
      {"memmove", address(std::memmove)},
      {"memset", address(std::memset)},
      {"fmodf", address(static_cast<float (*)(float, float)>(std::fmod))},
      {"fmod", address(static_cast<double (*)(double, double)>(std::fmod))},
      {"fmaf", address(static_cast<float (*)(float, float, float)>(std::fma))},
      {"fma", address(static_cast<double (*)(double, double, double)>(std::fma))},
      {"floorf", address(static_cast<F>(std::floor))},
      {"floor", address(static_cast<D>(std::floor))},
      {"ceilf", address(static_cast<F>(std::ceil))},
      {"ceil", address(static_cast<D>(std::ceil))},
      {"truncf", address(static_cast<F>(std::trunc))},
      {"trunc", address(static_cast<D>(std::trunc))},
      {"rintf", address(static_cast<F>(std::rint))},
      {"rint", address(static_cast<D>(std::rint))},
      {"nearbyintf", address(static_cast<F>(std::nearbyint))},
      {"nearbyint", address(static_cast<D>(std::nearbyint))},
  };
  return table;
}

// `jmp *[rip + 0]` followed by the address: reaches any function from anywhere.
constexpr std::size_t kStubBytes = 16;
void write_stub(std::byte* at, void* target) {
  static constexpr unsigned char kJump[] = {0xff, 0x25, 0, 0, 0, 0};
  std::memcpy(at, kJump, sizeof kJump);
  std::memcpy(at + sizeof kJump, &target, sizeof target);
}

constexpr std::size_t kPage = 4096;  // of x86-64, which all of this is about

constexpr std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

}  // namespace

class ObjectLoader {
 public:
  explicit ObjectLoader(std::span<const std::byte> object) : object_(object) {}

  absl::StatusOr<NativeCode> load() {
    for (auto step : {&ObjectLoader::read_sections, &ObjectLoader::place_sections, &ObjectLoader::place_symbols,
                      &ObjectLoader::relocate, &ObjectLoader::protect}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    return std::move(code_);
  }

 private:
  static absl::Status damaged(std::string_view what) {
    return absl::DataLossError(fmt::format("native object: {}", what));
  }

  // `count` records of type T at `offset` of the file, copied out because the file has no alignment to rely on.
  template <typename T>
  bool read(std::uint64_t offset, std::uint64_t count, std::vector<T>& out) const {
    if (offset > object_.size() || count > (object_.size() - offset) / sizeof(T)) return false;
    out.resize(count);
    if (count) std::memcpy(out.data(), object_.data() + offset, count * sizeof(T));
    return true;
  }

  absl::Status read_sections() {
    std::vector<Elf64_Ehdr> header;
    if (!read(0, 1, header) || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return damaged("no ELF file");
    if (header[0].e_machine != EM_X86_64 || header[0].e_type != ET_REL) {
      return absl::UnimplementedError("native object: not a relocatable x86-64 file");
    }
    if (!read(header[0].e_shoff, header[0].e_shnum, sections_)) return damaged("section table is cut off");
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_addralign > kPage) return damaged("section is aligned to more than a page");
      if (s.sh_type != SHT_SYMTAB) continue;
      if (!read(s.sh_offset, s.sh_size / sizeof(Elf64_Sym), symbols_)) return damaged("symbol table is cut off");
      if (s.sh_link >= sections_.size()) return damaged("symbol table without names");
      const Elf64_Shdr& names = sections_[s.sh_link];
      if (!read(names.sh_offset, names.sh_size, names_)) return damaged("symbol names are cut off");
      if (names_.empty() || names_.back() != 0) return damaged("symbol names do not end");
    }
    return absl::OkStatus();
  }

  // Code, then one stub for each undefined symbol, then (on fresh pages) everything that is only read or written.
  absl::Status place_sections() {
    placed_.assign(sections_.size(), nullptr);
    std::vector<std::size_t> offsets(sections_.size(), 0);
    std::size_t end = 0;
    auto place = [&](bool executable) {
      for (std::size_t i = 0; i < sections_.size(); ++i) {
        const Elf64_Shdr& s = sections_[i];
        if (!is_loaded(s) || ((s.sh_flags & SHF_EXECINSTR) != 0) != executable) continue;
        end = round_up(end, std::max<std::size_t>(s.sh_addralign, 1));
        offsets[i] = end;
        end += s.sh_size;
      }
    };
    place(true);
    stubs_at_ = end = round_up(end, kStubBytes);
    end += kStubBytes * symbols_.size();
    code_bytes_ = end = round_up(end, kPage);
    place(false);
    end = round_up(std::max<std::size_t>(end, 1), kPage);

    void* memory = mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return absl::ResourceExhaustedError("native object: cannot map memory");
    code_.base_ = static_cast<std::byte*>(memory);
    code_.bytes_ = end;
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& s = sections_[i];
      if (!is_loaded(s)) continue;
      placed_[i] = code_.base_ + offsets[i];
      if (s.sh_type == SHT_NOBITS || s.sh_size == 0) continue;
      if (s.sh_offset > object_.size() || s.sh_size > object_.size() - s.sh_offset) {
        return damaged("section is cut off");
      }
      std::memcpy(placed_[i], object_.data() + s.sh_offset, s.sh_size);
    }
    return absl::OkStatus();
  }

  // Unwind tables are left out: a kernel calls nothing that unwinds.
  static bool is_loaded(const Elf64_Shdr& s) {
    return (s.sh_flags & SHF_ALLOC) != 0 && s.sh_type != SHT_X86_64_UNWIND && s.sh_size < (std::uint64_t{1} << 31);
  }

  absl::Status place_symbols() {
    values_.assign(symbols_.size(), nullptr);
    for (std::size_t i = 1; i < symbols_.size(); ++i) {
      const Elf64_Sym& symbol = symbols_[i];
      if (symbol.st_name >= names_.size()) return damaged("symbol without a name");
      const std::string_view name = names_.data() + symbol.st_name;
      if (symbol.st_shndx == SHN_UNDEF) {
        for (const External& external : externals()) {
          if (external.name != name) continue;
          values_[i] = code_.base_ + stubs_at_ + kStubBytes * i;
          write_stub(values_[i], external.address);
        }
        if (!values_[i]) return absl::UnimplementedError(fmt::format("native object: needs '{}'", name));
      } else if (symbol.st_shndx < sections_.size()) {
        if (!placed_[symbol.st_shndx]) continue;  // of an unwind or note section
        if (symbol.st_value > sections_[symbol.st_shndx].sh_size) return damaged("symbol outside its section");
        values_[i] = placed_[symbol.st_shndx] + symbol.st_value;
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL) {
          code_.functions_.emplace_back(name, values_[i]);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status relocate() {
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_RELA) continue;
      if (s.sh_info >= sections_.size()) return damaged("relocations of no section");
      std::byte* base = placed_[s.sh_info];
      if (!base) continue;
      std::vector<Elf64_Rela> entries;
      if (!read(s.sh_offset, s.sh_size / sizeof(Elf64_Rela), entries)) return damaged("relocations are cut off");
      for (const Elf64_Rela& entry : entries) {
        if (absl::Status status = apply(entry, base, sections_[s.sh_info].sh_size); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status apply(const Elf64_Rela& entry, std::byte* base, std::uint64_t size) {
    const std::uint64_t symbol = ELF64_R_SYM(entry.r_info), type = ELF64_R_TYPE(entry.r_info);
    const std::uint64_t width = type == R_X86_64_64 ? 8 : 4;
    if (size < width || entry.r_offset > size - width) return damaged("relocation outside its section");
    if (symbol >= values_.size() || !values_[symbol]) return damaged("relocation to no symbol");
    std::byte* place = base + entry.r_offset;
    const auto value = reinterpret_cast<std::int64_t>(values_[symbol]) + entry.r_addend;
    switch (type) {
      case R_X86_64_64: std::memcpy(place, &value, sizeof value); return absl::OkStatus();
      case R_X86_64_PC32:
      case R_X86_64_PLT32: {
        const auto distance = static_cast<std::int32_t>(value - reinterpret_cast<std::int64_t>(place));
        std::memcpy(place, &distance, sizeof distance);
        return absl::OkStatus();
      }
      default: return absl::UnimplementedError(fmt::format("native object: relocation type {}", type));
    }
  }

  absl::Status protect() {
    if (code_bytes_ && mprotect(code_.base_, code_bytes_, PROT_READ | PROT_EXEC) != 0) {
      return absl::ResourceExhaustedError("native object: cannot make code executable");
    }
    return absl::OkStatus();
  }

  std::span<const std::byte> object_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<char> names_;
  std::vector<std::byte*> placed_;  // per section; null if it is not loaded
  std::vector<std::byte*> values_;  // per symbol
  std::size_t stubs_at_ = 0, code_bytes_ = 0;
  NativeCode code_;
};

absl::StatusOr<NativeCode> NativeCode::load(std::span<const std::byte> object) { return ObjectLoader(object).load(); }

NativeCode::~NativeCode() {
  if (base_) munmap(base_, bytes_);
}

KernelFunction NativeCode::find(std::string_view symbol) const {
  for (const auto& [name, at] : functions_) {
    if (name == symbol) return reinterpret_cast<KernelFunction>(at);
  }
  return nullptr;
}

}  // namespace sheaf::codegen
