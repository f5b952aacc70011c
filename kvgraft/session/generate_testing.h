// What the tests of Generate share: a toy for which padding holds, and a run of it with everything
// that can be seen.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kvgraft/engine/toy_engine.h"
#include "kvgraft/session/generate.h"

namespace kvgraft::session::generate_testing {

using engine::Context;
using engine::ContextOptions;
using engine::Model;
using engine::Schedule;
using engine::Token;
using Tokens = std::vector<Token>;

inline constexpr ContextOptions kContext{.n_ctx = 512};

inline std::unique_ptr<Model> ExactModel() { return engine::NewToyModel({.kernel_quantum = 8}); }

inline std::unique_ptr<Context> NewContext(Model& model, const ContextOptions& options = kContext) {
  auto context = model.NewContext(options);
  EXPECT_TRUE(context.ok()) << context.status().message();
  return std::move(context).value();
}

inline std::vector<uint8_t> Image(Context& context) {
  std::vector<uint8_t> image(context.ImageBytes().value());
  EXPECT_TRUE(context.SaveImage(image).ok());
  return image;
}

inline Tokens RandomPrompt(std::mt19937_64& random, size_t longest) {
  Tokens tokens(1 + random() % longest);
  for (Token& t : tokens) t = static_cast<Token>('a' + random() % 26);
  return tokens;
}

// A generation with everything that can be seen of it.
struct Seen {
  Generation generation;
  std::vector<std::string> pieces;
  std::vector<uint8_t> image;
};

inline Seen Watch(Model& model, std::span<const Token> prompt, GenerateOptions options,
                  const ContextOptions& context_options = kContext) {
  Seen seen;
  auto context = NewContext(model, context_options);
  auto inner = options.on_text;
  options.on_text = [&](std::string_view text) {
    seen.pieces.emplace_back(text);
    return !inner || inner(text);
  };
  auto result = Generate(*context, model, {}, prompt, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return seen;
  seen.generation = std::move(result).value();
  EXPECT_EQ(seen.generation.n_context, static_cast<uint64_t>(context->n_past()));
  seen.image = Image(*context);
  return seen;
}

inline std::string Join(const std::vector<std::string>& pieces) {
  std::string all;
  for (const auto& p : pieces) all += p;
  return all;
}

inline void ExpectSame(const Seen& a, const Seen& b) {
  EXPECT_EQ(a.generation.tokens, b.generation.tokens);
  EXPECT_EQ(a.generation.text, b.generation.text);
  EXPECT_EQ(a.generation.finish_reason, b.generation.finish_reason);
  EXPECT_EQ(a.generation.end_of_generation, b.generation.end_of_generation);
  EXPECT_EQ(a.generation.n_context, b.generation.n_context);
  EXPECT_EQ(a.pieces, b.pieces);
  EXPECT_EQ(a.image, b.image);
}

inline SamplingOptions Seeded(uint64_t seed, float temperature) {
  return {.temperature = temperature, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = seed};
}

}  // namespace kvgraft::session::generate_testing
