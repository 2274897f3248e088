/// \file
/// Results as a table for people and as JSON for programs.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/compare/record.hpp"
#include "bench/compare/target.hpp"

namespace bench {

/// Aligned columns; those that no record fills are left out.
void print_table(std::ostream& to, std::span<const Record> records);

/// One line for each row of targets: the shape that comes off worst, what was measured, the bar. Then every
/// shape that misses its bar.
void print_targets(std::ostream& to, std::span<const Target> targets);

/// Throws std::runtime_error where `path` cannot be written: before minutes are spent, not after.
void check_writable(const std::string& path);

/// {"header": …, "records": [ … ], "targets": [ … ]}. Throws std::runtime_error where `path` cannot be
/// written.
void write_results(const std::string& path, const nlohmann::ordered_json& header,
                   std::span<const Record> records, std::span<const Target> targets);

}  // namespace bench
