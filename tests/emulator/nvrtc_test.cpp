// The stand-in for NVRTC, through the product's own loader: an image that the fake driver can run, and the refusals
// that a real one gives.
#include "codegen/cuda/nvrtc.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "tests/child.h"
#include "tests/emulator/image.h"

using namespace sheaf;

namespace {

const char* const kText = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = 1; }\n";

std::string outcome(const absl::StatusOr<std::vector<std::byte>>& code) {
  if (!code.ok()) {
    const std::string text(code.status().message());
    return text.substr(0, text.find('\n'));
  }
  const auto image = emulator::read_image(code->data());
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
  std::fprintf(stderr, "%s\n",
               outcome((*nvrtc)->compile("__global__ void k() { undeclared = 1; }", "k", "sm_80")).c_str());
}

TEST_CASE("the fake NVRTC makes images of text, and refuses what a real one refuses") {
  const std::string library = SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so";
  CHECK(tests::said_by_child("fake nvrtc", {{"SHEAF_LIBNVRTC", library}, {"SHEAF_EMULATOR_CHECK_TEXT", "1"}}) ==
        "13.0: sm_80 sm_90 sm_100 sm_120\n"
        "sm_90a, the text\n"
        "k for sm_75: nvrtc: error: invalid value for --gpu-architecture (sm_75)\n"
        "k for sm_80: kernel.cu: In function 'void k()':\n");
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
