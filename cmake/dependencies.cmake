# Libraries: Debian's packages, and libllama from a system package or from .deps (./dev puts it
# there only when the system has none of a supported version).
include(${CMAKE_CURRENT_LIST_DIR}/llama_version.cmake)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(SQLite3 REQUIRED)
find_package(CLI11 REQUIRED)
find_path(KVGRAFT_XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(KVGRAFT_XXHASH_LIBRARY xxhash REQUIRED)
add_library(kvgraft_xxhash INTERFACE)
target_include_directories(kvgraft_xxhash INTERFACE ${KVGRAFT_XXHASH_INCLUDE})
target_link_libraries(kvgraft_xxhash INTERFACE ${KVGRAFT_XXHASH_LIBRARY})

find_package(Eigen3 REQUIRED NO_MODULE)
# Any BLAS has the products; OpenBLAS and Accelerate choose kernels for the processor at run time.
if(APPLE)
  set(BLA_VENDOR Apple)
else()
  set(BLA_VENDOR OpenBLAS)
endif()
find_package(BLAS REQUIRED)
add_library(kvgraft_blas INTERFACE)
target_link_libraries(kvgraft_blas INTERFACE BLAS::BLAS)
if(NOT APPLE)
  find_path(KVGRAFT_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas REQUIRED)
  target_include_directories(kvgraft_blas INTERFACE ${KVGRAFT_CBLAS_INCLUDE})
endif()

set(KVGRAFT_DEPS_ENGINE ${PROJECT_SOURCE_DIR}/.deps/engine)
if(EXISTS ${KVGRAFT_DEPS_ENGINE}/lib/cmake/llama)
  list(APPEND CMAKE_PREFIX_PATH ${KVGRAFT_DEPS_ENGINE})
endif()
find_package(llama CONFIG)
if(NOT llama_FOUND)
  message(FATAL_ERROR "libllama not found. Run ./dev setup, which builds it once, or point "
                      "CMAKE_PREFIX_PATH at an installed llama.cpp.")
endif()
kvgraft_llama_supported("${LLAMA_VERSION}" llama_supported)
if(NOT llama_supported)
  message(FATAL_ERROR "libllama ${LLAMA_VERSION} in ${llama_DIR}; supported are versions from "
                      "${KVGRAFT_LLAMA_MINIMUM} up to, not including, ${KVGRAFT_LLAMA_BELOW} "
                      "(cmake/llama_version.cmake). Run ./dev setup for one that is.")
endif()
# Where the engine's libraries lie. One outside the linker's own folders goes along on install.
get_filename_component(KVGRAFT_ENGINE_LIB_DIR ${llama_LIBRARY} REALPATH)
get_filename_component(KVGRAFT_ENGINE_LIB_DIR ${KVGRAFT_ENGINE_LIB_DIR} DIRECTORY)
if(KVGRAFT_ENGINE_LIB_DIR MATCHES "^/usr/(local/)?lib|^/opt/homebrew/")
  set(bundle_default OFF)
else()
  set(bundle_default ON)
endif()
option(KVGRAFT_BUNDLE_ENGINE "Install the engine's libraries beside our own" ${bundle_default})
# An engine for CUDA uses the driver's library, which machines that only build do not have: its
# symbols are left to the loader.
if(EXISTS ${KVGRAFT_ENGINE_LIB_DIR}/libggml-cuda.so)
  add_link_options(-Wl,--allow-shlib-undefined)
endif()

if(KVGRAFT_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(KVGRAFT_BENCH)
  find_package(benchmark REQUIRED)
endif()
