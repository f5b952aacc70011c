// The speed that the README states, each figure with its baseline from the same run:
//   graft of 1,500 tokens with all checks : prefill : the engine's bare llama_state_seq_set_data
//   the same at another position, behind 64 tokens : graft at its own position
//   capture with probe, identity and a synced file : prefill
//   restore of 8,192 tokens with all checks : memcpy of as many bytes
//   exact generation : fast generation, on text that repeats itself and on text that does not
//   peak memory of a graft : the artifact's size
// Usage: speed [MODEL.gguf] [--quick] [--out FOLDER]. Default: smollm2-135m where
// `kvgraft models pull` puts it. Writes FOLDER/speed.json and FOLDER/speed.md; FOLDER is
// bench/results when run from the project's root.
#include <llama.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kvgraft/artifact/artifact.h"
#include "kvgraft/core/random.h"
#include "kvgraft/engine_llama/engine_llama.h"
#include "kvgraft/eval/corpus.h"
#include "kvgraft/session/capture.h"
#include "kvgraft/session/compose.h"
#include "kvgraft/session/doctor.h"
#include "kvgraft/session/generate.h"

namespace kvgraft {
namespace {

using engine::Context;
using engine::ContextOptions;
using engine::Model;
using engine::Schedule;
using engine::Token;

[[noreturn]] void Die(const Status& status) {
  std::fprintf(stderr, "speed: %s\n", status.message().c_str());
  std::exit(1);
}
void Ok(const Status& status) {
  if (!status.ok()) Die(status);
}
template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) Die(result.status());
  return std::move(result).value();
}

template <typename F>
double Milliseconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Several runs: the figures are medians, with the range beside them.
struct Runs {
  std::vector<double> values;
  void Add(double v) { values.push_back(v); }
  double Median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  nlohmann::json Json() const {
    return {{"median", Median()},
            {"min", *std::min_element(values.begin(), values.end())},
            {"max", *std::max_element(values.begin(), values.end())},
            {"runs", values.size()}};
  }
};

struct Row {
  std::string what, figure, baseline, ratio, target;
  bool met = true;
};

class Bench {
 public:
  Bench(std::string model_path, std::string out, bool quick)
      : path_(std::move(model_path)), out_(std::move(out)), quick_(quick) {
    model_ = Take(engine_llama::LoadModel({.path = path_}));
    session::DoctorOptions self_test;
    self_test.context.attention = engine::Attention::kOff;
    row_quantum_ = Take(session::RunDoctor(*model_, self_test)).row_quantum;
    json_["row_quantum"] = row_quantum_;
  }

  void Graft1500();
  void Moved1500();
  void Capture1500();
  void Restore8192();
  void Generation();
  void Write(const std::string& command);

 private:
  std::vector<Token> Text(size_t n, uint64_t seed = 5) {
    Random random(seed);
    eval::Corpus corpus;
    std::vector<Token> tokens = Take(model_->Tokenize(corpus.Draw(random, n * 8), true, false));
    // Longer than the built-in text: it comes again, behind other text. Speed does not depend on
    // it.
    while (tokens.size() < n) {
      const std::vector<Token> more =
          Take(model_->Tokenize(corpus.Draw(random, n * 8), false, false));
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    tokens.resize(n);
    return tokens;
  }
  std::unique_ptr<Context> NewContext(uint32_t n_ctx,
                                      engine::Attention attention = engine::Attention::kOff) {
    ContextOptions options;
    options.n_ctx = n_ctx;
    options.attention = attention;
    options.row_quantum = attention == engine::Attention::kOn ? 64 : row_quantum_;
    return Take(model_->NewContext(options));
  }
  // Captures and writes a .kvg file; returns its path.
  std::string CaptureFile(Context& context, const std::vector<Token>& tokens) {
    session::CaptureRequest request;
    request.tokens = tokens;
    request.verified_schedule = true;
    Ok(context.Clear());
    session::Captured captured = Take(session::Capture(context, *model_, request));
    const std::string file = folder_ + "/bench.kvg";
    AtomicFile out = Take(AtomicFile::Create(file, folder_));
    Ok(artifact::Write(captured.parts, captured.image, out));
    Ok(out.Commit());
    return file;
  }

  std::string path_, out_;
  std::string folder_ = std::filesystem::temp_directory_path().string();
  bool quick_;
  std::unique_ptr<Model> model_;
  uint32_t row_quantum_ = 8;  // of plain attention, by the self-test
  std::vector<Row> rows_;
  nlohmann::json json_ = nlohmann::json::object();
};

std::string Format(const char* format, double a, double b = 0) {
  char text[128];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

// A context of libllama itself, set up as ours is, for the bare call.
struct BareEngine {
  explicit BareEngine(const std::string& path, uint32_t n_ctx) {
    llama_model_params mp = llama_model_default_params();
    model = llama_model_load_from_file(path.c_str(), mp);
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = n_ctx + 256;
    cp.n_batch = cp.n_ubatch = 512;
    cp.n_seq_max = 2;
    cp.kv_unified = true;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    context = llama_init_from_model(model, cp);
  }
  ~BareEngine() {
    llama_free(context);
    llama_model_free(model);
  }
  llama_model* model = nullptr;
  llama_context* context = nullptr;
};

// Resident memory in bytes from /proc: now, and the peak since ResetPeak().
uint64_t StatusBytes(const char* field) {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(field, 0) == 0)
      return std::strtoull(line.c_str() + std::strlen(field) + 1, nullptr, 10) * 1024;
  }
  return 0;
}
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << 5; }

