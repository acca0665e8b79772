// The tool as a function: commands, their arguments, their exit codes. Layer cli.
#include "cli/tool.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <finegemm/error.h>

#include "api/options.h"
#include "cli/log.h"
#include "cli/product.h"

namespace finegemm::cli {

namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0  done\n"
    "  1  failed: a file, the driver, a compiler or the memory\n"
    "  2  an argument or a variable is invalid\n"
    "  3  not supported here: no such GPU, no driver\n"
    "  4  the result is wrong\n";
constexpr const char* kVariables =
    "  FINEGEMM_BATCH_INVARIANT, FINEGEMM_CACHE_DIR, FINEGEMM_CACHE_LIMIT, FINEGEMM_CHECK, FINEGEMM_COMPILER,\n"
    "  FINEGEMM_CPU_THREADS, FINEGEMM_DRIVER, FINEGEMM_DUMP, FINEGEMM_LOG, FINEGEMM_NVCC, FINEGEMM_NVRTC,\n"
    "  FINEGEMM_PACK, FINEGEMM_PLAN_TABLE, FINEGEMM_TRUSTED_DIR";
/// What stands at the end of a command's help.
struct Notes {
    const char *command, *examples;
    const char* variables = kVariables;  // of the environment; to a few commands only some apply
};
constexpr Notes kNotes[] = {
    {"run",
     "  finegemm run 64 2112 7168\n"
     "  finegemm run --a x.npy --b model.safetensors:layers.0.weight --out d.npy\n"
     "  finegemm run 4096 4096 7168 --groups 64 --form masked\n"},
    {"bench",
     "  finegemm bench --shapes 64x2112x7168,128x4096x7168 --output times.json\n"
     "  finegemm bench --ep --ranks 4 --device cpu --shapes 'moe 64x512x256 16x4'\n"},
    {"tune", "  finegemm tune --file calls.log --output table.json\n"},
    {"explain", "  finegemm explain 64 2112 7168 --device h100\n",
     "  FINEGEMM_BATCH_INVARIANT, FINEGEMM_DRIVER, FINEGEMM_PLAN_TABLE, FINEGEMM_TRUSTED_DIR"},
    {"cache", "  finegemm cache list\n", "  FINEGEMM_CACHE_DIR, FINEGEMM_CACHE_LIMIT"},
    {"pack", "  finegemm pack --out kernels.pack --cuda 12\n", "  FINEGEMM_COMPILER, FINEGEMM_NVCC, FINEGEMM_NVRTC"}};

std::string footer_with(const char* variables) {
    return std::string(kExitCodes) + "Variables (docs/jit.md):\n" + variables;
}

/// Which options go together is left to the errors: it is more than the rest of an option's line.
struct Help : CLI::Formatter {
    std::string make_option_opts(const CLI::Option* option) const override {
        const std::string text = CLI::Formatter::make_option_opts(option);
        return text.substr(0, std::min(text.find(" Excludes:"), text.find(" Needs:")));
    }
};

ExitCode report(const char* reason, ExitCode code) {
    std::cerr << "finegemm: " << reason << '\n';
    return code;
}

ExitCode exit_code_of(Errc code) {
    switch (code) {
        case Errc::InvalidArgument: return kInvalid;
        case Errc::Unsupported: return kUnsupported;
        default: return kFailed;
    }
}

/// The library's sentence with the names of its arguments as the command's options: "num_sms: is -1" becomes
/// "--num-sms: is -1". A name without an underscore is an argument's only where the sentence begins with it.
std::string with_options(const CLI::App& command, std::string_view message) {
    std::string out;
    while (!message.empty()) {
        const std::string word(message.substr(0, message.find_first_of(" :;,")));
        const std::string option = option_of(word);
        const bool argument = word.find('_') != word.npos || (out.empty() && message.substr(word.size(), 1) == ":");
        out += argument && command.get_option_no_throw(option) ? option : word;
        const size_t next = std::min(message.find_first_not_of(" :;,", word.size()), message.size());
        out += message.substr(word.size(), next - word.size());
        message.remove_prefix(next);
    }
    return out;
}

[[noreturn]] void reject(const std::string& what) {
    throw Error(Errc::InvalidArgument, what + "; --help says what there is");
}

[[noreturn]] void reject_command(const CLI::App& app) {
    const std::vector<std::string> rest = app.remaining();
    if (!rest.empty() && rest[0].starts_with('-')) reject(rest[0] + ": is no option");
    std::string names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        names += (names.empty() ? "" : ", ") + command->get_name();
    throw Error(Errc::InvalidArgument,
                (rest.empty() ? "a command is missing" : "'" + rest[0] + "': is no command") + "; there are " + names);
}

/// Ctrl-C ends the process at once, and wipes a line of progress before.
void end_by(int signal) {
    constexpr char kWipe[] = "\r\x1b[K";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kWipe, sizeof kWipe - 1);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

ExitCode run_or_report(int argc, const char* const* argv) {
    try {
        return run_command(argc, argv, {.out = std::cout, .log = log_variable()});
    } catch (const Error& e) {
        return report(e.what(), exit_code_of(e.code()));
    } catch (const std::bad_alloc&) {
        return report("out of memory; take a smaller problem", kFailed);
    } catch (const std::exception& e) {
        return report(e.what(), kFailed);
    }
}

}  // namespace

