#include "attend/picture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace attend {
namespace {

using Index = std::int64_t;

/// A short decimal: two places, no trailing zeros.
std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", x);
  std::string digits = text;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits == "-0" ? "0" : digits;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

/// "W_{O} R_{j−i}" with real subscripts. Shifts by dy: `baseline-shift` is not drawn everywhere.
std::string with_subscripts(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find("_{");
    out += escaped(text.substr(0, open));
    if (open == std::string_view::npos) break;
    const std::size_t close = text.find('}', open);
    out += "<tspan dy=\"0.28em\" font-size=\"72%\">" + escaped(text.substr(open + 2, close - open - 2)) +
           "</tspan>";
    text.remove_prefix(close == std::string_view::npos ? text.size() : close + 1);
    // Back up to the line: the next run of text starts with the opposite shift (0.72 · 0.28 of its own size).
    if (!text.empty()) {
      const std::size_t next = text.find("_{");
      out += "<tspan dy=\"-0.2em\">" + escaped(text.substr(0, next)) + "</tspan>";
      text.remove_prefix(next == std::string_view::npos ? text.size() : next);
    }
  }
  return out;
}

struct Colour {
  int red, green, blue;
};

std::string hex(Colour c) {
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", c.red, c.green, c.blue);
  return text;
}

/// One colour per offset; keys after the query, where a mask shows them, get the darker twin.
Colour offset_colour(Index delta) {
  constexpr std::array<Colour, 8> by_distance{{{0x1f, 0x6f, 0xc4},
                                               {0x0f, 0x9b, 0x8e},
                                               {0x4b, 0x9b, 0x2f},
                                               {0xa8, 0x96, 0x00},
                                               {0xe0, 0x7b, 0x00},
                                               {0xd6, 0x3c, 0x4a},
                                               {0xb8, 0x3c, 0xa0},
                                               {0x6c, 0x4b, 0xc1}}};
  const Colour c = by_distance[static_cast<std::size_t>(std::abs(delta)) % by_distance.size()];
  return delta <= 0 ? c : Colour{c.red * 3 / 5, c.green * 3 / 5, c.blue * 3 / 5};
}

constexpr const char* ink = "#1c2430";
constexpr const char* grey = "#5d6875";
constexpr const char* negative = "#20242b";

/// SVG elements, appended to one string.
class Canvas {
 public:
  void raw(const std::string& element) { body_ += element + "\n"; }

  void text(double x, double y, double size, const std::string& words, const char* colour = ink,
            const char* attributes = "") {
    raw("<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" + number(size) + "\" fill=\"" +
        colour + "\" " + attributes + ">" + with_subscripts(words) + "</text>");
  }

  void rect(double x, double y, double width, double height, const std::string& attributes) {
    raw("<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) + "\" height=\"" +
        number(height) + "\" " + attributes + "/>");
  }

  std::string document(double width, double height, const std::string& title) const {
    const std::string size = number(width) + " " + number(height);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + "\" width=\"" + number(width) +
           "\" height=\"" + number(height) +
           "\" font-family=\"'DejaVu Sans', Verdana, 'Segoe UI', Arial, sans-serif\" role=\"img\" "
           "xml:space=\"preserve\">\n<title>" +
           escaped(title) + "</title>\n" + body_ + "</svg>\n";
  }

 private:
  std::string body_;
};

constexpr double cell = 5;  // one entry of a block
constexpr double gap = 3;   // between blocks

/// The entries of one kernel as little squares: their size by opacity, in eight steps, their sign by colour.
void draw_kernel(Canvas& canvas, double x, double y, const Eigen::MatrixXd& pattern, double largest,
                 Colour colour, double strength) {
  constexpr int steps = 8;
  const double width = cell * static_cast<double>(pattern.cols());
  const double height = cell * static_cast<double>(pattern.rows());
  const std::string paint = hex(colour);
  canvas.raw("<g transform=\"translate(" + number(x) + " " + number(y) + ")\" opacity=\"" + number(strength) +
             "\">");
  canvas.rect(0, 0, width, height, "fill=\"" + paint + "\" fill-opacity=\".13\"");
  for (const bool positive : {true, false}) {
    std::array<std::string, steps + 1> path;
    for (Eigen::Index r = 0; r < pattern.rows(); ++r) {
      for (Eigen::Index c = 0; c < pattern.cols(); ++c) {
        const double entry = pattern(r, c) / largest;
        if ((entry >= 0) != positive) continue;
        const auto step = static_cast<std::size_t>(std::lround(steps * std::pow(std::abs(entry), 0.7)));
        std::string& squares = path[(std::min)(step, std::size_t{steps})];
        squares += 'M';
        squares +=
            number(cell * static_cast<double>(c)) + " " + number(cell * static_cast<double>(r)) + "h5v5h-5z";
      }
    }
    for (std::size_t step = 1; step <= steps; ++step) {
      if (path[step].empty()) continue;
      canvas.raw("<path fill=\"" + (positive ? paint : std::string(negative)) + "\" fill-opacity=\"" +
                 number(static_cast<double>(step) / steps) + "\" d=\"" + path[step] + "\"/>");
    }
  }
  canvas.rect(-0.5, -0.5, width + 1, height + 1, "fill=\"none\" stroke=\"" + paint + "\"");
  canvas.raw("</g>");
}

