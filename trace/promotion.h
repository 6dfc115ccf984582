// Which dtype and shape an elementwise function computes in: strong dtypes promote by the lattice, C++ numbers follow.
#pragma once

#include <span>
#include <string_view>

#include "sheaf/array.h"
#include "trace/apply.h"

namespace sheaf {

struct Promoted {
  DType dtype = f32;
  bool is_weak = false;   // all operands were C++ numbers, or computed from such
};
Promoted promote(std::span<const Operand> operands);
/// Whether an integer dtype has this value.
bool holds(DType integer, std::int64_t value);
/// A C++ number takes the dtype of the array it meets, where another value would not do: TypeError if one of the
/// operands is an integer that the integer dtype does not have.
void check_fits(std::string_view name, std::span<const Operand> operands, DType dtype);
/// f32 for integers and bool; floats stay.
DType floating(DType t);

/// NumPy's broadcast of all shapes, or ShapeError.
Shape broadcast_shapes(std::string_view name, std::span<const Operand> operands, Loc loc);
/// x with new leading dims and extents 1 stretched; nothing where it has the shape.
ir::Value broadcast_value(ir::Builder& b, ir::Value x, const Shape& shape);

/// op on promoted, broadcast operands; rank-0 ones stay as they are where the op reads them so.
Array elementwise(std::string_view name, const ir::OpDef& op, std::initializer_list<Operand> operands);
/// The same in the nearest float dtype.
Array elementwise_float(std::string_view name, const ir::OpDef& op, std::initializer_list<Operand> operands);

}  // namespace sheaf
