"""
The paper's algorithm and its bounds
====================================

Off-C²PL connects users whose estimates are close beyond doubt, pools the comparisons of those who are connected, and
acts pessimistically; its bounds as numbers for a fit.
"""

import numpy as np

from prefkin import Candidates, OffC2PL
from prefkin.models.off_c2pl.bounds import active_bound, offline_bound, own_radius

rng = np.random.default_rng(1)
Z = rng.uniform(-0.5, 0.5, (400, 3)) * [1.0, 1.0, 0.1]  # the third feature is hardly covered
y = (rng.random(400) < 1 / (1 + np.exp(-Z @ [3.0, -2.0, 1.0]))).astype(int)
users = np.repeat(["ann", "bo"], 200)

# %%
# The threshold γ̂ says how far two preferences may be apart and still be pooled. Radii are worst-case, so it is large.

model = OffC2PL(gamma=60.0, alpha=1.0, ridge=1.0, delta=0.05).fit(Z, y, users=users)
print(model.explain("ann", "bo"))

# %%
# Lemma 1: how far an estimate from own answers may be off. Lemma 3 and Theorem 1: noise of what is pooled, and the bias
# if ``bo`` wanted something else after all.

print(f"own radius {own_radius(model, 'ann'):.1f}")
for differing in ([], ["bo"]):
    bound = offline_bound(model, "ann", differing=differing)
    print(f"noise {bound.noise:.1f}, bias {bound.bias:.1f}, suboptimality at most {bound.suboptimality:.1f}")

# %%
# The pessimistic policy prefers what is well known.

candidates = Candidates([[e / 2, -e / 2] for e in np.eye(3)])
print(model.policy("ann", candidates, pessimism=1.0).actions, model.policy("ann", candidates, pessimism=0.0).actions)

# %%
# Algorithm 2: questions where the data are thin, and Theorem 2 about what they gain.

session = model.session("ann", candidates, rule="coverage", repeat=True)
for _ in range(10):
    session.tell(session.ask(), True)
gained = active_bound(model, session)
print(f"least information {gained.least_before:.1f} before, {gained.least_after:.1f} after ten questions")
