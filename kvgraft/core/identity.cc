#include "kvgraft/core/identity.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "kvgraft/core/hash.h"

namespace kvgraft {
namespace {

constexpr const char* kAbsent = "(absent)";
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxValueBytes = 4096;

void Set(std::vector<IdentityField>& fields, std::string_view name, std::string value) {
  auto at = std::lower_bound(
      fields.begin(), fields.end(), name,
      [](const IdentityField& f, std::string_view n) { return std::string_view(f.name) < n; });
  if (at != fields.end() && at->name == name) {
    at->value = std::move(value);
  } else {
    fields.insert(at, IdentityField{std::string(name), std::move(value)});
  }
}

std::vector<IdentityDiff> Diff(const std::vector<IdentityField>& artifact,
                               const std::vector<IdentityField>& here) {
  // By name, whatever order the caller built the vectors in.
  std::map<std::string_view, std::pair<const std::string*, const std::string*>> all;
  for (const IdentityField& f : artifact) all[f.name].first = &f.value;
  for (const IdentityField& f : here) all[f.name].second = &f.value;
  std::vector<IdentityDiff> diffs;
  for (const auto& [name, values] : all) {
    const auto& [a, b] = values;
    if (a != nullptr && b != nullptr && *a == *b) continue;
    diffs.push_back({std::string(name), a ? *a : kAbsent, b ? *b : kAbsent});
  }
  return diffs;
}

Status CheckFields(const std::vector<IdentityField>& fields, const char* kind) {
  const IdentityField* previous = nullptr;
  for (const IdentityField& f : fields) {
    const std::string where = std::string("identity: ") + kind + " field \"" + f.name + "\"";
    const bool name_ok =
        !f.name.empty() && f.name.size() <= kMaxNameBytes &&
        std::all_of(f.name.begin(), f.name.end(), [](char c) {
          return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
        });
    if (!name_ok) {
      return Status(Code::kInvalidArgument,
                    where + ": a name is 1 to 64 characters of a-z, 0-9, '_' and '.'");
    }
    if (f.value.size() > kMaxValueBytes) {
      return Status(
          Code::kInvalidArgument,
          where + ": a value of " + std::to_string(f.value.size()) + " bytes, the limit is 4096");
    }
    const bool value_ok = std::none_of(f.value.begin(), f.value.end(),
                                       [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (!value_ok) {
      return Status(Code::kInvalidArgument, where + ": control characters in the value");
    }
    if (previous != nullptr && !(previous->name < f.name)) {
      return Status(Code::kInvalidArgument, where + ": fields must be sorted by name, each once");
    }
    previous = &f;
  }
  return Status::Ok();
}

}  // namespace

void StateIdentity::SetCompat(std::string_view name, std::string value) {
  Set(compat, name, std::move(value));
}

void StateIdentity::SetBuild(std::string_view name, std::string value) {
  Set(build, name, std::move(value));
}

std::string StateIdentity::Get(std::string_view name) const {
  for (const auto* fields : {&compat, &build}) {
    for (const IdentityField& f : *fields) {
      if (f.name == name) return f.value;
    }
  }
  return "";
}

std::string StateIdentity::CompatId() const {
  Sha256 hash;
  for (const IdentityField& f : compat) {
    hash.Update(f.name);
    hash.Update("=");
    hash.Update(f.value);
    hash.Update("\n");
  }
  return hash.Finish();
}

std::vector<IdentityDiff> DiffCompat(const StateIdentity& artifact, const StateIdentity& here) {
  return Diff(artifact.compat, here.compat);
}

std::vector<IdentityDiff> DiffBuild(const StateIdentity& artifact, const StateIdentity& here) {
  return Diff(artifact.build, here.build);
}

Status CheckCompat(const StateIdentity& artifact, const StateIdentity& here) {
  const std::vector<IdentityDiff> diffs = DiffCompat(artifact, here);
  if (diffs.empty()) return Status::Ok();
  std::string message = "captured for another model or configuration: ";
  for (size_t i = 0; i < diffs.size(); ++i) {
    if (i > 0) message += "; ";
    message += diffs[i].field + " is " + diffs[i].artifact + " in the artifact, " + diffs[i].here +
               " here";
  }
  message += " (load with the same model and options, or capture again)";
  return Status(Code::kMismatch, std::move(message));
}

Status CheckIdentity(const StateIdentity& identity) {
  KVG_RETURN(CheckFields(identity.compat, "compat"));
  return CheckFields(identity.build, "build");
}

std::string CanonicalFloat(float value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end.ptr);
}

}  // namespace kvgraft
