#include "kvgraft/app/capture.h"

#include <algorithm>
#include <chrono>

#include "kvgraft/app/version.h"
#include "kvgraft/session/capture.h"

namespace kvgraft::app {
namespace {

// Below this many tokens a stored prefix or an interrupted rest is not worth an artifact's
// overhead.
constexpr uint64_t kWorthKeeping = 64;
constexpr uint64_t kProbeTokens = 8;
constexpr char kPartialKind[] = "raw";

class Capturer {
 public:
  Capturer(Runtime& runtime, const CaptureOptions& options)
      : runtime_(runtime), options_(options) {}

  Result<CaptureReport> Run() {
    const double start = NowMs();
    if (!options_.name.empty()) KVG_RETURN(store::CheckName(options_.name));
    KVG_ASSIGN(store_, runtime_.OpenStore());
    KVG_ASSIGN(model_, runtime_.OpenModel());
    KVG_ASSIGN(prepared_, Prepare(*model_, options_.source));
    const uint64_t n = prepared_.tokens.size();
    if (n == 0) return Status(Code::kInvalidArgument, "there is nothing to capture: no tokens");
    KVG_ASSIGN(session::ExactProfile profile, runtime_.Profile());
    report_.verified_schedule = profile.holds;
    const uint64_t needed = n + (options_.probe ? kProbeTokens : 0);
    KVG_ASSIGN(context_, runtime_.NewContext(needed, needed));

    report_.name = options_.name;
    report_.tokens = n;
    if (options_.resume) KVG_RETURN(StartFromPrefix());
    if (!report_.already_stored) KVG_RETURN(ComputeAndStore());
    if (options_.pin) KVG_RETURN(store_->SetPinned(report_.entry.id, true));
    report_.total_ms = NowMs() - start;
    return report_;
  }

 private:
  // Grafts the longest stored prefix, or finds that all is stored. What does not verify is set
  // aside and computed again: only kCancelled and our own failures are errors here.
  Status StartFromPrefix() {
    KVG_ASSIGN(std::optional<store::Entry> found,
               store_->FindLongestPrefix(context_->identity().CompatId(), prepared_.tokens));
    if (!found || found->tier != "exact") return Status::Ok();
    const bool whole = found->n_tokens == prepared_.tokens.size();
    if (!whole && found->n_tokens < kWorthKeeping) return Status::Ok();
    auto reader = store_->OpenArtifact(*found);
    if (!reader.ok()) return Status::Ok();
    const artifact::ScheduleInfo& schedule = reader->manifest().schedule;
    if (schedule.kind != "exact" || (report_.verified_schedule && !schedule.verified)) {
      return Status::Ok();
    }
    if (whole) return UseStored(*found, *reader);

    const double start = NowMs();
    session::GraftOptions graft;
    graft.verified_schedule = report_.verified_schedule;
    graft.ledger = runtime_.ledger();
    auto grafted =
        session::Graft(*context_, *model_, *reader, graft, runtime_.hooks().Stage("restore"));
    if (!grafted.ok()) {
      if (grafted.status().code() == Code::kCancelled) return grafted.status();
      if (grafted.status().code() == Code::kCorrupt) {
        KVG_RETURN(store_->Quarantine(found->id, grafted.status().message()));
      }
      return context_->Clear();
    }
    // A prefix that this build would not compute in the same bits must not enter an exact artifact.
    const bool same_bits =
        grafted->tier == "exact" || (!report_.verified_schedule && grafted->build_diffs.empty());
    if (!same_bits) return context_->Clear();
    report_.graft_ms = NowMs() - start;
    report_.resumed_from = found->id;
    report_.tokens_reused = static_cast<uint64_t>(context_->n_past());
    runtime_.hooks().Note("going on from " + found->id.substr(0, 12) + ": " +
                          std::to_string(report_.tokens_reused) + " of " +
                          std::to_string(prepared_.tokens.size()) + " tokens are there already");
    return Status::Ok();
  }

