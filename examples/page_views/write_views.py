"""Writes made-up views of pages to `out/incoming_views`, a file every second: `write_views.py [VIEWS_PER_S]`."""

import json
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

PAGES = ("/", "/cart", "/search", "/product/17", "/product/42", "/help")


def view(now: datetime, chance: random.Random) -> dict[str, object]:
    late_s = chance.expovariate(1 / 3)
    return {
        "at": (now - timedelta(seconds=late_s)).isoformat(),
        "visitor": f"v{chance.randrange(500)}",
        "url": f"https://shop.example{chance.choice(PAGES)}?ref={chance.randrange(9)}",
        "load_ms": int(chance.lognormvariate(5, 0.6)),
    }


def write(folder: Path, name: str, views: list[dict[str, object]]) -> None:
    """Whole or not at all: Spark passes over a name that begins with a dot."""
    written = folder / f".{name}"
    written.write_text("".join(f"{json.dumps(entry)}\n" for entry in views))
    written.rename(folder / name)


def main() -> None:
    per_s = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    folder, chance = Path("out/incoming_views"), random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        now = datetime.now(UTC)
        write(folder, f"{now:%Y%m%dT%H%M%S%f}.json", [view(now, chance) for _ in range(per_s)])
        time.sleep(1)


if __name__ == "__main__":
    main()
