// The loops of a prologue are those that fill a tile, so only what they hold is printed.
#include "codegen/cuda/prologue.h"

#include <array>

#include "codegen/cuda/phase_printer.h"
#include "codegen/kir/contract.h"

namespace sheaf::codegen {
namespace {

PhasePrinter printer_of(const kir::Kernel& kernel, const kir::Phase& phase) {
  return {kernel, phase, Team(kernel, phase), "", false};
}

std::array<std::string, 3> axes(const Prologue::Place& place) { return {place.batch, place.outer, place.inner}; }

}  // namespace

Prologue::Prologue(const kir::Kernel& kernel, int operand)
    : kernel_(kernel), operand_(operand), phase_(*kir::prologue_of(kernel, operand)) {}

int Prologue::width(int most) const {
  const kir::For& loop = vector_loop_of(phase_.body);
  while (phase_.axes[static_cast<std::size_t>(loop.axis)].extent % most != 0) most /= 2;
  return Team(kernel_, phase_).run_width(loop, most);
}

std::int64_t Prologue::copied_bytes(int width) const {
  std::int64_t bytes = 0;
  for (const PhasePrinter::Run& run : printer_of(kernel_, phase_).runs(width)) bytes += run.bytes;
  return bytes;
}

std::string Prologue::copy(const Place& place, int width, const Copies& to) const {
  return printer_of(kernel_, phase_).print_copies(axes(place), width, addresses(width, to));
}

std::string Prologue::make(const Place& place, int width, const std::string& to, const Copies* copies) const {
  PhasePrinter printer = printer_of(kernel_, phase_);
  if (copies) printer.read_copies(width, addresses(width, *copies));
  return printer.print_elements(axes(place), width, operand_, to);
}

// Those of one run lie together, so that neighbouring threads touch neighbours.
std::vector<std::string> Prologue::addresses(int width, const Copies& copies) const {
  std::vector<std::string> all;
  std::int64_t begin = 0;
  for (const PhasePrinter::Run& run : printer_of(kernel_, phase_).runs(width)) {
    all.push_back(fmt::format("{} + {} + {} * {}", copies.from, begin, copies.piece, run.bytes));
    begin += copies.pieces * run.bytes;
  }
  return all;
}

}  // namespace sheaf::codegen