void Bench::Graft1500() {
  const std::vector<Token> tokens = Text(1500);
  auto context = NewContext(2048);
  Runs prefill;
  for (int i = 0; i < (quick_ ? 1 : 3); ++i) {
    Ok(context->Clear());
    prefill.Add(Milliseconds([&] { Ok(context->Decode(tokens, Schedule::kExact, 0, nullptr)); }));
  }
  const std::string file = CaptureFile(*context, tokens);
  std::vector<uint8_t> image;
  uint64_t file_bytes = 0;
  {
    artifact::Reader reader = Take(artifact::Reader::Open(file));
    image.assign(reader.image().begin(), reader.image().end());
    file_bytes = reader.file_bytes();
  }
  BareEngine bare(path_, 2048);
  Runs graft, set_data;
  uint64_t peak = 0;
  for (int i = 0; i < 21; ++i) {  // interleaved, so that both see the same machine
    const double set = Milliseconds([&] {
      if (llama_state_seq_set_data(bare.context, image.data(), image.size(), 0) != image.size()) {
        Die(Status(Code::kInternal, "bare set_data failed"));
      }
    });
    const uint64_t before = StatusBytes("VmRSS:");
    ResetPeak();
    const double ms = Milliseconds([&] {
      artifact::Reader reader = Take(artifact::Reader::Open(file));
      session::GraftOptions options;
      options.probe = session::ProbePolicy::kNever;
      Take(session::Graft(*context, *model_, reader, options));
    });
    const uint64_t top = StatusBytes("VmHWM:");
    if (i == 0) continue;  // warms the page cache
    set_data.Add(set);
    graft.Add(ms);
    peak = std::max(peak, top > before ? top - before : 0);
  }
  artifact::Reader reader = Take(artifact::Reader::Open(file));
  const session::Grafted first = Take(session::Graft(*context, *model_, reader, {}));
  json_["graft_1500"] = {{"prefill_ms", prefill.Json()},
                         {"graft_ms", graft.Json()},
                         {"bare_set_data_ms", set_data.Json()},
                         {"probe_ms", first.probe_ms},
                         {"tier", first.tier},
                         {"artifact_bytes", file_bytes},
                         {"peak_bytes", peak}};
  const double faster = prefill.Median() / graft.Median();
  const double over = graft.Median() / set_data.Median();
  const double memory = static_cast<double>(peak) / static_cast<double>(file_bytes);
  rows_.push_back({"graft of 1,500 tokens, all checks", Format("%.1f ms", graft.Median()),
                   Format("prefill %.0f ms", prefill.Median()), Format("%.0f times faster", faster),
                   "at least 150", faster >= 150});
  rows_.push_back({"the same", Format("%.1f ms", graft.Median()),
                   Format("bare set_data %.1f ms", set_data.Median()),
                   Format("%.2f times its time", over), "at most 1.5", over <= 1.5});
  rows_.push_back({"peak memory of the graft",
                   Format("%.1f MiB", static_cast<double>(peak) / 1048576),
                   Format("artifact %.1f MiB", static_cast<double>(file_bytes) / 1048576),
                   Format("%.2f times", memory), "at most 2", memory <= 2});
}

