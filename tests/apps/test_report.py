"""`prefkin report`: one page that needs nothing else, in which every text is harmless."""

import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

import prefkin
from prefkin.apps.cli.console import candidates_for
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
    for part in ("12 people compared 720 pairs", "Group 0", "tone", "story &lt;b&gt;", "What is thin", "Whom to ask"):
        assert part in page
    assert sum(tag == "circle" for tag, _ in found.tags) == 24
    again = prefkin_says("report", "kin", "--out", "again.html", *words, cwd=folder)
    assert again.returncode == 0
    assert (folder / "again.html").read_text() == page


@pytest.mark.parametrize(
    "form",
    ["chosen and rejected", *(pytest.param(form, marks=pytest.mark.long) for form in ("left and right", "chats"))],
)
@pytest.mark.xfail(strict=False, reason="two planted groups of three: evidence -0.6 over by degrees, 1.0 needed")
def test_groups_are_shown_by_texts_that_they_chose(tmp_path, form):
    """Some want long texts, others short ones; each of them chose one of these and rejected the other."""
    rng = np.random.default_rng(3)
    phi = rng.standard_normal((20, 3))
    texts = [f"text {k}, {'long' if long > 0 else 'short'} <i>" for k, long in enumerate(phi[:, 0])]
    one, other = rng.integers(20, size=(2, 400))
    one, other = one[one != other], other[one != other]
    users = rng.integers(6, size=len(one))
    margin = np.where(users % 2, 3.0, -3.0) * (phi[one] - phi[other])[:, 0]
    y = (rng.random(len(one)) < 1 / (1 + np.exp(-margin))).astype(int)
    won, lost = np.where(y, one, other), np.where(y, other, one)
    shown = {"user": [f"user {u}" for u in users]}
    if form == "left and right":
        shown |= {"left": [texts[k] for k in one], "right": [texts[k] for k in other], "y": y}
        shown |= {"first": phi[one].tolist(), "second": phi[other].tolist()}
    else:
        said = (lambda text: [{"role": "assistant", "content": text}]) if form == "chats" else str
        shown |= {"chosen": [said(texts[k]) for k in won], "rejected": [said(texts[k]) for k in lost]}
        shown |= {"chosen_embedding": phi[won].tolist(), "rejected_embedding": phi[lost].tolist()}
    pl.DataFrame(shown).write_parquet(tmp_path / "votes.parquet")
    assert prefkin_says("fit", "votes.parquet", "--out", "kin", "--no-pictures", cwd=tmp_path).returncode == 0
    done = prefkin_says("report", "kin", "--out", "page.html", "--votes", "votes.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cards = (tmp_path / "page.html").read_text().split('<div class="card"')[1:]
    assert len(cards) == 2
    logged = {(f"user {u}", texts[w], texts[k]) for u, w, k in zip(users, won, lost, strict=True)}
    for card in cards:
        assert "Chosen, and over what:" in card
        assert "feature 0" not in card
        wants = "long" if "user 1<" in card or "user 1," in card else "short"
        quoted = [text.replace("&lt;", "<").replace("&gt;", ">") for text in re.findall("“(.*?)”", card)]
        for chosen, rejected in zip(quoted[::2], quoted[1::2], strict=True):
            assert wants in chosen
            assert wants not in rejected
            assert any(f"user {u}" in card and (f"user {u}", chosen, rejected) in logged for u in range(6))


def test_candidates_are_read_in_the_order_of_the_model(folder):
    model = prefkin.load(folder / "kin")
    names, table = model.feature_names_, pl.read_parquet(folder / "cands.parquet")
    table.select(["context", "action", "text", *names[::-1]]).write_parquet(folder / "back.parquet")
    shown = candidates_for(model, folder / "back.parquet", {}, None)
    assert shown.candidates.feature_names == names
    assert shown.candidates.features.tolist() == table.select(names).to_numpy().tolist()
    assert shown.texts == tuple(table["text"])


def test_candidates_that_are_not_there_are_named(folder):
    done = prefkin_says("report", "kin", "--out", "x.html", "--candidates", "none.csv", cwd=folder)
    assert (done.returncode, done.stderr) == (2, "prefkin: none.csv: no such file\n")


@pytest.mark.long
def test_methods_are_compared_when_asked(folder):
    done = prefkin_says("report", "kin", "--out", "compared.html", "--compare", cwd=folder)
    assert done.returncode == 0, done.stderr
    page = (folder / "compared.html").read_text()
    for part in ("one description for all", "(this report)", "right", "on answers it had not seen"):
        assert part in page


def test_what_cannot_be_reported_is_one_line(folder):
    np.savez(folder / "wide.npz", features=np.ones((1, 2, 5)))
    pl.DataFrame(
        {"user": ["p"], "chosen": ["a"], "rejected": ["b"], "chosen_embedding": [[1.0]], "rejected_embedding": [[0.0]]}
    ).write_parquet(folder / "narrow.parquet")
    for words in (
        ("--out", "x.txt"),
        ("--out", "x.html", "--candidates", "wide.npz"),
        ("--out", "x.html", "--votes", "narrow.parquet"),
        ("--out", "x.html", "--votes", "v.csv", "--map", "y=y"),
    ):
        done = prefkin_says("report", "kin", *words, cwd=folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not (folder / "x.html").exists()
