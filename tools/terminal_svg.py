#!/usr/bin/env python3
"""Draws what a command printed as an SVG picture of a terminal.

    ./dev demo | tools/terminal_svg.py "./dev demo" > docs/demo.svg
"""

import sys
from xml.sax.saxutils import escape

WIDTH, FONT, LINE, PAD, COLUMNS = 8.4, 14, 20, 16, 100


def wrap(line):
    while len(line) > COLUMNS:
        cut = line.rfind(" ", 20, COLUMNS) + 1 or COLUMNS
        yield line[:cut].rstrip()
        line = "      " + line[cut:].lstrip()
    yield line


def main():
    lines = ["$ " + (sys.argv[1] if len(sys.argv) > 1 else "")]
    for line in sys.stdin.read().rstrip("\n").split("\n"):
        lines.extend(wrap(line))
    width = int(COLUMNS * WIDTH + 2 * PAD)
    height = 28 + len(lines) * LINE + PAD
    print('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
          'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="%d">'
          % (width, height, width, height, FONT))
    print('<rect width="100%" height="100%" rx="8" fill="#16181d"/>')
    for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        print('<circle cx="%d" cy="15" r="5" fill="%s"/>' % (PAD + 4 + 18 * i, colour))
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        colour = "#d7dae0"
        if i == 0:
            colour = "#8be28b"
        elif line[:1].isdigit():
            colour = "#7cc4ff"
        elif line.lstrip().startswith("A:"):
            colour = "#ffd479"
        print('<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>'
              % (PAD, 28 + (i + 1) * LINE - 5, colour, escape(line)))
    print("</svg>")


if __name__ == "__main__":
    main()
