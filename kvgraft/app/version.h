// The version of this program and library; the build checks that it is the project's.
#pragma once

namespace kvgraft::app {

inline constexpr char kVersion[] = "0.1.0";
inline constexpr char kProducer[] = "kvgraft 0.1.0";

}  // namespace kvgraft::app
