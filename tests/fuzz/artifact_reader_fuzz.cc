// libFuzzer target (cmake/fuzz.cmake), to be run from the root of the project as
//   build-fuzz/bin/artifact_reader_fuzz -max_len=65536 NEW_FOLDER tests/fuzz/corpus/artifact_reader
// corpus_test.cc replays the corpus in every build. A file that is added there is named ok-* if the
// reader must accept it, bad-* if not; tests/format checks that the second reader agrees.
#include "tests/fuzz/artifact_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvgraft::fuzz::RunArtifactReader({data, size});
  return 0;
}
