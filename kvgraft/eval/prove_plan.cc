#include "kvgraft/eval/prove_plan.h"

#include <algorithm>
#include <cmath>

namespace kvgraft::eval {
namespace {

// Lengths where kernels (64 rows), cache blocks (256 cells) and physical batches (512 rows) change.
constexpr uint32_t kBorders[] = {63, 64, 65, 255, 256, 257, 511, 512, 513};
constexpr const char* kArms[] = {"split", "restore", "restore-new-context", "restore-new-process"};
constexpr uint32_t kLongestRun = 24;  // of tokens one by one

uint32_t ChooseLength(uint32_t index, const PlanLimits& limits, Random& random) {
  std::vector<uint32_t> borders;
  for (const uint32_t b : kBorders) {
    if (b >= limits.min_tokens && b <= limits.max_tokens) borders.push_back(b);
  }
  if (index < borders.size()) return borders[index];
  const double low = std::log(limits.min_tokens), high = std::log(limits.max_tokens + 1.0);
  const double length = std::floor(std::exp(low + (high - low) * random.Unit()));
  return std::clamp(static_cast<uint32_t>(length), limits.min_tokens, limits.max_tokens);
}

// Appends [first, end) to `steps`, perhaps with a run of single tokens before or after the rest.
void AddPart(uint32_t first, uint32_t end, Random& random, uint32_t* singles_left,
             std::vector<Step>* steps) {
  uint32_t n_single = 0;
  if (random.Chance(1, 2)) {
    n_single = static_cast<uint32_t>(random.Between(1, kLongestRun));
    n_single = std::min({n_single, end - first, *singles_left});
    *singles_left -= n_single;
  }
  const bool at_end = random.Chance(1, 2);
  const uint32_t n_block = end - first - n_single;
  const uint32_t first_block = at_end ? first : first + n_single;
  if (n_single > 0 && !at_end) steps->push_back({first, n_single, true});
  if (n_block > 0) steps->push_back({first_block, n_block, false});
  if (n_single > 0 && at_end) steps->push_back({first + n_block, n_single, true});
}

}  // namespace

SamplePlan PlanSample(uint64_t seed, uint32_t index, const PlanLimits& limits) {
  Random random(Random(seed).Next() ^ ((uint64_t{index} + 1) * 0xD1342543DE82EF95ull));
  SamplePlan plan;
  plan.index = index;
  plan.n_tokens = ChooseLength(index, limits, random);
  plan.n_threads = static_cast<uint32_t>(random.Between(1, std::max(1u, limits.max_threads)));
  plan.text_seed = random.Next();
  plan.disturb_seed = random.Next();

  const uint32_t n = plan.n_tokens;
  const bool can_restore = n > limits.alignment;
  plan.arm = kArms[can_restore ? (index + seed) % 4 : 0];
  plan.new_process_skipped = plan.arm == kArms[3] && !limits.new_process;
  if (plan.new_process_skipped) plan.arm = kArms[2];
  const bool restores = plan.arm != kArms[0];

  const uint32_t most = std::min(kMaxParts, n);
  plan.n_parts = static_cast<uint32_t>(random.Between(restores ? 2 : 1, most));
  std::vector<uint32_t> cuts;  // distinct, inside
  while (cuts.size() + 1 < plan.n_parts) {
    const auto cut = static_cast<uint32_t>(random.Between(1, n - 1));
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  }
  if (restores) {
    // At least one cut leaves an aligned image.
    const bool any =
        std::any_of(cuts.begin(), cuts.end(), [&](uint32_t c) { return c >= limits.alignment; });
    if (!any) cuts[0] = static_cast<uint32_t>(random.Between(limits.alignment, n - 1));
  }
  std::sort(cuts.begin(), cuts.end());
  if (restores) {
    const auto first = std::lower_bound(cuts.begin(), cuts.end(), limits.alignment);
    plan.n_captured = first[static_cast<int64_t>(
        random.Between(0, static_cast<uint64_t>(cuts.end() - first) - 1))];
  }
  cuts.push_back(n);
  uint32_t singles_left = kMaxSingles, at = 0;
  for (const uint32_t cut : cuts) {
    AddPart(at, cut, random, &singles_left, at < plan.n_captured ? &plan.head : &plan.rest);
    at = cut;
  }
  plan.n_single = kMaxSingles - singles_left;
  return plan;
}

}  // namespace kvgraft::eval
