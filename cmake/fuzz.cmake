# tests/fuzz/x_fuzz.cc is a libFuzzer program build/bin/x_fuzz. Configure a build folder of its own:
#   CXX=clang++ cmake --preset default -B build-fuzz -DKVGRAFT_FUZZ=ON && cmake --build build-fuzz
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "KVGRAFT_FUZZ needs Clang (CXX=clang++); this is ${CMAKE_CXX_COMPILER_ID}")
endif()
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE kvgraft_artifact kvgraft_store)
endforeach()
# The code under test counts its branches for the fuzzer, and stops at the first bad access.
foreach(module IN ITEMS core artifact store)
  target_compile_options(kvgraft_${module} PRIVATE -fsanitize=fuzzer-no-link,address,undefined)
  target_link_options(kvgraft_${module} PUBLIC -fsanitize=address,undefined)
endforeach()
