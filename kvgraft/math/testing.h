// For tests of what reads and writes states: a state without an engine.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kvgraft/core/kv_state.h"

namespace kvgraft::math::testing {

// Streams of zeros, each in bytes of its own, for n_cells tokens from position first_pos on.
struct State {
  KvLayout layout;
  std::vector<std::vector<uint8_t>> bytes;
  MutableKvView view;

  State(const KvLayout& l, size_t n_cells, int32_t first_pos) : layout(l) {
    view.layout = &layout;
    for (uint32_t t = 0; t < layout.tables.size(); ++t) {
      std::vector<int32_t>& table = view.positions.emplace_back();
      for (size_t i = 0; i < n_cells; ++i) table.push_back(first_pos + static_cast<int32_t>(i));
    }
    for (const StreamSpec& s : layout.streams) {
      const BlockSize block = BlockOf(s.type).value();
      bytes.emplace_back(n_cells * s.width() / block.elements * block.bytes);
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      const BlockSize block = BlockOf(layout.streams[i].type).value();
      view.streams.push_back(
          {bytes[i], uint64_t{layout.streams[i].width()} / block.elements * block.bytes});
    }
  }
};

}  // namespace kvgraft::math::testing
