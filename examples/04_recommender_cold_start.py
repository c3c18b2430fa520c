"""
A recommender with a cold start
===============================

A log says what was shown to whom and what was taken. A list for somebody of whom nothing is known, after 0, 5 and 10
questions.
"""

import numpy as np

from prefkin import Candidates, Comparisons, PrefKin

rng = np.random.default_rng(0)
songs = rng.standard_normal((60, 5))  # five qualities of each
tastes = 1.5 * rng.standard_normal((3, 5))


def takes(taste, shown):
    """Which of the songs shown is taken, by a multinomial logit."""
    return int(np.argmax(songs[shown] @ taste + rng.gumbel(size=len(shown))))


# %%
# The log: thirty listeners, twelve times one of four songs was taken. All pairs of the taken one with the others count.

shown = rng.integers(60, size=(30 * 12, 4))
users = np.repeat(np.arange(30), 12)
taken = [takes(tastes[user % 3], some) for user, some in zip(users, shown, strict=True)]
model = PrefKin().fit(Comparisons.from_choices(songs[shown], taken, users))
print(model.summary())

# %%
# A newcomer who wants what every third listener wants. The first question is the same for everybody, later ones depend
# on the answers: first whose taste it is, then what is special about it.

catalogue = Candidates(songs[None])
session = model.session(None, catalogue, label="newcomer")
best = np.argsort(-(songs @ tastes[0]))[:10]
hits = {}
for answered in range(11):
    if answered in (0, 5, 10):
        listed = np.argsort(-(songs @ session.belief.mean))[:10]
        hits[answered] = len(set(listed) & set(best))
        print(f"after {answered:2} answers: {hits[answered]} of the ten best songs are in the list")
    question = session.ask()
    session.tell(question, takes(tastes[0], [question.first, question.second]) == 0)
