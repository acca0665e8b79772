// The tool as a function: commands, their arguments, their exit codes. Layer cli.
#pragma once

#include "cli/commands.h"

namespace finegemm::cli {

/// Runs the command that `argv`, which begins with the tool's name, asks for. Throws what the command throws, and
/// Error(InvalidArgument) for arguments that are wrong.
ExitCode run_command(int argc, const char* const* argv, const Front& front);

/// Does so as a process: the report goes to standard output, what is thrown to standard error.
int run_tool(int argc, const char* const* argv);

}  // namespace finegemm::cli
