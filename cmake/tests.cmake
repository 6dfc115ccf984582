# The tests: one program. Its fast cases make one ctest entry per file, tests/<area>/<name>_test.cpp; a case that says
# `* doctest::test_suite("full")` or `"soak"` belongs to that tier, which is one entry.
find_package(doctest REQUIRED)
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS tests/*.cpp)
list(FILTER test_sources EXCLUDE REGEX "must_not_compile|consumer")
include(cmake/emulator.cmake)
list(REMOVE_ITEM test_sources ${emulator_sources})
list(FILTER test_sources EXCLUDE REGEX "/tests/emulator/fake_[^/]*/[^/]*$")
if(NOT TARGET sheaf_tool)
  list(FILTER test_sources EXCLUDE REGEX "/tests/tools/")
endif()
add_executable(sheaf_tests ${test_sources})
if(TARGET sheaf_tool)
  add_dependencies(sheaf_tests sheaf_tool)
endif()
target_link_libraries(sheaf_tests PRIVATE sheaf::sheaf sheaf_trace sheaf_emulator doctest::doctest)
add_dependencies(sheaf_tests ${sheaf_fakes})
# What is tested is optimised, the tests are not: half the time of a build was theirs.
target_compile_options(sheaf_tests PRIVATE -O0)
# In a header, so that what names no folder is the same object in every folder, as a compiler's cache sees it.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/places/tests/places.h CONTENT
"// Where the tests find what they read, and put what they write.
#pragma once

#define SHEAF_SOURCE_DIR \"@PROJECT_SOURCE_DIR@\"
#define SHEAF_BINARY_DIR \"@PROJECT_BINARY_DIR@\"
" @ONLY)
target_include_directories(sheaf_tests PRIVATE ${PROJECT_BINARY_DIR}/places)

function(sheaf_test name label)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} ENVIRONMENT "SHEAF_CHECK_PURE=1;SHEAF_CACHE_DIR=off")
endfunction()

foreach(source IN LISTS test_sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE relative)
  if(relative MATCHES "(.*)_test.cpp$")
    sheaf_test(${CMAKE_MATCH_1} fast sheaf_tests --source-file=*/tests/${relative} --test-suite-exclude=full,soak)
  endif()
endforeach()
sheaf_test(cases.full full sheaf_tests --test-suite=full)
sheaf_test(cases.soak soak sheaf_tests --test-suite=soak)

# The same on GPUs that are not there (docs/emulator.md). What these files hold is said of any device. Where devices meet
# in their streams, whose turn it is among the streams makes an entry of its own. acceptance/sequence and the rest of
# acceptance/strategies take minutes there.
set(fake_gpus "SHEAF_CHECK_PURE=1;SHEAF_CACHE_DIR=off;SHEAF_FAKE_CUDA_DEVICES=8;SHEAF_LIBCUDA=$<TARGET_FILE:sheaf_fake_cuda>;SHEAF_LIBNVRTC=$<TARGET_FILE:sheaf_fake_nvrtc>")
string(APPEND fake_gpus ";SHEAF_LIBNCCL=$<TARGET_FILE:sheaf_fake_nccl>;SHEAF_LIBCUBLASLT=$<TARGET_FILE:sheaf_fake_cublaslt>;SHEAF_LIBCUBLAS=$<TARGET_FILE:sheaf_fake_cusolver>;SHEAF_LIBCUSOLVER=$<TARGET_FILE:sheaf_fake_cusolver>")
foreach(name IN ITEMS acceptance/by_hand acceptance/policies acceptance/transformer acceptance/vocabulary
    acceptance/whole_model acceptance/work compiled api/array api/attention_halves api/collectives api/complex api/convolution api/debug
    api/debug_nans api/extremes api/grad api/indexing api/jacobian api/jit api/linear_work control/composition
    control/custom control/custom_messages control/loops control/messages control/user_cases
    api/library api/map_programs api/products api/profile api/programs api/shard_map_run api/sharded_programs api/sharding api/windows
    cuda/conformance fuzz/fusion linalg/einsum linalg/linalg runtime/overlap runtime/spmd runtime/spmd_errors)
  add_test(NAME gpu/${name} COMMAND sheaf_tests --source-file=*/tests/${name}_test.cpp --test-suite-exclude=full,soak)
  set_tests_properties(gpu/${name} PROPERTIES LABELS full ENVIRONMENT "${fake_gpus};SHEAF_PLATFORM=cuda")
