"""tools/build_readme.py: the README on PyPI, where no file of the repository is beside it."""

import re

import build_readme
import pytest

SOURCE = "https://example.org/tarantella"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[guide](docs/guide.md#data)", f"[guide]({SOURCE}/blob/HEAD/docs/guide.md#data)"),
        ("![curve](docs/scaling.svg)", f"![curve]({SOURCE}/raw/HEAD/docs/scaling.svg)"),
        ('<img src="docs/scaling.svg">', f'<img src="{SOURCE}/raw/HEAD/docs/scaling.svg">'),
        ("[Keras](https://keras.io) [below](#data) mail(README.md)", None),
        ("values[0](x)", None),
    ],
)
def test_links_to_files_get_the_address_of_the_repository(text, expected):
    assert build_readme.absolute(text, SOURCE) == (expected or text)


def test_no_link_of_our_readme_is_left():
    metadata = build_readme.dynamic_metadata({}, {"urls": {"Source": SOURCE}})["readme"]
    assert metadata["content-type"] == "text/markdown"
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", metadata["text"]))
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
