// Arrays in files: IDX (MNIST and its kin) and NumPy's .npy, each read plain or gzipped. Every malformed file gives one
// RuntimeError that names the reader, the file and what is wrong with it; nothing is returned that the file did not
// hold.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sheaf/array.h"

namespace sheaf {

/// A dense row-major array in host memory, in the host's byte order.
struct HostArray {
  DType dtype = f32;
  Shape dims{};  // empty: a scalar
  std::vector<std::byte> bytes{};  // exactly the product of dims times size_bytes(dtype)
};

/// What a file held, as an Array. Throws ShapeError when the bytes do not fill the dims.
Array array(const HostArray& data, Loc loc = Loc::current());
/// And back, for writing: the elements of a concrete array, once computed. Throws TracedBoolError while tracing.
HostArray to_host(const Array& x, Loc loc = Loc::current());

/// Reads an IDX file: u8, i8, i16, i32, f32 or f64 of any rank. Throws RuntimeError.
HostArray read_idx(const std::string& path, Loc loc = Loc::current());

/// Reads a .npy file, format 1 to 3: bool, integers, f16, f32, f64, c64, c128, either byte order, C or Fortran order.
/// Throws RuntimeError.
HostArray read_npy(const std::string& path, Loc loc = Loc::current());

/// Writes a .npy file that NumPy and `read_npy` give back bit for bit. bf16 and f8 have no name in the format and are
/// refused with TypeError; a file that cannot be written is a RuntimeError.
void write_npy(const std::string& path, const HostArray& array, Loc loc = Loc::current());

}  // namespace sheaf
