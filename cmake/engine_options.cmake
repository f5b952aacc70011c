# Options for the engine's own build (tools/engine.sh), read by CMake right after its
# project("llama.cpp"): the package that carries it switches llama.cpp's "common" library on by
# force, which takes half of the build time and which nothing here uses.
set(LLAMA_BUILD_COMMON OFF)
