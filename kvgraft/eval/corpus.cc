#include "kvgraft/eval/corpus.h"

#include <algorithm>

#include "kvgraft/eval/corpus_text.h"

namespace kvgraft::eval {
namespace {

constexpr size_t kMaxParagraphBytes = 2000;
constexpr size_t kMinExcerptBytes = 200, kMaxExcerptBytes = 1600;

// Where to cut a long paragraph: after the last line or word that fits, else between characters.
size_t CutPoint(std::string_view text) {
  const std::string_view head = text.substr(0, kMaxParagraphBytes);
  for (const char separator : {'\n', ' '}) {
    const size_t at = head.rfind(separator);
    if (at != std::string_view::npos && at >= kMaxParagraphBytes / 2) return at + 1;
  }
  size_t at = kMaxParagraphBytes;
  while (at > 1 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::vector<std::string> Paragraphs(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t gap = text.find("\n\n");
    std::string_view paragraph = text.substr(0, gap);
    text.remove_prefix(gap == std::string_view::npos ? text.size() : gap + 2);
    while (paragraph.size() > kMaxParagraphBytes) {
      const size_t cut = CutPoint(paragraph);
      out.emplace_back(paragraph.substr(0, cut));
      paragraph.remove_prefix(cut);
    }
    if (paragraph.find_first_not_of(" \t\r\n") != std::string_view::npos) {
      out.emplace_back(paragraph);
    }
  }
  return out;
}

}  // namespace

std::vector<session::SampleText> BuiltInTexts() {
  std::vector<session::SampleText> out;
  for (const session::SampleText& t : session::SampleTexts()) out.push_back(t);
  out.push_back({session::TextKind::kProse, kCorpusProse});
  out.push_back({session::TextKind::kProse, kCorpusManual});
  out.push_back({session::TextKind::kCode, kCorpusCode});
  out.push_back({session::TextKind::kTable, kCorpusTables});
  out.push_back({session::TextKind::kChat, kCorpusChat});
  return out;
}

Corpus::Corpus(std::span<const std::string> further) {
  for (const session::SampleText& t : BuiltInTexts()) Add(t.text);
  for (const std::string& text : further) Add(text);
}

void Corpus::Add(std::string_view text) {
  std::vector<std::string> paragraphs = Paragraphs(text);
  if (paragraphs.empty()) return;
  for (const std::string& p : paragraphs) bytes_ += p.size();
  documents_.push_back(std::move(paragraphs));
}

std::string Corpus::Draw(Random& random, size_t min_bytes) const {
  std::vector<std::vector<bool>> used;
  std::vector<size_t> left;  // documents with unused paragraphs
  for (size_t d = 0; d < documents_.size(); ++d) {
    used.emplace_back(documents_[d].size(), false);
    left.push_back(d);
  }
  std::string out;
  size_t previous = documents_.size();
  while (out.size() < min_bytes && !left.empty()) {
    size_t d = left[random.Between(0, left.size() - 1)];
    if (d == previous && left.size() > 1) continue;
    previous = d;
    const std::vector<std::string>& paragraphs = documents_[d];
    size_t at = random.Between(0, paragraphs.size() - 1);
    while (used[d][at]) at = (at + 1) % paragraphs.size();
    const size_t excerpt_end = out.size() + random.Between(kMinExcerptBytes, kMaxExcerptBytes);
    for (; at < paragraphs.size() && !used[d][at] && out.size() < excerpt_end; ++at) {
      used[d][at] = true;
      if (!out.empty()) out += "\n\n";
      out += paragraphs[at];
    }
    if (std::find(used[d].begin(), used[d].end(), false) == used[d].end()) std::erase(left, d);
  }
  return out;
}

}  // namespace kvgraft::eval
