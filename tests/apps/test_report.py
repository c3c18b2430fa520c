"""`prefkin report`: one page that needs nothing else, in which every text is harmless."""

import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from tests.conftest import draw_answers, prefkin_says

EVIL = "<script>alert(1)</script> & co"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("report"), np.random.default_rng(7)
    Z, y, users = draw_answers(rng, sizes=[60] * 12, strength=12.0, n_groups=3)
    names = [EVIL if u == 0 else f"person {u}" for u in users]
    pl.DataFrame({"user": names, "y": y, "tone": Z[:, 0], "length": Z[:, 1], "price": Z[:, 2]}).write_csv(
        path / "v.csv"
    )
    pl.DataFrame(
        {
            "context": np.repeat(["p", "q"], 3),
            "action": list("abcdef"),
            "text": [f"story <b>{i}</b>" for i in range(6)],
            **{name: rng.standard_normal(6) for name in ("tone", "length", "price")},
        }
    ).write_parquet(path / "cands.parquet")
    done = prefkin_says("fit", "v.csv", "--features", "tone,length,price", "--out", "kin", "--no-pictures", cwd=path)
    assert done.returncode == 0, done.stderr
    return path


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_says_who_they_are_and_needs_nothing_else(folder):
    words = ("--features", "tone,length,price", "--candidates", "cands.parquet")
    done = prefkin_says("report", "kin", "--out", "page.html", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    page = (folder / "page.html").read_text()
    found = Tags()
    found.feed(page)
    assert found.open == []
    assert not {"script", "link", "img", "iframe", "b"} & {tag for tag, _ in found.tags}
    assert not re.search(r"https?:|url\(|@import", page)
    assert "&lt;script&gt;" in page
    for part in ("12 users, 720 comparisons", "Group 0", "tone", "story &lt;b&gt;", "What is thin", "Whom to ask"):
        assert part in page
    assert sum(tag == "circle" for tag, _ in found.tags) == 24
    again = prefkin_says("report", "kin", "--out", "again.html", *words, cwd=folder)
    assert again.returncode == 0
    assert (folder / "again.html").read_text() == page


def test_methods_are_compared_when_asked(folder):
    done = prefkin_says("report", "kin", "--out", "compared.html", "--compare", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "predicted right" in (folder / "compared.html").read_text()


def test_what_cannot_be_reported_is_one_line(folder):
    np.savez(folder / "wide.npz", features=np.ones((1, 2, 5)))
    for words in (("--out", "x.txt"), ("--out", "x.html", "--candidates", "wide.npz")):
        done = prefkin_says("report", "kin", *words, cwd=folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not (folder / "x.html").exists()
