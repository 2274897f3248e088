#!/usr/bin/env python3
"""Keeps what the Markdown files show equal to code that is compiled and run, and their links alive.

usage: check_docs.py [--update] [ROOT]

A comment in front of a block of code names where it comes from:

    <!-- examples/quickstart.cpp [readme:quickstart] -->
    ```cpp
    ...
    ```

The block must be what stands in that file between lines `// [readme:quickstart]` and `// [/readme:quickstart]`, and every
region so marked must be shown somewhere. Prints one line a problem and exits with 1 if there is any. With --update
blocks are first made equal to their regions.
"""

import pathlib
import re
import sys

SNIPPET = re.compile(r"^<!-- (\S+) \[([\w:-]+)\] -->\n(?:(```)\w*\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"^\s*(?://|#) \[((?:readme|docs):[\w-]+)\]$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"")
SOURCE_FOLDERS = ("examples", "tests", "bench")
SOURCE_SUFFIXES = {".cpp", ".hpp", ".txt"}


def region(text, name):
    """The lines between the marks of `name`, or None."""
    match = re.search(rf"^\s*(?://|#) \[{re.escape(name)}\]\n(.*?)^\s*(?://|#) \[/{re.escape(name)}\]$", text,
                      re.MULTILINE | re.DOTALL)
    return match.group(1) if match else None


def pages(root):
    """The Markdown files of the tree, build folders left out."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    for folder in SOURCE_FOLDERS:
        found += root.glob(f"{folder}/**/*.md")
    return sorted(found)


def check_snippets(root, page, text):
    """(problems, names of the regions shown)"""
    problems, shown = [], set()
    for match in SNIPPET.finditer(text):
        path, name, fence, block = match.groups()
        where = f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
        shown.add((path, name))
        if fence is None:
            problems.append(f"{where}: no block of code follows [{name}]")
            continue
        source = root / path
        wanted = region(source.read_text(encoding="utf-8"), name) if source.is_file() else None
        if wanted is None:
            problems.append(f"{where}: {path} has no region [{name}]")
        elif wanted != block:
            problems.append(f"{where}: differs from [{name}] of {path}")
    return problems, shown


def update_snippets(root, page):
    """Puts into every block what stands in its region."""
    def replaced(match):
        path, name, fence, block = match.groups()
        wanted = region((root / path).read_text(encoding="utf-8"), name) if (root / path).is_file() else None
        if fence is None or wanted is None:
            return match.group(0)
        head = match.group(0)[:match.start(4) - match.start(0)]
        return head + wanted + "```"

    text = page.read_text(encoding="utf-8")
    updated = SNIPPET.sub(replaced, text)
    if updated != text:
        page.write_text(updated, encoding="utf-8")


def check_links(root, page, text):
    problems = []
    for match in LINK.finditer(CODE_BLOCK.sub("", text)):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        if not (page.parent / target).exists():
            problems.append(f"{page.relative_to(root)}: links to {target}, which does not exist")
    return problems


def marked_regions(root):
    """(path, name) of every region that is marked in the sources."""
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES:
                for name in MARK.findall(path.read_text(encoding="utf-8")):
                    yield str(path.relative_to(root)), name


def check(root):
    """All problems of the tree at root, as lines."""
    problems, shown = [], set()
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        found, names = check_snippets(root, page, text)
        problems += found + check_links(root, page, text)
        shown |= names
    for path, name in marked_regions(root):
        if (path, name) not in shown:
            problems.append(f"{path}: no page shows [{name}]")
    return problems


def main():
    arguments = sys.argv[1:]
    update = "--update" in arguments
    roots = [argument for argument in arguments if argument != "--update"]
    root = pathlib.Path(roots[0] if roots else pathlib.Path(__file__).parents[1]).resolve()
    if update:
        for page in pages(root):
            update_snippets(root, page)
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
