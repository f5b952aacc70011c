// Figures in JSON, for the files and objects that app writes.
#pragma once

#include <nlohmann/json.hpp>

namespace kvgraft::app {

// NaN and infinity have no place in JSON: null.
inline nlohmann::ordered_json Figure(double value) {
  return value - value == 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

}  // namespace kvgraft::app
