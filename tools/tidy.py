"""Runs clang-tidy over src/, a file a core; what passed is skipped until something it may see changes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def digest(*paths: Path) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()


def main() -> int:
    build = Path(sys.argv[1])
    commands = {entry["file"]: entry for entry in json.loads((build / "compile_commands.json").read_text())}
    files = sorted(file for file in commands if Path(file).is_relative_to(ROOT / "src"))
    # Headers are not traced file by file: when one changes, everything is looked at again.
    headers = [path for top in ("include", "src") for path in sorted((ROOT / top).rglob("*.h"))]
    common = digest(ROOT / ".clang-tidy", *headers)
    passed = build / "tidy"
    passed.mkdir(exist_ok=True)

    def tidy(file: str) -> str:
        key = common + digest(Path(file)) + commands[file]["command"]
        stamp = passed / hashlib.sha256(key.encode()).hexdigest()
        if stamp.exists():
            return ""
        command = ["clang-tidy", "--quiet", "-p", str(build), "--extra-arg=-Wno-unknown-warning-option", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode == 0:
            stamp.touch()
            return ""
        return done.stdout or done.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(tidy, files) if text]
    print("\n".join(complaints), end="")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