class Drawing {
 public:
  explicit Drawing(const MixerPicture& picture)
      : picture_(picture),
        n_(picture.weights.rows()),
        m_(picture.kronecker.rows() / n_),
        block_(cell * static_cast<double>(m_)),
        panel_(static_cast<double>(n_) * (block_ + gap) - gap),
        heaviest_((std::max)(picture.weights.maxCoeff(), 1e-300)) {
    for (Index i = 0; i < n_; ++i) {
      for (Index j = 0; j < n_; ++j) {
        if (picture_.weights(i, j) == 0) continue;
        largest_ = (std::max)(largest_, kernel_at(picture_.kronecker, i, j).cwiseAbs().maxCoeff());
        largest_ = (std::max)(largest_, kernel_at(picture_.toeplitz, i, j).cwiseAbs().maxCoeff());
      }
    }
  }

  std::string draw() {
    const double side = (std::max)(panel_, 8 * (block_ + gap) - gap);
    const double left = 62, right = left + side + 74, top = 176;
    const double width = right + side + 28;
    const double strip = top + panel_ + 34;
    const std::vector<Index> offsets = visible_offsets();
    const double strip_rows = static_cast<double>((offsets.size() + 7) / 8);
    const double legend = strip + strip_rows * (block_ + 24) + 36;
    const double height = legend + 50;

    canvas_.rect(0.5, 0.5, width - 1, height - 1, "rx=\"10\" fill=\"#ffffff\" stroke=\"#d5dae1\"");
    canvas_.text(left - 38, 36, 19, picture_.title, ink, "font-weight=\"bold\"");
    canvas_.text(left - 38, 58, 12.5, picture_.subtitle, grey);

    heading(left, "RoPE:  A ⊗ " + picture_.kernel, picture_.kernel,
            "Kronecker: the same kernel in every block,", "only its strength A_{ij} changes");
    heading(right, "RoVE:  Σ_{δ} (A ∘ S_{δ}) ⊗ " + picture_.offset_kernel, at_offset(picture_.offset_kernel),
            "block-Toeplitz: one kernel per offset δ = j − i,", "the same all along a diagonal");
    panel(left, top, picture_.kronecker, false);
    panel(right, top, picture_.toeplitz, true);
    factors(left, strip);
    kernels(right, strip, offsets);
    explain(left - 38, legend);
    return canvas_.document(width, height, picture_.title);
  }

 private:
  /// "R_{δ}" becomes "R_{j−i}".
  static std::string at_offset(std::string kernel) {
    const std::string delta = "{δ}";
    const std::size_t at = kernel.find(delta);
    return at == std::string::npos ? kernel : kernel.replace(at, delta.size(), "{j−i}");
  }

  /// ψ(i, j): the block without its weight.
  Eigen::MatrixXd kernel_at(const Eigen::MatrixXd& mixer, Index i, Index j) const {
    return mixer.block(i * m_, j * m_, m_, m_) / picture_.weights(i, j);
  }

  /// A's entry as an opacity: by its root, and never so faint that the block disappears.
  double strength(double weight) const { return 0.2 + 0.8 * std::sqrt(weight / heaviest_); }

  std::vector<Index> visible_offsets() const {
    std::vector<Index> offsets;
    for (Index delta = n_ - 1; delta > -n_; --delta) {
      if (representative(delta) >= 0) offsets.push_back(delta);
    }
    return offsets;
  }

  /// The row whose block at this offset has the largest weight; −1 if none is seen.
  Index representative(Index delta) const {
    Index best = -1;
    for (Index i = 0; i < n_; ++i) {
      const Index j = i + delta;
      if (j < 0 || j >= n_ || picture_.weights(i, j) == 0) continue;
      if (best < 0 || picture_.weights(i, j) > picture_.weights(best, best + delta)) best = i;
    }
    return best;
  }

  void heading(double x, const std::string& formula, const std::string& row, const std::string& first,
               const std::string& second) {
    canvas_.text(x, 90, 15.5, formula, ink, "font-weight=\"bold\"");
    canvas_.text(x, 113, 13, "y_{i} = Σ_{j} A_{ij} " + row + " x_{j}");
    canvas_.text(x, 134, 12, first, grey);
    canvas_.text(x, 149, 12, second, grey);
  }

