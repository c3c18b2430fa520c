"""
A first fit
===========

Twenty-four readers chose between pairs of summaries, forty times each. Who wants the same, and what does that buy?
"""

import numpy as np

from prefkin import PrefKin
from prefkin.data.synthetic import demo_population
from prefkin.evaluate.metrics import held_out
from prefkin.models.baselines import per_user, pooled

people, stories = demo_population(np.random.default_rng(0))
data = people.data
print(data)

# %%
# `Z` holds the feature differences of each pair, `y` is 1 where the first was preferred, `users` says who answered.
# There is nothing to tune: how much people have in common is learnt from all of them.

model = PrefKin().fit(data.Z, data.y, users=data.users)
print(model.summary())

# %%
# Whose answers count for Ada, and why do Ben's not?

print(model.neighbours("Ada").tolist())
print(model.explain("Ada", "Ben"))

# %%
# What it buys: log-loss on answers that nobody fitted, beside tuned rivals.

found = {}
for name, rival in (("own answers only", per_user()), ("everybody pooled", pooled()), ("PrefKin", model)):
    found[name] = held_out(rival if rival is model else rival.fit(data), people.held_out).log_loss
    print(f"{name:17} {found[name]:.3f}")

# %%
# What to recommend to Ada in each of thirty new contexts, and what that is worth at least.

policy = model.policy("Ada", stories)
print(policy.actions[:10], f"worth at least {policy.value:.2f}")
