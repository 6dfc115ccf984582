# The GPU that tests run on: an engine for kernel text, and libraries that stand in for NVIDIA's, one per folder
# tests/emulator/fake_<name>. Kernel text is compiled by the compiler that builds the tests, whatever flags it has here.
file(GLOB emulator_sources CONFIGURE_DEPENDS tests/emulator/*.cpp)
list(FILTER emulator_sources EXCLUDE REGEX "_test.cpp$|module_hooks.cpp$")
add_library(sheaf_module_hooks OBJECT tests/emulator/module_hooks.cpp)
target_include_directories(sheaf_module_hooks PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(sheaf_module_hooks PRIVATE -fno-sanitize=all -fvisibility=hidden -fno-stack-protector -fPIC)
add_library(sheaf_emulator STATIC ${emulator_sources} codegen/fingerprint.cpp)
target_include_directories(sheaf_emulator PUBLIC ${PROJECT_SOURCE_DIR})
add_dependencies(sheaf_emulator sheaf_module_hooks)
target_link_libraries(sheaf_emulator PUBLIC absl::flat_hash_map absl::statusor fmt::fmt ${CMAKE_DL_LIBS})
# Sanitizers know one stack per thread; the engine's threads have many.
target_compile_options(sheaf_emulator PRIVATE -fno-sanitize=all -fvisibility=hidden)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(no_entry_hooks "-mllvm -tsan-instrument-func-entry-exit=0")
else()
  set(no_entry_hooks "--param=tsan-instrument-func-entry-exit=0")
endif()
target_compile_definitions(sheaf_emulator PRIVATE
  SHEAF_EMULATOR_NO_ENTRY_HOOKS="${no_entry_hooks}"
  SHEAF_EMULATOR_COMPILER="${CMAKE_CXX_COMPILER}"
  SHEAF_EMULATOR_COMPILER_ID="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
  SHEAF_EMULATOR_HOOKS="$<TARGET_OBJECTS:sheaf_module_hooks>"
  SHEAF_EMULATOR_DIR="${PROJECT_SOURCE_DIR}/tests/emulator"
  SHEAF_EMULATOR_CACHE_DIR="${PROJECT_BINARY_DIR}/emulator")

set(sheaf_fakes "")
file(GLOB fake_folders CONFIGURE_DEPENDS LIST_DIRECTORIES true tests/emulator/fake_*)
foreach(folder IN LISTS fake_folders)
  if(NOT IS_DIRECTORY ${folder})  # their tests lie beside them
    continue()
  endif()
  cmake_path(GET folder FILENAME name)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  add_library(sheaf_${name} SHARED ${sources})
  target_link_libraries(sheaf_${name} PRIVATE sheaf_emulator)
  target_compile_options(sheaf_${name} PRIVATE -fvisibility=hidden)
  list(APPEND sheaf_fakes sheaf_${name})
endforeach()
# On the streams of the fake driver, with the arithmetic of the runtime.
target_sources(sheaf_fake_nccl PRIVATE runtime/reduce_bytes.cpp ir/error.cpp)
target_include_directories(sheaf_fake_nccl PRIVATE ${PROJECT_SOURCE_DIR}/ir)
target_link_libraries(sheaf_fake_nccl PRIVATE sheaf_fake_cuda)
# On the same streams, with the conversions of the IR.
target_link_libraries(sheaf_fake_cublaslt PRIVATE sheaf_fake_cuda sheaf_ir)
target_link_libraries(sheaf_fake_cusolver PRIVATE sheaf_fake_cuda ${SHEAF_LAPACK})
