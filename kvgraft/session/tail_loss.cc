#include "kvgraft/session/tail_loss.h"

#include <algorithm>
#include <cmath>

#include "kvgraft/session/sampling.h"

namespace kvgraft::session {

Status TailLoss::Decode(engine::Context& context, size_t begin, size_t end,
                        const engine::Progress& progress) {
  if (begin != end_) values_.clear();
  const size_t row = std::min(std::max(begin, first_row_), end);
  engine::Logits logits;
  KVG_RETURN(context.Decode(tokens_.subspan(begin, end - begin), engine::Schedule::kExact,
                            end - row, &logits, progress));
  for (size_t i = row; i < end && i + 1 < tokens_.size(); ++i) {
    values_.push_back(-LogProb(logits.row(i - row), tokens_[i + 1]));
  }
  end_ = end;
  return Status::Ok();
}

std::vector<uint64_t> ToMicronats(const std::vector<double>& nats) {
  std::vector<uint64_t> out;
  for (const double v : nats) {
    if (!std::isfinite(v)) return {};
    out.push_back(static_cast<uint64_t>(std::llround(std::max(v, 0.0) * 1e6)));
  }
  return out;
}

}  // namespace kvgraft::session