  Status UseStored(const store::Entry& found, const artifact::Reader& reader) {
    if (Status pages = reader.VerifyPages(runtime_.config().n_threads); !pages.ok()) {
      return store_->Quarantine(found.id, pages.message());
    }
    if (!options_.name.empty()) KVG_RETURN(store_->SetName(found.id, options_.name));
    KVG_ASSIGN(report_.entry, store_->Find(found.id));
    report_.already_stored = true;
    report_.tokens_reused = report_.tokens;
    return Status::Ok();
  }

  // Asks for the room before the work: the size follows from what a first part takes.
  Status ReserveRoom() {
    const uint64_t n = prepared_.tokens.size();
    if (context_->n_past() == 0) {
      const uint64_t first = std::min<uint64_t>(n, kWorthKeeping);
      const std::span<const engine::Token> tokens(prepared_.tokens);
      KVG_RETURN(context_->Decode(tokens.first(first), engine::Schedule::kExact, 0, nullptr));
      early_tokens_ = first;
    }
    KVG_ASSIGN(size_t bytes, context_->ImageBytes());
    const auto held = static_cast<uint64_t>(context_->n_past());
    return store_->Reserve(bytes / held * n + prepared_.text.size() + n * sizeof(int32_t));
  }

  Status ComputeAndStore() {
    const double start = NowMs();
    KVG_RETURN(ReserveRoom());
    const double early_ms = early_tokens_ > 0 ? NowMs() - start : 0;

    session::CaptureRequest request;
    request.tokens = prepared_.tokens;
    request.text = prepared_.text;
    request.name = options_.name;
    request.parent = report_.resumed_from;
    request.prompt_kind = prepared_.prompt.kind;
    request.prompt_suffix = prepared_.prompt.suffix;
    request.probe = options_.probe;
    request.verified_schedule = report_.verified_schedule;
    request.producer = kProducer;
    auto captured =
        session::Capture(*context_, *model_, request, runtime_.hooks().Stage("prefill"));
    if (!captured.ok()) {
      if (captured.status().code() == Code::kCancelled) return KeepPart(request);
      return captured.status();
    }
    report_.tokens_computed = captured->tokens_computed + early_tokens_;
    report_.prefill_ms = captured->prefill_ms + early_ms;
    report_.image_ms = captured->image_ms;
    report_.probe_ms = captured->probe_ms;
    captured->parts.manifest.prefill_us = static_cast<uint64_t>(report_.prefill_ms * 1000);
    return StoreIt(*captured, options_.name);
  }

  Status StoreIt(session::Captured& captured, const std::string& name) {
    const double start = NowMs();
    KVG_ASSIGN(report_.entry, store_->Put(captured.parts, captured.image, name));
    report_.store_ms = NowMs() - start;
    return Status::Ok();
  }

  // After an interruption the context holds an exact prefix, which is as good as any other
  // artifact.
  Status KeepPart(session::CaptureRequest request) {
    const auto held = static_cast<uint64_t>(std::max<engine::Pos>(context_->n_past(), 0));
    const uint64_t gained = held - std::min(held, report_.tokens_reused);
    if (gained < kWorthKeeping) return Status(Code::kCancelled, "interrupted; nothing was stored");
    const std::string progress =
        std::to_string(held) + " of " + std::to_string(request.tokens.size());
    request.tokens.resize(held);
    request.text.clear();
    request.name.clear();
    request.prompt_kind = kPartialKind;
    request.prompt_suffix.clear();
    auto part = session::Capture(*context_, *model_, request);
    if (!part.ok()) return part.status().Annotate("interrupted, and the part was not stored");
    KVG_RETURN(StoreIt(*part, "").Annotate("interrupted, and the part was not stored"));
    return Status(Code::kCancelled, "interrupted; " + progress + " tokens are kept as " +
                                        report_.entry.id.substr(0, 12) +
                                        ", the same command goes on from there");
  }

  Runtime& runtime_;
  const CaptureOptions& options_;
  store::Store* store_ = nullptr;
  engine::Model* model_ = nullptr;
  std::unique_ptr<engine::Context> context_;
  Prepared prepared_;
  CaptureReport report_;
  uint64_t early_tokens_ = 0;  // decoded by ReserveRoom, before Capture counts
};

}  // namespace

double NowMs() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

Result<CaptureReport> RunCapture(Runtime& runtime, const CaptureOptions& options) {
  return Capturer(runtime, options).Run();
}

}  // namespace kvgraft::app
