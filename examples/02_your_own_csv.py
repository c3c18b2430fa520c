"""
Your own CSV file
=================

A table with a row for each answer, under whatever names it has, read, checked and fitted; the same on the command line.
"""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from prefkin import PrefKin, read_comparisons
from prefkin.evaluate.audit import audit

# %%
# This stands for your file: who was asked, what the two options cost and how long they took, and which one was taken.

rng = np.random.default_rng(0)
lines = ["guest,first_price,first_minutes,second_price,second_minutes,y"]
for guest in range(12):
    price, minutes = (-1.5, -0.3) if guest % 2 else (-0.3, -1.5)  # some save money, the others time
    for _ in range(50):
        first, second = rng.uniform(0, 3, (2, 2)).round(2)
        odds = (first - second) @ (price, minutes)
        answer = int(rng.random() < 1 / (1 + np.exp(-2 * odds)))
        lines.append(f"guest {guest},{first[0]},{first[1]},{second[0]},{second[1]},{answer}")
file = Path(mkdtemp()) / "answers.csv"
file.write_text("\n".join(lines) + "\n")

# %%
# Other names for our columns through `columns`, the features by theirs.

data = read_comparisons(file, {"user": "guest"}, features=["price", "minutes"])
print(data)
print(audit(data))

# %%
# On the command line::
#
#     prefkin audit answers.csv --map user=guest --features price,minutes
#     prefkin fit answers.csv --map user=guest --features price,minutes --out kin

model = PrefKin().fit(data)
print(model.summary())
for user in ("guest 0", "guest 1"):
    theta = model.theta_[model.position(user)]
    print(user, dict(zip(data.feature_names, theta.round(2).tolist(), strict=True)))
