"""The pages of the documentation are whole: links lead somewhere, tables and code end, pictures show something."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.image
import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PICTURES = sorted(path for suffix in ("svg", "png") for path in (ROOT / "docs").rglob(f"*.{suffix}"))
SVG = "{http://www.w3.org/2000/svg}"


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text without its code blocks, which must all end."""
    parts = re.split(r"^ *```.*\n", page.read_text(encoding="utf-8"), flags=re.M)
    assert len(parts) % 2, f"{name(page)}: a code block does not end"
    return "".join(parts[::2])


def anchors(page: Path) -> set[str]:
    """What may stand behind # in a link to the page, as GitHub makes it of headings."""
    heads = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\(.*?\)", "", head).lower()).replace(" ", "-") for head in heads}


def links(page: Path) -> list[str]:
    """The links to files of the repository."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_rows_of_a_table_have_the_cells_of_its_head(page: Path) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", prose(page), flags=re.M):
        rows = [re.sub(r"`[^`]*`|\\\|", "", row) for row in table.splitlines()]
        assert {row.count("|") for row in rows} == {rows[0].count("|")}, table
        assert re.fullmatch(r"[|:\- ]+", rows[1]), table


@pytest.mark.parametrize("picture", PICTURES, ids=name)
def test_a_picture_shows_something_on_white(picture: Path) -> None:
    """Readers with a dark theme would see dark lines on a dark ground otherwise."""
    assert any(picture == (page.parent / link).resolve() for page in PAGES for link in links(page)), "no page shows it"
    if picture.suffix == ".png":
        pixels = matplotlib.image.imread(picture)
        assert pixels[0, 0].tolist() == [1.0] * pixels.shape[-1]
        assert pixels.std() > 0.01
        return
    root = ElementTree.parse(picture).getroot()
    assert root.tag == f"{SVG}svg"
    shapes = [each for each in root.iter() if each.tag in {SVG + kind for kind in ("path", "rect", "polyline", "use")}]
    assert re.search(r"fill(=\"|: ?)#fff", ElementTree.tostring(shapes[0]).decode()), (
        "the first shape is no white ground"
    )
    assert len(shapes) > 5
    assert len([each for each in root.iter(f"{SVG}text") if "".join(each.itertext()).strip()]) > 3
