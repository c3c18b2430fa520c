"""
Questions in a loop
===================

Ask the pair whose answer tells most, hear it, stop when it is enough; kept in a file, so that it can go on another day.
"""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from prefkin import PrefKin
from prefkin.data.synthetic import demo_population

people, stories = demo_population(np.random.default_rng(0))
model = PrefKin().fit(people.data)
truth = people.theta[model.position("Ada")]
rng = np.random.default_rng(1)


def answer(difference):
    """Ada's answer, simulated: does she prefer the first?"""
    return bool(rng.random() < 1 / (1 + np.exp(-difference @ truth)))


# %%
# How many answers will it take?

session = model.session("Ada", stories)
print(session.forecast())

# %%
# Twenty questions; the state is saved after each, as a program that people use would.

kept = Path(mkdtemp()) / "ada.json"
before = np.linalg.norm(session.theta - truth)
for _ in range(20):
    question = session.ask()
    session.tell(question, answer(session.difference(question)))
    session.save(kept)
after = np.linalg.norm(session.theta - truth)
print(f"distance from what Ada really wants: {before:.2f} before, {after:.2f} after")

# %%
# Another day, and a slip of the finger taken back.

session = model.resume_session(kept, stories)
print(session)
print("taken back:", session.undo())
