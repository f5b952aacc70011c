// Decodes three tokens on the toy engine and prints how many the state holds.
#include <cstdio>

#include "kvgraft/engine/toy_engine.h"

int main() {
  const auto model = kvgraft::engine::NewToyModel();
  auto context = model->NewContext({.n_ctx = 64});
  const kvgraft::engine::Token tokens[] = {'a', 'b', 'c'};
  const auto status =
      context.ok() ? (*context)->Decode(tokens, kvgraft::engine::Schedule::kExact, 0, nullptr)
                   : context.status();
  if (!status.ok()) return std::fprintf(stderr, "%s\n", status.message().c_str()), 1;
  std::printf("%d tokens\n", (*context)->n_past());
}
