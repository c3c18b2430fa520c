"""Real comparisons between items with texts: who, in which context, which two items, and which was preferred.

What TL;DR and UKPConvArg share: features of items, splits that keep contexts whole, a reference policy from all of a
person's answers, and questions answered by what the person really said.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from prefkin.data.arrays import FloatArray, IntArray, LabelArray, above_zero
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.embedding import sentence_embedder
from prefkin.data.storage import write_atomically
from prefkin.errors import InvalidTable
from prefkin.inference.estimate import fit_preference
from prefkin.reproduce.worlds.planted import answer_table, planted_rows, planted_world
from prefkin.reproduce.worlds.world import NO_ANSWER, Pool, World

__all__ = ["ItemPairs", "components", "data_folder", "embedded", "lengths", "pair_world", "semi_synthetic_world"]


@dataclass(frozen=True, eq=False)
class ItemPairs:
    """Comparisons of items."""

    users: LabelArray  # (n,)
    contexts: LabelArray  # (n,) post or topic
    first: IntArray  # (n,) position of the item
    second: IntArray  # (n,)
    y: FloatArray  # (n,) 1 when the first was preferred
    embedding: FloatArray  # (items, D)
    texts: list[str]  # (items,)
    item_context: LabelArray | None = None  # (items,) the one context of an item, where it has one

    @classmethod
    def of(
        cls,
        rows: Iterable[tuple[str, str, int, int, bool]],
        embedding: FloatArray,
        texts: list[str],
        item_context: LabelArray | None = None,
    ) -> ItemPairs:
        """Rows of user, context, first and second item, and whether the first was preferred."""
        users, contexts, *sides, y = (np.array(column) for column in zip(*rows, strict=True))
        first, second = (side.astype(np.intp) for side in sides)
        return cls(users, contexts, first, second, y.astype(np.float64), embedding, texts, item_context)

    def features(self, dim: int, with_length: bool = True) -> FloatArray:
        """`dim` principal components of the embeddings; with the length of the text as one more feature, or not."""
        parts = [components(self.embedding, dim)]
        return np.hstack([*parts, lengths(self.texts)] if with_length else parts)

    def comparisons(self, features: FloatArray) -> Comparisons:
        """As `Comparisons`, with contexts."""
        return Comparisons.from_sides(
            features[self.first], features[self.second], self.y, self.users, contexts=self.contexts
        )

    def of_frequent(self, at_least: int, most: int | None = None) -> ItemPairs:
        """The rows of users with many comparisons, the busiest first."""
        labels, who = np.unique(self.users, return_inverse=True)
        count = np.bincount(who)
        order = np.lexsort((np.arange(len(labels)), -count))
        chosen = [k for k in order if count[k] >= at_least][:most]
        if len(chosen) < 2:
            raise InvalidTable(
                f"only {len(chosen)} people have {at_least} comparisons or more; ask for fewer, or get more data"
            )
        keep = np.isin(who, chosen)
        columns = {name: getattr(self, name)[keep] for name in ("users", "contexts", "first", "second", "y")}
        return replace(self, **columns)


def data_folder() -> Path:
    """Where the original files are: $PREFKIN_DATA."""
    if not (folder := os.environ.get("PREFKIN_DATA")):
        raise InvalidTable("where are the original files? See docs/experiments.md and set PREFKIN_DATA to their folder")
    return Path(folder)


def components(rows: FloatArray, k: int) -> FloatArray:
    """The k leading principal components of `rows`, scaled to unit variance of the first.

    >>> components(np.array([[1.0, 0.0], [-1.0, 0.0], [3.0, 0.1], [-3.0, -0.1]]), 1).std().round(6)
    np.float64(1.0)
    """
    centred = rows - rows.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    sign = np.sign(left[np.abs(left).argmax(axis=0), np.arange(left.shape[1])])  # one sign on every machine
    return (left * sign)[:, :k] * size[:k] / size[0] * np.sqrt(len(rows))


def lengths(texts: list[str]) -> FloatArray:
    """Standardised log length in words, one column."""
    count = np.log1p([len(text.split()) for text in texts])
    return ((count - count.mean()) / above_zero(count.std()))[:, None]


def embedded(texts: list[str], cache: Path, *, embed: Callable[[list[str]], FloatArray] | None = None) -> FloatArray:
    """Embeddings of texts through the optional extra `prefkin[embed]`, kept in `cache`: each is computed once."""
    known: dict[str, FloatArray] = {}
    if cache.exists():
        with np.load(cache) as stored:
            known = dict(zip(stored["keys"].tolist(), stored["vectors"].astype(np.float64), strict=True))
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    new = sorted({key: text for key, text in zip(keys, texts, strict=True) if key not in known}.items())
    if new:
        vectors = (sentence_embedder() if embed is None else embed)([text for _, text in new])
        known |= dict(zip([key for key, _ in new], np.asarray(vectors, dtype=np.float64), strict=True))
        buffer = io.BytesIO()
        np.savez_compressed(buffer, keys=np.array(sorted(known)), vectors=np.array([known[k] for k in sorted(known)]))
        write_atomically(cache, buffer.getvalue())
    return np.array([known[key] for key in keys])


def pair_world(
    table: ItemPairs,
    rng: np.random.Generator,
    *,
    dim: int,
    at_least: int,
    most: int | None = None,
    held_share: float = 0.3,
    reference_ridge: float = 1.0,
    with_length: bool = True,
    asked: int = 0,
    offline: int | None = None,
) -> World:
    """Contexts split into two parts; the worth of an action is that under the estimate from *all* of a user's answers.

    `asked` users may be asked: their first `offline` training rows are known from the start, the others are the pool.
    """
    data, contexts, reference = _described(table, dim, at_least, most, reference_ridge, with_length)
    labels = np.unique(contexts)
    held = np.isin(contexts, rng.permutation(labels)[: max(1, round(held_share * len(labels)))])
    both = np.intersect1d(data.users[held], data.users[~held])
    theta = reference[np.isin(data.labels, both)]
    keep = np.isin(data.users, both)
    data, held = data.take(keep), held[keep]
    who = data.who.astype(np.intp)
    shuffled = rng.permutation(len(data))
    train, test = shuffled[~held[shuffled]], shuffled[held[shuffled]]
    numbered = Comparisons.from_sides(*_sides(data), data.y, who, contexts=data.contexts)
    fresh = Candidates(np.unique(np.stack(_sides(numbered.take(np.sort(test))), axis=1), axis=0))
    learnt, pools = _ask(numbered.take(train), range(min(asked, len(theta))), offline)
    advantage = np.einsum("ij,ij->i", learnt.Z, theta[learnt.users])
    judged = numbered.take(test)
    return planted_world(theta, None, data=learnt, advantage=advantage, held_out=judged, contexts=fresh, pools=pools)


@lru_cache(maxsize=2)
def _described(
    table: ItemPairs, dim: int, at_least: int, most: int | None, ridge: float, with_length: bool
) -> tuple[Comparisons, LabelArray, FloatArray]:
    """What does not change from draw to draw: comparisons, their contexts, and the estimate from all of each user's."""
    chosen = table.of_frequent(at_least, most)
    data = chosen.comparisons(chosen.features(dim, with_length))
    rows = data.by_user()
    return data, chosen.contexts, np.array([fit_preference(rows.of(u), ridge=ridge) for u in range(len(rows))])


