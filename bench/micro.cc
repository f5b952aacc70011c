// What a graft is made of, in parts, on synthetic bytes (Google Benchmark): opening and verifying
// an artifact, its hashes, memcpy as the baseline, and looking up drafts.
#include <benchmark/benchmark.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/hash.h"
#include "kvgraft/core/random.h"
#include "kvgraft/session/draft.h"

namespace kvgraft {
namespace {

std::vector<uint8_t> RandomBytes(size_t n) {
  Random random(1);
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i + 8 <= n; i += 8) {
    const uint64_t v = random.Next();
    std::memcpy(bytes.data() + i, &v, 8);
  }
  return bytes;
}

// A file of 1,500 tokens with an image of 34.6 MB, as SmolLM2-135M has.
std::string ArtifactFile() {
  const std::string folder = std::filesystem::temp_directory_path().string();
  const std::string path = folder + "/kvgraft-bench-micro.kvg";
  artifact::Parts parts;
  parts.tokens.assign(1500, 7);
  parts.manifest.n_tokens = parts.manifest.n_image_tokens = 1500;
  parts.manifest.identity.SetCompat("state.format", "bench");
  parts.manifest.schedule.kind = "exact";
  parts.manifest.schedule.attention = "plain";
  Result<AtomicFile> out = AtomicFile::Create(path, folder);
  KVG_CHECK(out.ok());
  const Status written = artifact::Write(parts, RandomBytes(34'600'000), *out);
  KVG_CHECK(written.ok());
  KVG_CHECK(out->Commit().ok());
  return path;
}

void OpenArtifact(benchmark::State& state) {
  const std::string path = ArtifactFile();
  for (auto _ : state) {
    Result<artifact::Reader> reader = artifact::Reader::Open(path);
    benchmark::DoNotOptimize(reader.ok());
  }
}
BENCHMARK(OpenArtifact)->Unit(benchmark::kMicrosecond);

void OpenAndVerifyPages(benchmark::State& state) {
  const std::string path = ArtifactFile();
  for (auto _ : state) {
    Result<artifact::Reader> reader = artifact::Reader::Open(path);
    KVG_CHECK(reader.ok() && reader->VerifyPages(static_cast<unsigned>(state.range(0))).ok());
  }
  state.SetBytesProcessed(state.iterations() * 34'600'000);
}
BENCHMARK(OpenAndVerifyPages)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void Memcpy(benchmark::State& state) {
  const std::vector<uint8_t> from = RandomBytes(34'600'000);
  std::vector<uint8_t> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 34'600'000);
}
BENCHMARK(Memcpy)->Unit(benchmark::kMillisecond);

void HashXxh3(benchmark::State& state) {
  const std::vector<uint8_t> bytes = RandomBytes(34'600'000);
  for (auto _ : state) benchmark::DoNotOptimize(Xxh3(bytes));
  state.SetBytesProcessed(state.iterations() * 34'600'000);
}
BENCHMARK(HashXxh3)->Unit(benchmark::kMillisecond);

void HashSha256(benchmark::State& state) {
  const std::vector<uint8_t> bytes = RandomBytes(34'600'000);
  for (auto _ : state) benchmark::DoNotOptimize(Sha256Hex(bytes));
  state.SetBytesProcessed(state.iterations() * 34'600'000);
}
BENCHMARK(HashSha256)->Unit(benchmark::kMillisecond);

void FindDraftInHistory(benchmark::State& state) {
  Random random(2);
  std::vector<engine::Token> history(static_cast<size_t>(state.range(0)));
  for (engine::Token& t : history) t = static_cast<engine::Token>(random.Between(0, 999));
  for (auto _ : state) benchmark::DoNotOptimize(session::FindDraft(history, 7));
}
BENCHMARK(FindDraftInHistory)->Arg(1000)->Arg(8000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvgraft

BENCHMARK_MAIN();