  void panel(double x, double y, const Eigen::MatrixXd& mixer, bool by_offset) {
    const auto place = [&](Index t) { return static_cast<double>(t) * (block_ + gap); };
    for (Index t = 0; t < n_; ++t) {
      const std::string token = std::to_string(picture_.first_token + t);
      canvas_.text(x + place(t) + block_ / 2, y - 7, 11, token, grey, "text-anchor=\"middle\"");
      canvas_.text(x - 7, y + place(t) + block_ / 2 + 4, 11, token, grey, "text-anchor=\"end\"");
    }
    canvas_.text(x - 7, y - 7, 11, "key", grey, "text-anchor=\"end\"");
    canvas_.raw("<text transform=\"translate(" + number(x - 29) + " " + number(y + panel_ / 2) +
                ") rotate(-90)\" font-size=\"11\" fill=\"" + grey + "\" text-anchor=\"middle\">query</text>");
    for (Index i = 0; i < n_; ++i) {
      for (Index j = 0; j < n_; ++j) {
        const double weight = picture_.weights(i, j);
        if (weight == 0) {
          canvas_.rect(x + place(j), y + place(i), block_, block_, "fill=\"#f3f5f7\"");
        } else {
          draw_kernel(canvas_, x + place(j), y + place(i), kernel_at(mixer, i, j), largest_,
                      offset_colour(by_offset ? j - i : 0), strength(weight));
        }
      }
    }
  }

  /// A ⊗ kernel, each at the size of one block.
  void factors(double x, double y) {
    const double middle = y + block_ / 2;
    const double step = block_ / static_cast<double>(n_);
    for (Index i = 0; i < n_; ++i) {
      for (Index j = 0; j < n_; ++j) {
        const double weight = picture_.weights(i, j);
        canvas_.rect(x + static_cast<double>(j) * step, y + static_cast<double>(i) * step, step, step,
                     weight == 0 ? std::string("fill=\"#f3f5f7\"")
                                 : std::string("fill=\"") + ink + "\" fill-opacity=\"" +
                                       number(strength(weight)) + "\"");
      }
    }
    canvas_.rect(x - 0.5, y - 0.5, block_ + 1, block_ + 1,
                 std::string("fill=\"none\" stroke=\"") + ink + "\"");
    canvas_.text(x + block_ / 2, y + block_ + 16, 12, "A", ink, "text-anchor=\"middle\"");
    canvas_.text(x + block_ + 22, middle + 6, 18, "⊗", ink, "text-anchor=\"middle\"");
    const Index row = representative(0);
    if (row < 0) return;
    draw_kernel(canvas_, x + block_ + 44, y, kernel_at(picture_.kronecker, row, row), largest_,
                offset_colour(0), 1);
    canvas_.text(x + block_ + 44 + block_ / 2, y + block_ + 16, 12, picture_.kernel, ink,
                 "text-anchor=\"middle\"");
    canvas_.text(x + 2 * block_ + 60, middle - 3, 12, "A, the attention weights, is the same", grey);
    canvas_.text(x + 2 * block_ + 60, middle + 13, 12, "on both sides: only the kernel differs", grey);
  }

  void kernels(double x, double y, const std::vector<Index>& offsets) {
    for (std::size_t at = 0; at < offsets.size(); ++at) {
      const Index delta = offsets[at];
      const double left = x + static_cast<double>(at % 8) * (block_ + gap);
      const double top = y + static_cast<double>(at / 8) * (block_ + 24);
      const Index row = representative(delta);
      draw_kernel(canvas_, left, top, kernel_at(picture_.toeplitz, row, row + delta), largest_,
                  offset_colour(delta), 1);
      const std::string sign = delta < 0 ? "−" : "";
      canvas_.text(left + block_ / 2, top + block_ + 16, 12,
                   (at == 0 ? "δ = " : "") + sign + std::to_string(std::abs(delta)), ink,
                   "text-anchor=\"middle\"");
    }
  }

  void explain(double x, double y) {
    const std::string strong = hex(offset_colour(0));
    canvas_.text(x, y, 12, "block: attention weight", grey);
    for (int step = 0; step < 5; ++step) {
      canvas_.rect(
          x + 152 + 16 * step, y - 11, 16, 13,
          "fill=\"" + strong + "\" fill-opacity=\"" + number(strength(heaviest_ * step * step / 16)) + "\"");
    }
    char most[32];
    std::snprintf(most, sizeof most, "0 … %.2g", heaviest_);
    canvas_.text(x + 238, y, 12, most, grey);
    canvas_.text(x + 324, y, 12, "entry:", grey);
    canvas_.rect(x + 368, y - 11, 13, 13, "fill=\"" + strong + "\"");
    canvas_.text(x + 386, y, 12, "positive", grey);
    canvas_.rect(x + 448, y - 11, 13, 13, std::string("fill=\"") + negative + "\"");
    canvas_.text(x + 466, y, 12, "negative", grey);
    canvas_.rect(x + 548, y - 11, 13, 13, "fill=\"#f3f5f7\" stroke=\"#d5dae1\"");
    canvas_.text(x + 566, y, 12, "not seen (mask)", grey);
    canvas_.text(
        x, y + 26, 12,
        "R_{δ} turns each pair (ω) of value channels by δ·ω.  R_{0} is the identity: on its diagonal "
        "RoVE has RoPE’s kernel.",
        grey);
  }

  const MixerPicture& picture_;
  Index n_;
  Index m_;
  double block_;
  double panel_;
  double heaviest_;
  double largest_ = 1e-300;
  Canvas canvas_;
};

}  // namespace

std::string draw(const MixerPicture& picture) {
  return Drawing(picture).draw();
}

}  // namespace attend
