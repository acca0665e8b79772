// finegemm: the command line tool as a program. Layer cli.
#include "cli/tool.h"

int main(int argc, char** argv) { return finegemm::cli::run_tool(argc, argv); }