def _sides(data: Comparisons) -> tuple[FloatArray, FloatArray]:
    assert data.first is not None and data.second is not None  # noqa: PT018 - made by `ItemPairs.comparisons`
    return data.first, data.second


def _ask(data: Comparisons, users: range, offline: int | None) -> tuple[Comparisons, tuple[Pool, ...]]:
    """For each user asked, rows beyond the first `offline` become questions with their real answers."""
    pools, keep = [], np.ones(len(data), dtype=bool)
    for user in users:
        own = np.flatnonzero(data.users == user)
        later = own[offline if offline is not None else len(own) // 5 :]
        keep[later] = False
        first, second = _sides(data.take(later))
        differ = np.flatnonzero((first != second).any(axis=1))
        answers = np.full((len(differ), 2, 2), NO_ANSWER, dtype=np.intp)
        answers[:, 0, 1] = data.y[later[differ]]
        answers[:, 1, 0] = 1 - answers[:, 0, 1]
        pools.append(Pool(Candidates(np.stack([first[differ], second[differ]], axis=1)), answers))
    return data.take(keep), tuple(pools)


def semi_synthetic_world(
    table: ItemPairs,
    rng: np.random.Generator,
    *,
    dim: int,
    users: int,
    groups: int,
    rows: int,
    strength: float,
    spread: float,
    at_least: int,
    contexts: int = 500,
    held_out: int = 100,
    asked: int = 0,
    pool_contexts: int = 400,
) -> World:
    """Real items, planted people: groups are k-means centres of real people's estimates, scaled to norm `strength`.

    A planted person is a centre plus `spread` times the deviation of a real person from the centre they are nearest to.
    Pairs are drawn among items of one context; a share of the contexts is kept for judging.
    """
    fits = _described(table, dim, at_least, None, 1.0, True)[2]
    features = table.features(dim)
    found = KMeans(groups, n_init=10, random_state=0).fit(fits)
    scale = strength / np.linalg.norm(found.cluster_centers_, axis=1).mean()
    deviation = fits - found.cluster_centers_[found.labels_]
    group = rng.integers(groups, size=users)
    theta = scale * (found.cluster_centers_[group] + spread * deviation[rng.integers(len(fits), size=users)])
    home = table.item_context if table.item_context is not None else np.zeros(len(features), dtype=np.intp)
    labels = np.unique(home)
    held = np.isin(home, rng.permutation(labels)[: max(1, round(0.3 * len(labels)))]) if len(labels) > 1 else None

    def draw(n: int, where: IntArray) -> FloatArray:
        """Features of both sides of so many pairs, (n, 2, d)."""
        one = where[rng.integers(len(where), size=n)]
        other = np.empty_like(one)
        for label in np.unique(home[one]):
            here, among = np.flatnonzero(home[one] == label), where[home[where] == label]
            shift = rng.integers(1, max(len(among), 2), size=len(here))
            place = np.searchsorted(among, one[here])
            other[here] = among[(place + shift) % len(among)]
        return features[np.stack([one, other], axis=1)]

    def answered(n: int, where: IntArray) -> Comparisons:
        owner = np.repeat(np.arange(users), n)
        first, second = draw(len(owner), where).swapaxes(0, 1)
        return planted_rows(rng, first - second, owner, theta)

    everything = np.arange(len(features))
    known, new = (everything, everything) if held is None else (np.flatnonzero(~held), np.flatnonzero(held))
    data, fresh_rows, fresh = answered(rows, known), answered(held_out, new), Candidates(draw(contexts, new))
    pools = []
    for user in range(asked):
        sides = draw(pool_contexts, known)
        pools.append(Pool(Candidates(sides), answer_table(rng, sides @ theta[user])))
    advantage = np.einsum("ij,ij->i", data.Z, theta[data.users])
    return planted_world(theta, group, data=data, advantage=advantage, held_out=fresh_rows, contexts=fresh, pools=pools)
