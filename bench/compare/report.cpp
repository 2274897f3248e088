#include "bench/compare/report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

std::string number(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}

std::string number(const std::optional<double>& x, int digits) {
  return x ? number(*x, digits) : "";
}

std::string number(const std::optional<rove::Index>& x) {
  return x ? std::to_string(*x) : "";
}

std::string ratio(const std::optional<Ratio>& x) {
  if (!x) return "";
  return number(x->median, 3) + " [" + number(x->interval.low, 3) + ", " + number(x->interval.high, 3) + "]";
}

std::string of_bests(const std::optional<Ratio>& x) {
  return x ? number(x->of_bests, 3) : "";
}

std::string tokens(const Record& r) {
  return r.q_len == r.kv_len || !r.kv_len ? number(r.q_len) : number(r.q_len) + ":" + number(r.kv_len);
}

std::string heads(const Record& r) {
  return r.heads == r.kv_heads || !r.kv_heads ? number(r.heads) : number(r.heads) + ":" + number(r.kv_heads);
}

std::string causal(const Record& r) {
  return !r.causal ? "" : *r.causal ? "causal" : "full";
}

struct Column {
  const char* title;
  std::string (*cell)(const Record&);
};

constexpr Column columns[] = {
    {"case", [](const Record& r) { return r.name; }},
    {"scalar", [](const Record& r) { return r.scalar; }},
    {"d", [](const Record& r) { return number(r.head_dim); }},
    {"tokens", tokens},
    {"heads", heads},
    {"mask", causal},
    {"threads", [](const Record& r) { return std::to_string(r.threads); }},
    {"best ms", [](const Record& r) { return number(r.draws.best() * 1e3, 3); }},
    {"median", [](const Record& r) { return number(r.draws.median() * 1e3, 3); }},
    {"GF/s", [](const Record& r) { return number(r.gflops, 1); }},
    {"GB/s", [](const Record& r) { return number(r.gbps, 1); }},
    {"of sgemm", [](const Record& r) { return number(r.vs_sgemm, 2); }},
    {"of peak", [](const Record& r) { return number(r.vs_peak, 2); }},
    {"of n=4096", [](const Record& r) { return number(r.vs_long, 3); }},
    {"speedup", [](const Record& r) { return number(r.speedup, 2); }},
    {"of memcpy", [](const Record& r) { return ratio(r.vs_stream); }},
    {"of bests", [](const Record& r) { return of_bests(r.vs_stream); }},
    {"RoVE/RoPE", [](const Record& r) { return ratio(r.rove_over_rope); }},
    {"of bests", [](const Record& r) { return of_bests(r.rove_over_rope); }},
    {"over plain", [](const Record& r) { return ratio(r.over_plain); }},
    {"of bests", [](const Record& r) { return of_bests(r.over_plain); }},
};

/// Columns of text of the same height, the first to the left, the others to the right.
void print_columns(std::ostream& to, const std::vector<std::vector<std::string>>& columns_of_text) {
  const std::size_t height = columns_of_text.empty() ? 0 : columns_of_text.front().size();
  for (std::size_t row = 0; row < height; ++row) {
    std::string line;
    for (std::size_t i = 0; i < columns_of_text.size(); ++i) {
      std::size_t width = 0;
      for (const std::string& cell : columns_of_text[i]) width = std::max(width, cell.size());
      const std::string& cell = columns_of_text[i][row];
      const std::string padding(width - cell.size(), ' ');
      line += i == 0 ? cell + padding : "  " + padding + cell;
    }
    to << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

std::string bar(const Target& target) {
  return (target.side == Side::at_least ? ">= " : "<= ") + number(target.bar, 2);
}

std::string verdict(const TargetRow& row) {
  std::string text = name(row.verdict());
  if (row.missed > 0 && row.shapes > 1) {
    text += " by " + std::to_string(row.missed) + " of " + std::to_string(row.shapes);
  }
  if (row.verdict() == Verdict::not_comparable) text += ": " + row.worst->obstacle;
  return text;
}

nlohmann::ordered_json to_json(const Target& target) {
  nlohmann::ordered_json json;
  json["row"] = target.row;
  json["shape"] = target.shape;
  json["measured"] = target.measured;
  if (target.ratio) {
    json["median"] = target.ratio->median;
    json["interval"] = {target.ratio->interval.low, target.ratio->interval.high};
  }
  json[target.side == Side::at_least ? "at_least" : "at_most"] = target.bar;
  json["verdict"] = name(target.verdict());
  if (!target.obstacle.empty()) json["because"] = target.obstacle;
  return json;
}

}  // namespace

void print_table(std::ostream& to, std::span<const Record> records) {
  std::vector<std::vector<std::string>> shown;
  for (const Column& column : columns) {
    std::vector<std::string> cells{column.title};
    bool filled = false;
    for (const Record& record : records) {
      cells.push_back(column.cell(record));
      filled = filled || !cells.back().empty();
    }
    if (filled) shown.push_back(std::move(cells));
  }
  print_columns(to, shown);
  to << std::flush;
}

void print_targets(std::ostream& to, std::span<const Target> targets) {
  const auto rows = target_rows(targets);
  std::vector<std::vector<std::string>> text{{"target"}, {"worst of"},        {"shape"},  {"measured"},
                                             {"bar"},    {"median of pairs"}, {"verdict"}};
  for (const TargetRow& row : rows) {
    const Target& worst = *row.worst;
    const std::string cells[] = {
        worst.row,  std::to_string(row.shapes), worst.shape, number(worst.measured, 3),
        bar(worst), ratio(worst.ratio),         verdict(row)};
    for (std::size_t i = 0; i < text.size(); ++i) text[i].push_back(cells[i]);
  }
  print_columns(to, text);
  for (const Target& target : targets) {
    if (target.verdict() != Verdict::missed) continue;
    to << "missed: " << target.row << ", " << target.shape << ": " << number(target.measured, 3) << ", "
       << bar(target) << '\n';
  }
  to << std::flush;
}

void check_writable(const std::string& path) {
  if (!std::ofstream(path, std::ios::app)) throw std::runtime_error("cannot write " + path);
}

void write_results(const std::string& path, const nlohmann::ordered_json& header,
                   std::span<const Record> records, std::span<const Target> targets) {
  nlohmann::ordered_json json;
  json["header"] = header;
  json["records"] = nlohmann::ordered_json::array();
  for (const Record& record : records) json["records"].push_back(to_json(record));
  json["targets"] = nlohmann::ordered_json::array();
  for (const Target& target : targets) json["targets"].push_back(to_json(target));
  std::ofstream file(path);
  file << json.dump(1) << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace bench
