// A manifest: the programs that a process compiled, each as text behind a line with its fingerprint and length, so that
// another process compiles the same before it is asked to. Invariant: an entry is written whole by one call, after all
// that were there, and what is damaged is told and never used.
#pragma once

#include <string>
#include <vector>

#include "trace/program_text.h"

namespace sheaf {

struct ManifestEntry {
  int number = 1;  // in the file
  ProgramSource source;
};
/// Throws RuntimeError "warm: file: what" for what cannot be read, is no manifest, or is damaged.
std::vector<ManifestEntry> read_manifest(const std::string& path, Loc loc);

/// Begins what SHEAF_MANIFEST asks for, once.
void record_manifest_if_asked();

}  // namespace sheaf
