#!/usr/bin/env python3
"""licenses.py TARGET   prints the license texts of all crates in the program for TARGET, for its packages."""

import json
import pathlib
import subprocess
import sys

metadata = json.loads(
    subprocess.check_output(
        ["cargo", "metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", sys.argv[1]]
    )
)
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
packages = {package["id"]: package for package in metadata["packages"]}
used, todo = set(), [metadata["resolve"]["root"]]
while todo:
    crate = todo.pop()
    if crate in used:
        continue
    used.add(crate)
    # Dependencies used only for building or testing are not in the program.
    todo += [d["pkg"] for d in nodes[crate]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]

texts = {}
for crate in used:
    package = packages[crate]
    if package["source"] is None:
        continue
    directory = pathlib.Path(package["manifest_path"]).parent
    names = sorted(
        path
        for pattern in ("LICEN[CS]E*", "COPYING*", "NOTICE*", "UNLICENSE*")
        for path in directory.glob(pattern)
        if path.is_file()
    )
    title = f"{package['name']} {package['version']}: {package['license'] or 'see the file'}"
    text = "\n".join(path.read_text(errors="replace").strip() for path in names)
    # Many crates share the same text; some have none in their package, and only name a license.
    texts.setdefault(text or "(its package has no license file)", []).append(title)

print("Crates that slotpress contains, with their licenses.\n")
for text, titles in sorted(texts.items(), key=lambda item: sorted(item[1])):
    print("=" * 78)
    print("\n".join(sorted(titles)))
    print("-" * 78)
    print(text + "\n")
