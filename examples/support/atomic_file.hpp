/// \file
/// A file that appears whole or not at all, and the error that all file code of the examples throws.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace support {

/// A file cannot be read or written: one line that begins with its name.
class FileError : public std::runtime_error {
 public:
  FileError(const std::filesystem::path& file, const std::string& what)
      : std::runtime_error(file.string() + ": " + what) {}
};

/// Writes beside the target and renames at `commit()`, so that no reader ever sees half of it, and an old
/// file stays as it was until the new one is complete. Without a `commit()` nothing is left behind.
///
/// The constructor already opens the neighbour file: a place that cannot be written is reported before any
/// work is done. A target that is a symbolic link is written through; one that has no write permission, or is
/// a folder, a device or a pipe, is refused.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target) : name_(target), target_(target) {
    namespace fs = std::filesystem;
    std::error_code error;
    for (int links = 0; fs::is_symlink(target_, error); ++links) {
      const fs::path next = fs::read_symlink(target_, error);
      if (error || links == 32) throw FileError(name_, "cannot write: too many levels of symbolic links");
      target_ = target_.parent_path() / next;  // an absolute `next` replaces the folder
    }
    const fs::file_status status = fs::status(target_, error);
    if (fs::exists(status)) {
      if (!fs::is_regular_file(status)) throw FileError(name_, "cannot write: not a regular file");
      constexpr fs::perms any_write =
          fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
      if ((status.permissions() & any_write) == fs::perms::none) {
        throw FileError(name_, "cannot write: the file is read-only");
      }
    }
    std::random_device entropy;
    for (int attempt = 0; file_ == nullptr; ++attempt) {
      neighbour_ = target_;
      neighbour_ += ".part" + std::to_string(entropy());
      file_ = std::fopen(neighbour_.string().c_str(), "wbx");
      if (file_ == nullptr && (errno != EEXIST || attempt == 8)) {
        throw FileError(name_, "cannot write: " + std::generic_category().message(errno));
      }
    }
  }

  AtomicFile(AtomicFile&& other) noexcept
      : name_(std::move(other.name_)),
        target_(std::move(other.target_)),
        neighbour_(std::move(other.neighbour_)),
        file_(std::exchange(other.file_, nullptr)),
        closed_(std::exchange(other.closed_, false)) {}
  AtomicFile& operator=(AtomicFile&&) = delete;

  ~AtomicFile() {
    if (file_ == nullptr && !closed_) return;
    if (file_ != nullptr) std::fclose(file_);
    std::error_code ignored;
    std::filesystem::remove(neighbour_, ignored);
  }

  void write(const void* data, std::size_t bytes) {
    if (bytes != 0 && std::fwrite(data, 1, bytes, file_) != bytes) fail("cannot write");
  }
  void write(const std::string& text) { write(text.data(), text.size()); }

  /// Hands all bytes to the system. Called by `commit()`; call it on each of several files before committing
  /// any of them, so that a full disk spoils none.
  void close() {
    if (closed_) return;
    const bool flushed = std::fclose(std::exchange(file_, nullptr)) == 0;
    closed_ = true;
    if (!flushed) fail("cannot write");
  }

  /// The target becomes what was written.
  void commit() {
    close();
    std::error_code error;
    std::filesystem::rename(neighbour_, target_, error);
    if (error) throw FileError(name_, "cannot write: " + error.message());
    closed_ = false;
  }

  const std::filesystem::path& name() const { return name_; }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw FileError(name_, std::string(what) + ": " + std::generic_category().message(errno));
  }

  std::filesystem::path name_;       // as the user wrote it
  std::filesystem::path target_;     // what the name leads to
  std::filesystem::path neighbour_;  // the file being written
  std::FILE* file_ = nullptr;
  bool closed_ = false;  // complete, not yet renamed
};

}  // namespace support
