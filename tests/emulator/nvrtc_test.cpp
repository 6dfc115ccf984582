// The stand-in for NVRTC, through the product's own loader: an image that the fake driver can run, and the refusals
// that a real one gives.
#include "codegen/cuda/nvrtc.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "tests/child.h"
#include "tests/emulator/image.h"
#include "tests/environment.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

const char* const kText = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = 1; }\n";

std::string outcome(const absl::StatusOr<codegen::CudaImage>& code) {
  if (!code.ok()) return std::string(code.status().message());
  const auto image = emulator::read_image(code->code.data());
  return image.ok() ? image->architecture + (image->text == kText ? ", the text" : ", another text")
                    : std::string(image.status().message());
}

}  // namespace

TEST_CASE("[fake nvrtc] a program" * doctest::skip()) {
  const auto nvrtc = codegen::Nvrtc::load();
  if (!nvrtc.ok()) {
    std::fprintf(stderr, "%s\n", nvrtc.status().ToString().c_str());
    return;
  }
  std::string names;
  for (const std::string& a : (*nvrtc)->architectures()) names += " " + a;
  std::fprintf(stderr, "%d.%d:%s\n", (*nvrtc)->major(), (*nvrtc)->minor(), names.c_str());
  std::fprintf(stderr, "%s\n", outcome((*nvrtc)->compile(kText, "k", "sm_90a")).c_str());
  std::fprintf(stderr, "%s\n", outcome((*nvrtc)->compile(kText, "k", "sm_75")).c_str());
  std::fprintf(stderr, "%s\n", outcome((*nvrtc)->compile("// 1\n// 2\n#error no\n// 4\n", "k", "sm_80")).c_str());
  const auto image = (*nvrtc)->compile(kText, "k", "sm_90a");
  for (const codegen::CudaFunction& f : image->functions)
    std::fprintf(stderr, "%s: %d registers\n", f.entry.c_str(), f.registers);
}

TEST_CASE("the fake NVRTC makes images of text, and refuses what a real one refuses") {
  const std::string library = SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so";
  const std::string said =
      tests::said_by_child("fake nvrtc", {{"SHEAF_LIBNVRTC", library}, {"SHEAF_EMULATOR_CHECK_TEXT", "1"}});
  CHECK(
      said.starts_with("13.0: sm_80 sm_90 sm_100 sm_120\n"
                       "sm_90a, the text\n"
                       "NVRTC 13.0 does not compile for sm_75, only for sm_80, sm_90, sm_100, sm_120\n"
                       "NVRTC 13.0 refuses the text for sm_80:\n"
                       "k(3): error: "));
  CHECK(
      said.ends_with("\n     1 | // 1\n"
                     "     2 | // 2\n"
                     ">    3 | #error no\n"
                     "     4 | // 4\n"
                     "k: 32 registers\n"));
}

TEST_CASE("what the assembler says of a function is read from its log, whatever else is there") {
  const auto functions = codegen::functions_in_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'b_0' for 'sm_90a'\n"
      "ptxas info    : Function properties for b_0\n"
      "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 49152 bytes smem, 372 bytes cmem[0]\n"
      "ptxas info    : Compile time = 23.836 ms\n"
      "ptxas info    : Compiling entry function 'a_0' for 'sm_90a'\n"
      "ptxas info    : Function properties for a_0\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 12 registers, 368 bytes cmem[0]\n");
  REQUIRE(functions.size() == 2);
  CHECK(functions[0].entry == "b_0");
  CHECK(functions[0].registers == 255);
  CHECK(functions[0].shared_bytes == 49152);
  CHECK(functions[0].stack_bytes == 16);
  CHECK(functions[0].spill_bytes == 20);
  CHECK(functions[1].entry == "a_0");
  CHECK(functions[1].registers == 12);
  CHECK(functions[1].shared_bytes + functions[1].stack_bytes + functions[1].spill_bytes == 0);
  CHECK(codegen::functions_in_log("").empty());
}

TEST_CASE("where there is no NVRTC, or one that is too old, that is told") {
  CHECK(codegen::Nvrtc::open({"/nowhere/libnvrtc.so", "libm.so.6"}).status().ToString() ==
        "UNAVAILABLE: no NVRTC; tried:\n"
        "  /nowhere/libnvrtc.so: cannot open shared object file: No such file or directory\n"
        "  libm.so.6: lacks an entry point\n"
        "Sheaf compiles for GPUs with NVIDIA's NVRTC 12.0 or newer; SHEAF_LIBNVRTC names one that lies elsewhere");
  const std::string library = SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so";
  const tests::Variable version("SHEAF_FAKE_NVRTC_VERSION", "11080");
  CHECK(codegen::Nvrtc::open({library}).status().ToString() ==
        "FAILED_PRECONDITION: " + library + " is NVRTC 11.8, and Sheaf needs NVRTC 12.0 or newer");
}

TEST_CASE("an image that is none is refused, and machine code without a text by another name") {
  CHECK(emulator::read_image("nothing at all").status().message() == "not machine code");
  std::string image = emulator::write_image({"text", "sm_80"});
  CHECK(emulator::read_image(image.data())->text == "text");
  image[64] = 'X';
  const absl::Status status = emulator::read_image(image.data()).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == "machine code without the text that the emulator runs");
  image[18] = 62;  // of x86-64
  CHECK(emulator::read_image(image.data()).status().message() == "machine code of another machine");
}