endforeach()
add_test(NAME gpu/acceptance/strategies COMMAND sheaf_tests --source-file=*/tests/acceptance/strategies_test.cpp
  --test-case=FSDP+TP*)
set_tests_properties(gpu/acceptance/strategies PROPERTIES LABELS full ENVIRONMENT "${fake_gpus};SHEAF_PLATFORM=cuda")
foreach(order IN ITEMS waited_last random)
  foreach(name IN ITEMS api/debug api/shard_map_run control/loops runtime/overlap)
    add_test(NAME gpu/${name}/${order} COMMAND sheaf_tests --source-file=*/tests/${name}_test.cpp
      --test-suite-exclude=full,soak)
    set_tests_properties(gpu/${name}/${order} PROPERTIES LABELS full ENVIRONMENT
      "${fake_gpus};SHEAF_PLATFORM=cuda;SHEAF_FAKE_CUDA_ORDER=${order}")
  endforeach()
endforeach()
# What is done on the day that there is a GPU, rehearsed.
if(TARGET bench)
  add_test(NAME gpu_day/tests COMMAND ${PROJECT_SOURCE_DIR}/tests/gpu_day ${PROJECT_BINARY_DIR} ^api/array$)
  add_test(NAME gpu_day/bench COMMAND ${PROJECT_SOURCE_DIR}/bench/gpu_day ${PROJECT_BINARY_DIR} --quick)
  set_tests_properties(gpu_day/tests gpu_day/bench PROPERTIES LABELS full ENVIRONMENT "${fake_gpus}")
endif()

set(tests ${PROJECT_SOURCE_DIR}/tests)
set(script ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR} -D COMPILER=${CMAKE_CXX_COMPILER})
sheaf_test(layers fast ${script} -P ${tests}/layers_test.cmake)
sheaf_test(missing_packages fast ${script} -D WORK=${PROJECT_BINARY_DIR}/missing_packages
  -P ${tests}/missing_packages_test.cmake)

file(GLOB refused CONFIGURE_DEPENDS tests/must_not_compile/*.cpp)
foreach(file IN LISTS refused)
  cmake_path(GET file STEM name)
  sheaf_test(must_not_compile/${name} full ${script} -D FILE=${file} -P ${tests}/must_not_compile_test.cmake)
endforeach()

sheaf_test(header_cost full ${script} -D WORK=${PROJECT_BINARY_DIR}/header_cost -P ${tests}/header_cost_test.cmake)
foreach(way IN ITEMS installed subdirectory)
  sheaf_test(consumer/${way} full ${script} -D WAY=${way} -D BINARY=${PROJECT_BINARY_DIR}
    -D WORK=${PROJECT_BINARY_DIR}/consumer-${way} -D BUILD_TYPE=${CMAKE_BUILD_TYPE} -D FLAGS=${CMAKE_CXX_FLAGS} -D LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
    -D WERROR=${CMAKE_COMPILE_WARNING_AS_ERROR} -P ${tests}/consumer/consumer_test.cmake)
endforeach()

# Every sample checks its own result.
if(SHEAF_SAMPLES)
  foreach(source IN LISTS sample_sources)
    cmake_path(GET source STEM name)
    sheaf_test(samples/${name} full ${name})
  endforeach()
  # On fake GPUs those that train little: the others would take minutes there.
  foreach(name IN ITEMS black_scholes moe nbody pipeline pmap_init ray_march saxpy xmap_matmul)
    add_test(NAME gpu/samples/${name} COMMAND ${name})
    set_tests_properties(gpu/samples/${name} PROPERTIES LABELS full ENVIRONMENT "${fake_gpus};SHEAF_PLATFORM=cuda")
  endforeach()
endif()
