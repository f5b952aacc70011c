#include "kvgraft/eval/compose_questions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "kvgraft/core/random.h"
#include "kvgraft/eval/corpus.h"

namespace kvgraft::eval {
namespace {

using Json = nlohmann::json;

constexpr size_t kMinChunks = 2, kMaxChunks = 6;
constexpr size_t kGroupChunks = 6;
constexpr size_t kExcerptBytes = 420;

constexpr std::array kPeople = {"Anna Berg",    "Tomas Lind",  "Clara Voss", "Edwin Hale",
                                "Marta Quint",  "Oskar Penn",  "Ruth Adler", "Simon Crane",
                                "Helen Brandt", "Victor Moss", "Ida Falk",   "Paul Storm"};
constexpr std::array kPlaces = {"north lighthouse", "old mill",    "river ferry",   "glass works",
                                "hill chapel",      "fish market", "stone bridge",  "apple orchard",
                                "salt house",       "bell tower",  "harbour crane", "rope yard"};
constexpr std::array kThings = {"copper kettle", "silver lantern", "wooden chest",   "iron anchor",
                                "marble statue", "velvet coat",    "brass compass",  "paper kite",
                                "clay jug",      "ivory comb",     "leather saddle", "linen sail"};

struct Fact {
  std::string question, prefix, answer;
  std::vector<size_t> chunks;  // of the group
};

// Sentences of a natural excerpt of about kExcerptBytes.
std::vector<std::string> Sentences(const Corpus& corpus, Random& random) {
  std::string text = corpus.Draw(random, kExcerptBytes);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::vector<std::string> out;
  size_t bytes = 0;
  while (!text.empty() && bytes < kExcerptBytes) {
    const size_t stop = text.find(". ");
    size_t end = stop == std::string::npos ? text.size() : stop + 1;
    if (end > kExcerptBytes)
      end = std::min(end, std::max<size_t>(text.rfind(' ', kExcerptBytes), 1));
    out.push_back(text.substr(0, end));
    bytes += end;
    text.erase(0, std::min(text.size(), end + 1));
  }
  return out;
}

// The facts stand between the sentences, none at the very start or end.
std::string Plant(std::vector<std::string> sentences, const std::vector<std::string>& facts,
                  Random& random) {
  for (const std::string& fact : facts) {
    const size_t at =
        sentences.size() < 2 ? sentences.size() : random.Between(1, sentences.size() - 1);
    sentences.insert(sentences.begin() + static_cast<int64_t>(at), fact);
  }
  std::string text;
  for (const std::string& s : sentences) text += (text.empty() ? "" : " ") + s;
  return text;
}

std::string Digits(Random& random, size_t n) {
  std::string out(1, static_cast<char>('1' + random.Between(0, 8)));
  while (out.size() < n) out += static_cast<char>('0' + random.Between(0, 9));
  return out;
}

template <size_t N>
std::vector<std::string> Shuffled(const std::array<const char*, N>& words, Random& random) {
  std::vector<std::string> out(words.begin(), words.end());
  random.Shuffle(&out);
  return out;
}

// How many texts a question comes with: mostly 2 to 4.
size_t DrawCount(Random& random) {
  const uint64_t x = random.Between(0, 99);
  return x < 40 ? 2 : x < 75 ? 3 : x < 90 ? 4 : x < 96 ? 5 : 6;
}

// The needed texts and others of the group, in random order.
std::vector<std::string> Choose(const std::vector<std::string>& chunks,
                                const std::vector<size_t>& needed, Random& random) {
  std::vector<size_t> chosen = needed;
  const size_t count = std::max(DrawCount(random), needed.size());
  while (chosen.size() < count) {
    const size_t other = random.Between(0, chunks.size() - 1);
    if (std::find(chosen.begin(), chosen.end(), other) == chosen.end()) chosen.push_back(other);
  }
  random.Shuffle(&chosen);
  std::vector<std::string> out;
  for (const size_t i : chosen) out.push_back(chunks[i]);
  return out;
}

void AddGroup(const Corpus& corpus, uint32_t group, Random& random,
              std::vector<ComposeQuestion>* out) {
  const auto people = Shuffled(kPeople, random), places = Shuffled(kPlaces, random),
             things = Shuffled(kThings, random);
  std::vector<std::vector<std::string>> facts(kGroupChunks);
  std::vector<Fact> asked;
  for (size_t i = 0; i < kGroupChunks; ++i) {
    const std::string price = Digits(random, 4), badge = Digits(random, 5);
    const size_t next = (i + 1) % kGroupChunks;
    facts[i].push_back("The catalogue number of the " + things[i] + " is " + price + ".");
    facts[i].push_back("The keeper of the " + places[i] + " is " + people[i] + ".");
    facts[next].push_back("The badge number of " + people[i] + " is " + badge + ".");
    const std::string item = "catalogue number of the " + things[i];
    const std::string keeper = "badge number of the keeper of the " + places[i];
    const std::string only = "? Reply with the number only.";
    asked.push_back({"What is the " + item + only, "The " + item + " is", price, {i}});
    asked.push_back({"What is the " + keeper + only, "The " + keeper + " is", badge, {i, next}});
  }
  std::vector<std::string> chunks;
  for (const auto& f : facts) chunks.push_back(Plant(Sentences(corpus, random), f, random));
  for (size_t i = 0; i < asked.size(); ++i) {
    ComposeQuestion& q = out->emplace_back();
    q.kind = asked[i].chunks.size() == 1 ? "one" : "two";
    q.id = "builtin-" + std::to_string(group) + "-" + std::to_string(i / 2) + "-" + q.kind;
    q.chunks = Choose(chunks, asked[i].chunks, random);
    q.question = asked[i].question;
    q.answers = {asked[i].answer};
    q.prefix = asked[i].prefix;
  }
}

Result<ComposeQuestion> ParseLine(std::string_view line) {
  try {
    const Json j = Json::parse(line);
    ComposeQuestion q;
    q.id = j.at("id").get<std::string>();
    q.kind = j.at("kind").get<std::string>();
    q.chunks = j.at("chunks").get<std::vector<std::string>>();
    q.question = j.at("question").get<std::string>();
    q.answers = j.at("answers").get<std::vector<std::string>>();
    q.prefix = j.value("prefix", "");
    const auto bad = [](const char* what) { return Status(Code::kInvalidArgument, what); };
    if (q.id.empty()) return bad("id is empty");
    if (q.kind != "one" && q.kind != "two") return bad("kind is not \"one\" or \"two\"");
    if (q.chunks.size() < kMinChunks || q.chunks.size() > kMaxChunks) {
      return bad("chunks: 2 to 6 texts are expected");
    }
    if (std::count(q.chunks.begin(), q.chunks.end(), "") > 0) return bad("chunks: an empty text");
    if (q.question.empty()) return bad("question is empty");
    if (q.answers.empty() || q.answers[0].empty()) return bad("answers: none");
    return q;
  } catch (const Json::exception& e) {
    return Status(Code::kInvalidArgument, e.what());
  }
}

// Lower-case words with one space before and after each.
std::string Words(std::string_view text) {
  std::string out = " ", word;
  const auto end_word = [&] {
    if (!word.empty() && word != "the" && word != "a" && word != "an") out += word + " ";
    word.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool inside = i > 0 && i + 1 < text.size() && c == ',' &&
                        std::isdigit(text[i - 1]) != 0 &&
                        std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (inside) continue;  // 48,213 is 48213
    if (c >= 0x80 || std::isalnum(c) != 0) {
      word += static_cast<char>(std::tolower(c));
    } else {
      end_word();
    }
  }
  end_word();
  return out;
}

}  // namespace

Result<std::vector<ComposeQuestion>> ParseComposeQuestions(std::string_view jsonl) {
  std::vector<ComposeQuestion> out;
  std::set<std::string> ids;
  size_t number = 0;
  while (!jsonl.empty()) {
    ++number;
    const size_t end = jsonl.find('\n');
    const std::string_view line = jsonl.substr(0, end);
    jsonl.remove_prefix(end == std::string_view::npos ? jsonl.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<ComposeQuestion> q = ParseLine(line);
    const std::string where = "questions, line " + std::to_string(number);
    KVG_RETURN(q.status().Annotate(where));
    if (!ids.insert(q->id).second) {
      return Status(Code::kInvalidArgument, where + ": id '" + q->id + "' is there twice");
    }
    out.push_back(std::move(*q));
  }
  if (out.empty()) return Status(Code::kInvalidArgument, "questions: the file has none");
  return out;
}

std::vector<ComposeQuestion> BuiltInComposeQuestions(uint32_t n_groups, uint64_t seed) {
  const Corpus corpus;
  std::vector<ComposeQuestion> out;
  for (uint32_t g = 0; g < n_groups; ++g) {
    Random random(seed * 0x9E3779B97F4A7C15ull + g);
    AddGroup(corpus, g, random, &out);
  }
  return out;
}

bool ContainsAnswer(std::string_view text, const std::vector<std::string>& answers) {
  const std::string words = Words(text);
  return std::any_of(answers.begin(), answers.end(), [&](const std::string& answer) {
    const std::string wanted = Words(answer);
    return wanted.size() > 1 && words.find(wanted) != std::string::npos;
  });
}

}  // namespace kvgraft::eval
