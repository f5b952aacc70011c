// What a state belongs to. A state may be loaded only where every `compat` field is equal; where
// only `build` fields differ it loads, flagged as not proven bit-exact.
//
// Fields are name/value pairs rather than a struct, so that a message can name the one that
// differs, old readers see new fields (and refuse), and every engine writes its own set.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvgraft/core/status.h"

namespace kvgraft {

struct IdentityField {
  std::string name;   // dotted, lower case: "model.sha256", "cache.type_k", "rope.freq_base"
  std::string value;  // canonical text; floats as shortest round-trip decimal
  bool operator==(const IdentityField&) const = default;
};

struct IdentityDiff {
  std::string field;
  std::string artifact;  // value in the artifact, "(absent)" if it has none
  std::string here;      // value of this model and configuration, "(absent)" likewise
};

struct StateIdentity {
  std::vector<IdentityField> compat;  // sorted by name; any difference refuses
  std::vector<IdentityField> build;   // sorted by name; any difference flags

  // Insert or replace, keeping the order.
  void SetCompat(std::string_view name, std::string value);
  void SetBuild(std::string_view name, std::string value);
  // Value of a compat or build field, empty when absent.
  std::string Get(std::string_view name) const;

  // SHA-256 over "name=value\n" of the compat fields in order: the namespace of an artifact.
  std::string CompatId() const;
  bool operator==(const StateIdentity&) const = default;
};

// Differences, by name over the union of both field sets, in name order.
std::vector<IdentityDiff> DiffCompat(const StateIdentity& artifact, const StateIdentity& here);
std::vector<IdentityDiff> DiffBuild(const StateIdentity& artifact, const StateIdentity& here);

// Ok, or kMismatch with every differing compat field and both values in one line.
Status CheckCompat(const StateIdentity& artifact, const StateIdentity& here);

// Ok, or kInvalidArgument with the field. A name is 1 to 64 characters of [a-z0-9_.]; a value has
// at most 4096 bytes and no control characters (so that CompatId is unambiguous); each set is
// sorted by name without repeats. Artifacts are written and read under this rule: run it on values
// that come from users (a tenant) before a state is captured.
Status CheckIdentity(const StateIdentity& identity);

// Shortest decimal that reads back to the same float: the canonical form of float fields.
std::string CanonicalFloat(float value);

}  // namespace kvgraft
