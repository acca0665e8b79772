// The record of finegemm bench, as the JSON that bench/report.py draws. Layer cli.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/comparison.h"
#include "cli/bench/shapes.h"
#include "cli/product.h"
#include "peers/nvml.h"

namespace finegemm::cli {

/// Facts for all rows. Empty strings are left out.
struct Head {
    std::string machine{};                     // "cpu" or the GPU's name
    std::string driver{}, cuda{}, cublaslt{};  // versions
    std::string method{}, shapes{};
    std::string without_nvml{};  // why nothing is known about power and clocks
    std::string commit{};
    std::optional<nvml::Reading> reading{};
    std::optional<Baselines> baselines{};
};

struct Row {
    Shape shape;
    ProductOptions product{};
    int64_t busy = 1;  // groups with rows or k
    std::string kernel{};
    std::vector<Entry> entries{};  // FineGEMM's first
    std::optional<nvml::Reading> reading{};
};

class Record {
public:
    /// `file`: where the record is written, now and after each row; empty: nowhere. Throws Error(Io).
    Record(Head head, std::string file);

    void add(Row row);
    const Head& head() const { return head_; }
    const std::vector<Row>& rows() const { return rows_; }
    /// Was each of FineGEMM's results within its bound?
    bool all_right() const;
    /// JSON, a line for each row.
    std::string text() const;

private:
    void write() const;

    Head head_;
    std::string file_;
    std::vector<Row> rows_;
};

}  // namespace finegemm::cli
