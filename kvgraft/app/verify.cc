#include "kvgraft/app/verify.h"

#include <algorithm>
#include <cstring>

#include "kvgraft/app/ask.h"
#include "kvgraft/app/capture.h"
#include "kvgraft/session/capture.h"

namespace kvgraft::app {
namespace {

constexpr uint64_t kProbeTokens = 8;

Status VerifyBytes(Runtime& runtime, const artifact::Reader& reader) {
  KVG_RETURN(reader.VerifyPages(runtime.config().n_threads));
  return reader.VerifyContent();
}

Status Recompute(Runtime& runtime, const OpenedArtifact& opened, VerifyReport* report) {
  KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
  const uint64_t needed = opened.reader.tokens().size() + kProbeTokens;
  KVG_ASSIGN(std::unique_ptr<engine::Context> context,
             NewContextFor(runtime, &opened.reader, needed, needed));
  KVG_ASSIGN(session::Grafted grafted,
             GraftInto(runtime, *context, opened, session::ProbePolicy::kAlways));
  report->tier = grafted.tier;
  report->tier_reason = grafted.tier_reason;
  report->build_diffs = grafted.build_diffs;
  if (grafted.probed) report->probe_identical = grafted.probe_identical;
  KVG_RETURN(context->Clear());
  KVG_ASSIGN(session::Recomputed again,
             session::Recompute(*context, *model, opened.reader, runtime.hooks().Stage("prefill")));
  report->recomputed_identical = again.identical;
  report->first_difference = again.first_difference;
  report->prefill_ms = again.prefill_ms;
  return Status::Ok();
}

uint64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto stop = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<uint64_t>(stop.first - a.begin());
}

// Compares the images of artifacts that are sound; a broken one is an error.
Status CompareImages(Runtime& runtime, const artifact::Reader& a, const artifact::Reader& b,
                     DiffReport* report) {
  KVG_RETURN(a.VerifyPages(runtime.config().n_threads).Annotate(report->a.label));
  KVG_RETURN(b.VerifyPages(runtime.config().n_threads).Annotate(report->b.label));
  report->image_compared = true;
  report->image_bytes_a = a.image().size();
  report->image_bytes_b = b.image().size();
  const size_t common = std::min(a.image().size(), b.image().size());
  report->image_identical =
      a.image().size() == b.image().size() &&
      (common == 0 || std::memcmp(a.image().data(), b.image().data(), common) == 0);
  if (!report->image_identical) {
    const auto stop =
        std::mismatch(a.image().begin(), a.image().begin() + common, b.image().begin());
    report->first_image_byte = static_cast<uint64_t>(stop.first - a.image().begin());
  }
  return Status::Ok();
}

}  // namespace

Result<VerifyReport> RunVerify(Runtime& runtime, const std::string& ref,
                               const VerifyOptions& options) {
  KVG_ASSIGN(store::Store * store, runtime.OpenStore());
  KVG_ASSIGN(OpenedArtifact opened, OpenRef(runtime, ref));
  VerifyReport report;
  report.entry = opened.entry;
  report.pages = opened.reader.n_pages();
  const double start = NowMs();
  if (Status bytes = VerifyBytes(runtime, opened.reader); !bytes.ok()) {
    if (bytes.code() != Code::kCorrupt) return bytes;
    KVG_RETURN(store->Quarantine(opened.entry.id, bytes.message()));
    return Status(Code::kCorrupt, bytes.message() + "; it is in quarantine now");
  }
  report.verify_ms = NowMs() - start;
  if (options.recompute) KVG_RETURN(Recompute(runtime, opened, &report));
  return report;
}

Result<DiffReport> RunDiff(Runtime& runtime, const std::string& ref_a, const std::string& ref_b) {
  DiffReport report;
  KVG_ASSIGN(OpenedArtifact a, OpenRef(runtime, ref_a));
  const artifact::Manifest& manifest = a.reader.manifest();
  report.a = {ref_a, a.entry.id, a.reader.tokens().size()};
  if (ref_b.empty()) {
    KVG_ASSIGN(std::unique_ptr<engine::Context> context, runtime.NewContext(256, 1));
    report.against_model = true;
    report.b.label = runtime.config().model;
    report.compat = DiffCompat(manifest.identity, context->identity());
    report.build = DiffBuild(manifest.identity, context->identity());
    return report;
  }
  KVG_ASSIGN(OpenedArtifact b, OpenRef(runtime, ref_b));
  report.b = {ref_b, b.entry.id, b.reader.tokens().size()};
  report.compat = DiffCompat(manifest.identity, b.reader.manifest().identity);
  report.build = DiffBuild(manifest.identity, b.reader.manifest().identity);
  const auto& ta = a.reader.tokens();
  const auto& tb = b.reader.tokens();
  report.common_prefix_tokens = CommonPrefix(ta, tb);
  if (const uint64_t at = report.common_prefix_tokens; at < std::max(ta.size(), tb.size())) {
    TokenDifference first;
    first.index = at;
    if (at < ta.size()) first.a = ta[at];
    if (at < tb.size()) first.b = tb[at];
    if (!runtime.config().model.empty()) {
      KVG_ASSIGN(engine::Model * model, runtime.OpenModel());
      if (first.a) first.a_text = model->TokenText(*first.a, /*special=*/true);
      if (first.b) first.b_text = model->TokenText(*first.b, /*special=*/true);
    }
    report.first_token = first;
  }
  KVG_RETURN(CompareImages(runtime, a.reader, b.reader, &report));
  return report;
}

}  // namespace kvgraft::app
