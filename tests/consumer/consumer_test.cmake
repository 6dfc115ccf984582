# Builds and runs the consumer project, in one of two ways (WAY):
#   installed: Sheaf is installed from BINARY, the tree is then moved, and the consumer finds it at the new place;
#   subdirectory: the consumer adds ROOT to its own build.
# Both must print first.txt, and the README must show first.cpp and first.txt as they are. Run as
# cmake -D WAY= -D ROOT= -D COMPILER= -D BINARY= -D WORK= -D BUILD_TYPE= -D FLAGS= -D LAUNCHER=
# -D WERROR= -P consumer_test.cmake.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

file(READ ${ROOT}/README.md readme)
foreach(shown IN ITEMS first.cpp first.txt)
  file(READ ${ROOT}/tests/consumer/${shown} text)
  string(FIND "${readme}" "```cpp\n${text}```" as_code)
  string(FIND "${readme}" "```\n${text}```" as_output)
  if(as_code EQUAL -1 AND as_output EQUAL -1)
    message(FATAL_ERROR "README.md does not show tests/consumer/${shown} as it is")
  endif()
endforeach()

file(REMOVE_RECURSE ${WORK})
if(WAY STREQUAL installed)
  run(${CMAKE_COMMAND} --install ${BINARY} --prefix ${WORK}/before)
  file(RENAME ${WORK}/before ${WORK}/after)
  file(GLOB linked ${WORK}/after/bin/* ${WORK}/after/lib*/sheaf/*.so)
  foreach(file IN LISTS linked)
    file(READ_ELF ${file} RPATH rpath RUNPATH runpath)
    string(FIND "${rpath};${runpath}" "${BINARY}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} looks for libraries where it was built: ${rpath}${runpath}")
    endif()
  endforeach()
  set(where -D CMAKE_PREFIX_PATH=${WORK}/after)
else()
  # The whole library once more: with a compiler cache by the same commands, which it has seen; else not optimised, for
  # what counts is that it builds there.
  set(where -D SHEAF_SOURCE=${ROOT} -D CMAKE_COMPILE_WARNING_AS_ERROR=${WERROR})
  if(NOT LAUNCHER MATCHES ccache)
    list(APPEND where -D CMAKE_CXX_FLAGS_RELEASE=-DNDEBUG)
  endif()
endif()
run(${CMAKE_COMMAND} -S ${ROOT}/tests/consumer -B ${WORK}/build -G Ninja -D CMAKE_BUILD_TYPE=${BUILD_TYPE}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D "CMAKE_CXX_FLAGS=${FLAGS}" -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${where})
run(${CMAKE_COMMAND} --build ${WORK}/build --target first)
run(${WORK}/build/first)
file(READ ${ROOT}/tests/consumer/first.txt expected)
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "first printed\n${output}instead of\n${expected}")
endif()
file(REMOVE_RECURSE ${WORK})
