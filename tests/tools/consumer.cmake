# Installs the library into an empty prefix; builds and runs the examples on it, as a project of their own, and the
# programs that documents show. Layer tests.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(status)
    list(JOIN ARGN " " text)
    message(FATAL_ERROR "${text}: exit code ${status}")
  endif()
endfunction()
set(here ${BUILD}/consumer)
file(REMOVE_RECURSE ${here})
run(${CMAKE_COMMAND} --install ${BUILD} --component library --prefix ${here}/prefix)
run(${CMAKE_COMMAND} -S ${EXAMPLES} -B ${here}/build -G Ninja -DCMAKE_PREFIX_PATH=${here}/prefix
    -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${here}/build)
# The archive and the pkg-config file, with a compiler alone.
file(GLOB_RECURSE archive ${here}/prefix/*/libfinegemm.a)
file(GLOB_RECURSE description ${here}/prefix/*/finegemm.pc)
file(GLOB_RECURSE licence ${here}/prefix/share/*/LICENSE)
if(NOT archive OR NOT description OR NOT licence)
  message(FATAL_ERROR "${here}/prefix lacks one of libfinegemm.a, finegemm.pc, LICENSE")
endif()
set(flags -I${here}/prefix/include ${archive} -lzstd -lstdc++ -lm -ldl -lpthread)
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  cmake_path(GET description PARENT_PATH folder)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${folder}
                          ${PKG_CONFIG} --static --cflags --libs finegemm
                  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  list(TRANSFORM flags REPLACE "^-lfinegemm$" "-l:libfinegemm.a")
endif()
run(cc ${EXAMPLES}/c/gemm.c -o ${here}/archived ${flags})
run(${here}/archived)
set(docs ${EXAMPLES}/../docs)
run(${CMAKE_COMMAND} -E env PREFIX=${here}/prefix ${PYTHON} ${EXAMPLES}/../tools/run_pages.py --blocks sh
    ${EXAMPLES}/../README.md ${docs}/tutorials/link.md ${docs}/how-to/languages.md)
run(${CMAKE_CTEST_COMMAND} --test-dir ${here}/build --output-on-failure --no-tests=error)
