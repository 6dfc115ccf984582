# The CPU compiler: a plug-in, so that a process that finds its kernels in the cache never loads LLVM; or, with
# SHEAF_LINK_LLVM, part of the library. SHEAF_COMPILER_ID is a hash of its sources and of LLVM's version; the library
# and the plug-in compare it, and it is part of every kernel's key.
option(SHEAF_LINK_LLVM "Link the CPU compiler into the library instead of a plug-in" OFF)
file(GLOB_RECURSE llvm_sources CONFIGURE_DEPENDS codegen/llvm/*.cpp)
file(GLOB_RECURSE compiler_files CONFIGURE_DEPENDS codegen/llvm/* codegen/kir/*.h codegen/kir/*.cpp
  codegen/*.h codegen/contract.cpp codegen/contract_box.cpp codegen/cpu_target.cpp ir/scalar.h)
set(compiler_hashes ${LLVM_PACKAGE_VERSION})
foreach(compiler_file IN LISTS compiler_files)
  file(SHA256 ${compiler_file} hash)
  list(APPEND compiler_hashes ${hash})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${compiler_files})
string(SHA256 compiler_hash "${compiler_hashes}")
string(SUBSTRING ${compiler_hash} 0 16 compiler_hash)
set(compiler_id SHEAF_COMPILER_ID="llvm-${LLVM_PACKAGE_VERSION}-${compiler_hash}")
set_source_files_properties(codegen/compiler.cpp codegen/llvm/plugin.cpp PROPERTIES COMPILE_DEFINITIONS ${compiler_id})

if(SHEAF_LINK_LLVM)
  add_library(sheaf_llvm STATIC ${llvm_sources})
  target_compile_definitions(sheaf_codegen PRIVATE SHEAF_LINK_LLVM)
  target_link_libraries(sheaf_codegen PUBLIC sheaf_llvm)
else()
  add_library(sheaf_llvm MODULE ${llvm_sources})
endif()
set_target_properties(sheaf_llvm PROPERTIES CXX_VISIBILITY_PRESET hidden)
target_include_directories(sheaf_llvm SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_link_directories(sheaf_llvm PRIVATE ${LLVM_LIBRARY_DIRS})
target_link_libraries(sheaf_llvm PRIVATE sheaf_codegen LLVM)