ExitCode run_command(int argc, const char* const* argv, const Front& front) {
    CLI::App app("FP8 matrix products with fine-grained scales, on Hopper GPUs and on CPUs", "finegemm");
    app.set_version_flag("--version", FINEGEMM_VERSION);
    app.require_subcommand(0, 1);  // none is told apart from a wrong one below
    app.fallthrough();             // --log may stand behind the command
    std::string wish = front.log;
    app.add_option("--log", wish, "Write to standard error which calls there were: calls or shapes; or to calls:FILE");
    app.footer(footer_with(kVariables));
    app.formatter(std::make_shared<Help>());  // of commands, too
    const std::pair<const char*, Run> commands[] = {
        {"run", add_run(app)},       {"bench", add_bench(app)}, {"tune", add_tune(app)}, {"explain", add_explain(app)},
        {"doctor", add_doctor(app)}, {"cache", add_cache(app)}, {"pack", add_pack(app)}};
    for (const Notes& n : kNotes)
        app.get_subcommand(n.command)->footer(std::string("Examples:\n") + n.examples + footer_with(n.variables));
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {  // --help, --version
        app.exit(e, front.out, front.out);
        return kOk;
    } catch (const CLI::ParseError& e) {
        if (app.get_subcommands().empty()) reject_command(app);
        reject(e.what());
    }
    Front logging = front;
    std::optional<CallLog> log;
    if (!wish.empty()) {
        log.emplace(wish);
        logging.options = [&] {
            Options options = front.options();
            options.log = [&](const LoggedCall& call) { log->add(call); };
            return options;
        };
    }
    for (const auto& [name, command] : commands) {
        if (!app.got_subcommand(name)) continue;
        try {
            const ExitCode code = command(logging);
            if (log) log->finish();
            return code;
        } catch (const Error& e) {
            if (e.code() != Errc::InvalidArgument) throw;  // of a file, say
            throw Error(e.code(), with_options(*app.get_subcommand(name), e.what()));
        }
    }
    reject_command(app);
}

int run_tool(int argc, const char* const* argv) {
    if (isatty(STDERR_FILENO) != 0) std::signal(SIGINT, end_by);
    for (const std::string& sentence : misspelt_variables()) std::cerr << "finegemm: " << sentence << '\n';
    const ExitCode code = run_or_report(argc, argv);
    if (std::cout.flush()) return code;
    const ExitCode lost = report("standard output: cannot be written; what was printed is lost", kFailed);
    return code == kOk ? lost : code;
}

}  // namespace finegemm::cli
