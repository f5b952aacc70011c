#include <string>
#include <vector>

#include "kvgraft/cli/shell.h"

int main(int argc, char** argv) {
  return kvgraft::cli::RunProgram(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
