#include "kvgraft/artifact/json_check.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace kvgraft::artifact {
namespace {

using nlohmann::json;

// Follows the parser's events; a false return ends the parse.
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(int max_depth) : max_depth_(max_depth) {}

  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (names_.back().insert(name).second) return true;
    error_ = "member \"" + name + "\" occurs twice";
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& e) override {
    error_ = e.what();
    return false;
  }

 private:
  bool Enter() {
    names_.emplace_back();
    if (names_.size() <= static_cast<size_t>(max_depth_)) return true;
    error_ = "nested more than " + std::to_string(max_depth_) + " deep";
    return false;
  }
  bool Leave() {
    names_.pop_back();
    return true;
  }

  int max_depth_;
  std::vector<std::set<std::string>> names_;
  std::string error_;
};

}  // namespace

Status CheckJson(std::string_view text, int max_depth) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") {
    return Status(Code::kCorrupt, "JSON: starts with a byte order mark");
  }
  // nlohmann takes a NUL for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return Status(Code::kCorrupt, "JSON: holds a NUL byte");
  }
  Checker checker(max_depth);
  bool ok = false;
  try {
    ok = json::sax_parse(text, &checker);
  } catch (const std::exception& e) {
    return Status(Code::kCorrupt, std::string("JSON: ") + e.what());
  }
  if (!ok) return Status(Code::kCorrupt, "JSON: " + checker.error());
  return Status::Ok();
}

}  // namespace kvgraft::artifact
