// Measured choices that go before the cost model: the library's own, and those of a user's file. Layer plan.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace finegemm::plan {

struct ShippedEntry {
    Problem problem;
    std::string_view kernel;
};
/// The choices that come with the library for a device; empty for most.
std::span<const ShippedEntry> shipped_table(const DeviceSpec& device);

struct TableEntry {
    Problem problem;
    std::string kernel;  // the fastest that was measured
    double us = 0;
    std::string usual{};  // what is taken without a user's table; measured in turn with the other
    double usual_us = 0;
    bool operator==(const TableEntry&) const = default;
};

/// The contents of a plan table's file; `finegemm tune` writes it.
struct PlanTable {
    std::string device;     // DeviceSpec::name
    uint32_t sms = 0;       // of the device: variants and slices of a GPU have fewer, and choices of their own
    std::string version{};  // of the library that measured
    std::vector<TableEntry> entries{};
    bool operator==(const PlanTable&) const = default;
};

/// From and to the text of a file. Throws Error(Io) for any other text, with `file`'s name.
PlanTable parse_table(const std::string& text, const std::string& file);
std::string text_of(const PlanTable& table);

/// Throws Error(InvalidArgument) for a table of another device.
void check_device(const PlanTable& table, const DeviceSpec& device, const std::string& file);
/// Why an entry cannot be used on the device; empty when it can.
std::string fault(const TableEntry& entry, const DeviceSpec& device);

/// Throws Error(Io) for a file that cannot be read or parsed.
PlanTable read_table(const std::string& file);
/// A table of which every entry can be used; without entries for an empty name, or for a file that somebody else can
/// have written (os/trust.h; doctor says so). Throws Error(Io) for a bad file, Error(InvalidArgument) for one that is
/// not for this device.
PlanTable load_table(const std::string& file, const DeviceSpec& device, const std::string& trusted = {});

}  // namespace finegemm::plan
