// A user's measured choices: the file, and what must hold of it. Layer plan.
#include "plan/table.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <finegemm/error.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "os/trust.h"
#include "plan/fields.h"

namespace finegemm::plan {

namespace {

using nlohmann::ordered_json;

constexpr uint32_t kFormat = 2;
constexpr const char* kMakeOne = "`finegemm tune --output FILE` makes one";

[[noreturn]] void reject(const std::string& file, const std::string& reason) {
    throw Error(Errc::Io, fmt::format("{}: {}", file, reason));
}

// nlohmann's own conversions name no field, wrap negative numbers and cut fractions.

const ordered_json& member(const ordered_json& x, const char* name) {
    if (!x.is_object()) throw std::domain_error(fmt::format("must be an object, not {}", x.type_name()));
    const auto found = x.find(name);
    if (found == x.end()) throw std::domain_error(fmt::format("{} is missing", name));
    return *found;
}

std::string string(const ordered_json& object, const char* name) {
    const ordered_json& x = member(object, name);
    if (!x.is_string()) throw std::domain_error(fmt::format("{} is {}, must be a string", name, x.dump()));
    return x.get<std::string>();
}

uint32_t number(const ordered_json& x, const char* name, uint32_t least) {
    if (!x.is_number_unsigned() || x.get<uint64_t>() < least || x.get<uint64_t>() > INT32_MAX)
        throw std::domain_error(
            fmt::format("{} is {}, must be a whole number from {} to {}", name, x.dump(), least, INT32_MAX));
    return x.get<uint32_t>();
}

double microseconds(const ordered_json& object, const char* name) {
    const ordered_json& x = member(object, name);
    if (!x.is_number() || x.get<double>() <= 0)
        throw std::domain_error(fmt::format("{} is {}, must be a number above 0", name, x.dump()));
    return x.get<double>();
}

TableEntry entry_of(const ordered_json& x) {
    const GemmShape shape = parse_shape(string(x, "problem"));
    check_shape(shape);
    return {.problem = problem_of(shape),
            .kernel = string(x, "kernel"),
            .us = microseconds(x, "us"),
            .usual = string(x, "usual"),
            .usual_us = microseconds(x, "usual_us")};
}

ordered_json json_of(const TableEntry& e) {
    return {{"problem", text_of(e.problem)},
            {"kernel", e.kernel},
            {"us", e.us},
            {"usual", e.usual},
            {"usual_us", e.usual_us}};
}

std::string entry_name(size_t index, const Problem& p) { return fmt::format("entry {} ({})", index + 1, text_of(p)); }

void read_entries(const ordered_json& list, std::vector<TableEntry>& entries) {
    if (!list.is_array()) throw std::domain_error("\"entries\" must be a list");
    for (size_t i = 0; i < list.size(); ++i) {
        TableEntry e;
        try {
            e = entry_of(list[i]);
        } catch (const std::exception& wrong) {
            throw std::domain_error(fmt::format("entry {}: {}", i + 1, wrong.what()));
        }
        if (std::ranges::find(entries, e.problem, &TableEntry::problem) != entries.end())
            throw std::domain_error(entry_name(i, e.problem) + " has a problem that an entry before it has");
        entries.push_back(std::move(e));
    }
}

}  // namespace

PlanTable parse_table(const std::string& text, const std::string& file) {
    PlanTable table;
    try {
        const ordered_json content = ordered_json::parse(text);
        if (const uint32_t format = number(member(content, "format"), "format", 1); format != kFormat)
            throw std::domain_error(fmt::format("it has format {}, this library reads {}", format, kFormat));
        table = {.device = string(content, "device"),
                 .sms = number(member(content, "sms"), "sms", 1),
                 .version = string(content, "version")};
        read_entries(member(content, "entries"), table.entries);
    } catch (const ordered_json::parse_error& e) {
        reject(file, fmt::format("is no plan table: it is not JSON at byte {}; {}", e.byte, kMakeOne));
    } catch (const ordered_json::out_of_range&) {
        reject(file, fmt::format("is no plan table: it has a number that is too large; {}", kMakeOne));
    } catch (const std::domain_error& e) {
        reject(file, fmt::format("is no plan table: {}; {}", e.what(), kMakeOne));
    }
    return table;
}

std::string text_of(const PlanTable& table) {
    const auto quoted = [](const std::string& text) { return ordered_json(text).dump(); };
    std::string lines;  // an entry each, so that two tables can be compared by line
    for (const TableEntry& e : table.entries)
        lines += fmt::format("{}\n  {}", lines.empty() ? "" : ",", json_of(e).dump());
    return fmt::format(
        "{{\n \"format\": {},\n \"device\": {},\n \"sms\": {},\n \"version\": {},\n"
        " \"entries\": [{}\n ]\n}}\n",
        kFormat, quoted(table.device), table.sms, quoted(table.version), lines);
}

void check_device(const PlanTable& table, const DeviceSpec& device, const std::string& file) {
    if (table.device != device.name || table.sms != device.sms)
        throw Error(Errc::InvalidArgument,
                    fmt::format("plan_table: {} was measured on device '{}' with {} SMs, this one is '{}' with {}; "
                                "measure on this one (`finegemm tune --output FILE`), or name no table",
                                file, table.device, table.sms, device.name, device.sms));
}

std::string fault(const TableEntry& entry, const DeviceSpec& device) {
    GemmConfig config;
    try {
        config = config_named(entry.kernel);
    } catch (const Error&) {
        return fmt::format("'{}' is no kernel of this library", entry.kernel);
    }
    const std::string_view why_not = rejected(entry.problem, device, config);
    return why_not.empty() ? "" : fmt::format("kernel '{}' cannot take it: {}", entry.kernel, why_not);
}

PlanTable read_table(const std::string& file) {
    std::ifstream in(file);
    std::ostringstream text;
    if (!in || !(text << in.rdbuf()))
        reject(file, fmt::format("cannot be read or is empty; check the path, {}", kMakeOne));
    return parse_table(text.str(), file);
}

PlanTable load_table(const std::string& file, const DeviceSpec& device, const std::string& trusted) {
    if (file.empty() || !os::file_distrust(file, trusted).empty()) return {};
    PlanTable table = read_table(file);
    check_device(table, device, file);
    for (size_t i = 0; i < table.entries.size(); ++i)
        if (const std::string why = fault(table.entries[i], device); !why.empty())
            reject(file, fmt::format("{}: {}; the table is of version {}: run `finegemm tune` again, or remove the "
                                     "entry",
                                     entry_name(i, table.entries[i].problem), why, table.version));
    return table;
}

}  // namespace finegemm::plan