void Bench::Moved1500() {
  auto context = NewContext(2048);
  const std::string file = CaptureFile(*context, Text(1500, 5));
  Ok(context->Layout().status());  // found once in a context's life
  Ok(context->Clear());
  Ok(context->Decode(Text(64, 8), Schedule::kExact, 0, nullptr));
  const ImageBuffer before = Take(session::TakeImage(*context));
  Runs own, moved, turn, load;
  for (int i = 0; i < 16; ++i) {
    own.Add(Milliseconds([&] {
      artifact::Reader reader = Take(artifact::Reader::Open(file));
      session::GraftOptions options;
      options.probe = session::ProbePolicy::kNever;
      Take(session::Graft(*context, *model_, reader, options));
    }));
    Ok(context->LoadImage(before, 64));
    session::Attached attached;
    moved.Add(Milliseconds([&] {
      artifact::Reader reader = Take(artifact::Reader::Open(file));
      session::AttachOptions options;
      options.link_tokens = 0;
      attached = Take(session::Attach(*context, *model_, reader, options));
    }));
    turn.Add(attached.move_ms);
    load.Add(attached.load_ms);
  }
  json_["moved_1500"] = {{"graft_ms", own.Json()},
                         {"moved_ms", moved.Json()},
                         {"of_it_turning_and_joining_ms", turn.Json()},
                         {"of_it_loading_ms", load.Json()}};
  const double over = moved.Median() / own.Median();
  rows_.push_back({"graft of 1,500 tokens behind 64 others, keys turned",
                   Format("%.1f ms", moved.Median()),
                   Format("at its own position %.1f ms", own.Median()),
                   Format("%.2f times its time", over), "at most 3", over <= 3});
}

void Bench::Capture1500() {
  const std::vector<Token> tokens = Text(1500, 6);
  auto context = NewContext(2048);
  Runs prefill, capture;
  for (int i = 0; i < (quick_ ? 2 : 5); ++i) {
    Ok(context->Clear());
    prefill.Add(Milliseconds([&] { Ok(context->Decode(tokens, Schedule::kExact, 0, nullptr)); }));
    capture.Add(Milliseconds([&] { CaptureFile(*context, tokens); }));
  }
  json_["capture_1500"] = {{"prefill_ms", prefill.Json()}, {"capture_ms", capture.Json()}};
  const double added = capture.Median() / prefill.Median() - 1;
  rows_.push_back({"capture of 1,500 tokens, probe and synced file included",
                   Format("%.0f ms", capture.Median()), Format("prefill %.0f ms", prefill.Median()),
                   Format("adds %.1f %%", 100 * added), "at most 15 %", added <= 0.15});
}

void Bench::Restore8192() {
  const uint32_t n = quick_ ? 2048 : 8192;
  const std::vector<Token> tokens = Text(n, 7);
  auto context = NewContext(n + 16);
  const std::string file = CaptureFile(*context, tokens);
  artifact::Reader whole = Take(artifact::Reader::Open(file));
  std::vector<uint8_t> from(whole.image().begin(), whole.image().end()), to(from.size());
  Runs restore, copy;
  for (int i = 0; i < 8; ++i) {
    const double memcpy_ms =
        Milliseconds([&] { std::memcpy(to.data(), from.data(), from.size()); });
    const double ms = Milliseconds([&] {
      artifact::Reader reader = Take(artifact::Reader::Open(file));
      session::GraftOptions options;
      options.probe = session::ProbePolicy::kNever;
      Take(session::Graft(*context, *model_, reader, options));
    });
    if (i == 0) continue;
    restore.Add(ms);
    copy.Add(memcpy_ms);
  }
  const double gb = static_cast<double>(from.size()) / 1e6;
  json_["restore_" + std::to_string(n)] = {
      {"restore_ms", restore.Json()}, {"memcpy_ms", copy.Json()}, {"bytes", from.size()}};
  const double share = copy.Median() / restore.Median();
  rows_.push_back(
      {"restore of " + std::to_string(n) + " tokens (" + Format("%.0f MB", gb) + "), all checks",
       Format("%.2f GB/s", gb / restore.Median()), Format("memcpy %.2f GB/s", gb / copy.Median()),
       Format("%.2f of it", share), "at least 0.3", share >= 0.3});
}

