// The one exception type of the library. Layer: public.
#pragma once

#include <stdexcept>
#include <string>

#include <finegemm/export.h>

namespace finegemm {

/// Why a call failed; the message says it for people. The values are part of the C ABI.
enum class Errc : int {
    InvalidArgument = 1,  ///< an argument breaks a documented rule; the message names it, its value and the rule
    Unsupported = 2,      ///< valid, but not on this device or in this build
    Driver = 3,           ///< the CUDA driver reported an error
    Compile = 4,          ///< run-time compilation failed; the message carries the log
    Io = 5,               ///< a file could not be read or written
    OutOfMemory = 6,
    Internal = 7,  ///< a broken invariant of ours: please report it
    Peer = 9,      ///< another rank of a communicator has not come, or has left; 8 is the C ABI's FINEGEMM_ENDED
};

class FINEGEMM_API Error : public std::runtime_error {
public:
    Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
    Errc code() const noexcept { return code_; }

private:
    Errc code_;
};

}  // namespace finegemm
