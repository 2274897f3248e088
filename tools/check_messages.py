#!/usr/bin/env python3
"""Every message of a ROVE_EXPECT in include/ is read by a test.

usage: check_messages.py [ROOT]

A message is a list of pieces, some of them texts. Each text of 6 characters or more, or 24 characters of a longer one, has to
stand in a string of some file below tests/. Prints one line a message that no test reads and exits with 1 if there is any.
"""

import pathlib
import re
import sys

STRING = r'"((?:[^"\\\n]|\\.)*)"'
STRINGS = re.compile(rf"{STRING}(?:\s*{STRING})*")  # adjacent ones are one
SHORTEST, LONGEST = 6, 24


def without_comments(text):
    """The code with comments blanked and its lines kept; // within a string is no comment."""
    blank = lambda match: match.group(0) if match.group(0)[0] == '"' else re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(rf"{STRING}|//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)


def strings(code):
    return ["".join(re.findall(STRING, match.group(0))) for match in STRINGS.finditer(code)]


def messages(code):
    """(line, texts) of every ROVE_EXPECT(condition, pieces...)."""
    for match in re.finditer(r"\bROVE_EXPECT\(", code):
        if code[:match.start()].endswith("#define "):
            continue
        depth, at = 1, match.end()
        while depth:
            if literal := re.compile(STRING).match(code, at):
                at = literal.end()
                continue
            depth += {"(": 1, ")": -1}.get(code[at], 0)
            at += 1
        yield code.count("\n", 0, match.start()) + 1, strings(code[match.end():at - 1])


def is_read(text, read):
    width = min(len(text), LONGEST)
    return any(text[i:i + width] in read for i in range(len(text) - width + 1))


def check(root):
    files = [path for suffix in ("cpp", "hpp") for path in (root / "tests").rglob(f"*.{suffix}")]
    read = "\n".join(text for path in files for text in strings(without_comments(path.read_text(encoding="utf-8"))))
    problems, count = [], 0
    for path in sorted((root / "include").rglob("*.hpp")):
        for line, texts in messages(without_comments(path.read_text(encoding="utf-8"))):
            count += 1
            unread = [text for text in map(str.strip, texts) if len(text) >= SHORTEST and not is_read(text, read)]
            if unread:
                problems.append(f"{path.relative_to(root)}:{line}: no test reads {unread}")
    if not count:
        problems.append("no ROVE_EXPECT below include/")
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