void Bench::Generation() {
  const std::string list =
      "The inventory of the harbour office, entry by entry. Entry one: a brass lamp, shelf four, "
      "checked in March. Entry two: a rope of forty metres, shelf two, checked in April. Entry "
      "three: a chart of the northern bay, shelf nine, checked in May. Copy of the inventory: ";
  const std::string story =
      "An engineer writes to her brother about the first winter in the valley. ";
  for (const bool repeats : {true, false}) {
    std::vector<Token> prompt =
        Take(model_->Tokenize(repeats ? list + list + list : story, true, false));
    Runs speed[3];
    uint64_t drafted = 0, accepted = 0;
    for (int i = 0; i < (quick_ ? 1 : 3); ++i) {
      for (int mode = 0; mode < 3; ++mode) {
        auto context = NewContext(2048);
        session::GenerateOptions options;
        options.max_tokens = 128;
        options.ignore_eos = true;
        options.schedule = mode == 2 ? Schedule::kFast : Schedule::kExact;
        options.drafts = mode == 0;
        // Greedy text of a small model soon repeats itself; sampled text does not.
        if (!repeats) options.sampling = {.temperature = 1.0f, .seed = 7};
        const session::Generation g =
            Take(session::Generate(*context, *model_, {}, prompt, options));
        speed[mode].Add(1000.0 * static_cast<double>(g.tokens.size() - 1) /
                        (g.total_ms - g.first_token_ms));
        if (mode == 0) drafted = g.drafted, accepted = g.accepted;
      }
    }
    const std::string key = repeats ? "generate_repetitive" : "generate_free";
    json_[key] = {{"exact_tokens_per_s", speed[0].Json()},
                  {"exact_without_drafts_tokens_per_s", speed[1].Json()},
                  {"fast_tokens_per_s", speed[2].Json()},
                  {"drafted", drafted},
                  {"accepted", accepted}};
    rows_.push_back(
        {std::string("exact generation, text that ") + (repeats ? "repeats" : "does not repeat") +
             " itself",
         Format("%.1f tokens/s (%.1f without drafts)", speed[0].Median(), speed[1].Median()),
         Format("fast %.1f tokens/s", speed[2].Median()),
         Format("%.2f times", speed[0].Median() / speed[2].Median()), "reported"});
  }
}

std::string ReadCommand(const char* command) {
  std::string out;
  if (FILE* pipe = popen(command, "r")) {
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) out += buffer;
    pclose(pipe);
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

void Bench::Write(const std::string& command) {
  const engine_llama::EngineVersion version = engine_llama::GetEngineVersion();
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  const std::string cpu = ReadCommand("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1");
  json_["command"] = command;
  json_["date"] = date;
  json_["machine"] = {{"cpu", cpu},
                      {"cores", std::thread::hardware_concurrency()},
                      {"cpu_features", version.cpu_features}};
  json_["engine"] = {{"llama", version.version}, {"ggml", version.ggml}};
  json_["commit"] = ReadCommand("git rev-parse --short HEAD 2>/dev/null");
  json_["model"] = model_->info().description;
  std::string table =
      "# Speed\n\nCommand: `" + command + "`, " + date + ", commit " +
      json_["commit"].get<std::string>() + ", " + cpu + ", " +
      std::to_string(std::thread::hardware_concurrency()) + " cores, libllama " + version.version +
      ", " + model_->info().description + ", rows by " + std::to_string(row_quantum_) +
      ". Medians; every figure and its baseline are from the same run.\n\n"
      "| what | figure | baseline | ratio | target | met |\n|---|---|---|---|---|---|\n";
  for (const Row& r : rows_) {
    table += "| " + r.what + " | " + r.figure + " | " + r.baseline + " | " + r.ratio + " | " +
             r.target + " | " +
             (r.target == "reported" ? ""
              : r.met                ? "yes"
                                     : "NO") +
             " |\n";
  }
  std::printf("%s", table.c_str());
  if (out_.empty()) return;
  std::ofstream(out_ + "/speed.json") << json_.dump(2) << "\n";
  std::ofstream(out_ + "/speed.md") << table;
}

int Main(int argc, char** argv) {
  std::string model, out = std::filesystem::is_directory("bench/results") ? "bench/results" : "";
  std::string command = "./dev bench speed";
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      quick = true;
    } else if (arg == "--out" && i + 1 < argc) {
      out = argv[++i];
    } else {
      model = arg;
    }
  }
  if (model.empty()) {
    const char* models = std::getenv("KVGRAFT_MODELS");
    const char* home = std::getenv("HOME");
    model = (models != nullptr
                 ? std::string(models)
                 : std::string(home != nullptr ? home : "") + "/.local/share/kvgraft/models") +
            "/smollm2-135m.gguf";
  }
  Bench bench(model, out, quick);
  bench.Graft1500();
  bench.Moved1500();
  bench.Capture1500();
  bench.Generation();
  bench.Restore8192();
  bench.Write(command);
  return 0;
}

}  // namespace
}  // namespace kvgraft

int main(int argc, char** argv) { return kvgraft::Main(argc, argv); }
