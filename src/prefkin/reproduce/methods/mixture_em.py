"""Mixture by expectation-maximisation with hard seats; their number, and the pull to the centres, by held-out answers.

As `prefkin.models.baselines.mixture_em`, in two stages to be affordable with many features: first the number of groups
(users at their centre), then the pull. All numbers of groups advance together.
"""

import numpy as np
from sklearn.cluster import KMeans

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.reproduce.contracts import FOLDS, Estimate, Study, estimator
from prefkin.reproduce.many_fits import fit_many
from prefkin.reproduce.tuning import ANSWERS, PULLS, best_of, held_out_margins, tuned_pull

NUMBERS = (1, 2, 4, 6, 8, 12, 16)
ROUNDS = 5
ROUGHLY = 1e-2  # seats and numbers need no sharper centres; the chosen ones are fitted to the end


@estimator("mixture_em", "mixture-EM, tuned")
def mixture_em(study: Study) -> Estimate:
    """Seats from all rows, judged on folds."""
    numbers = [k for k in NUMBERS if k == 1 or k <= study.n_users // 2]
    seats = _seat(study, numbers)
    users = range(study.n_users)
    plenty = len(study.rows.rows.y) > FOLDS * ANSWERS  # then one fold has answers enough to choose a number by
    folds = range(1 if plenty else FOLDS)
    without = [_centres(study, seats, without=fold) for fold in folds]
    margins = [
        np.concatenate([held_out_margins(study, u, f, without[f][i][seats[i][u]]) for f in folds for u in users])
        for i in range(len(numbers))
    ]
    best, _ = best_of([m[:, 0] for m in margins])
    seat = seats[best]
    final = [_centres(study, [seat], without=fold)[0] for fold in range(FOLDS)]
    centre = study.pool(_groups(seat))
    around = np.array([final[fold][seat] for fold in range(FOLDS)])
    theta, pull, heat = tuned_pull(study, around, centre[seat], PULLS)
    members = [np.flatnonzero(seat == seat[u]) for u in users]
    return Estimate(theta, members, heat=heat, note=f"{len(centre)} groups, pull {pull:g}")


def _seat(study: Study, numbers: list[int]) -> list[IntArray]:
    """Each user at the centre that explains their rows best, for each number of groups."""
    seats = [KMeans(k, n_init=10, random_state=0).fit_predict(study.own).astype(np.intp) for k in numbers]
    moving = [i for i, k in enumerate(numbers) if k > 1]
    for _ in range(ROUNDS):
        centres = _centres(study, [seats[i] for i in moving])
        losses = _losses(study, np.concatenate(centres))
        ends = np.cumsum([len(c) for c in centres])
        still = []
        for i, end, some in zip(moving, ends, centres, strict=True):
            new = np.argmin(losses[:, end - len(some) : end], axis=1)
            new = np.unique(new, return_inverse=True)[1].astype(np.intp)
            if not np.array_equal(new, seats[i]):
                seats[i] = new
                still.append(i)
        moving = still
        if not moving:
            break
    return [np.unique(seat, return_inverse=True)[1].astype(np.intp) for seat in seats]


def _groups(seat: IntArray) -> list[IntArray]:
    return [np.flatnonzero(seat == k) for k in range(int(seat.max()) + 1)]


def _centres(study: Study, seats: list[IntArray], without: int | None = None) -> list[FloatArray]:
    """Rough ridge estimates of the groups of several seatings, all at once; each distinct group once in a trial."""
    known = study.shared.setdefault(f"mixture_em without {without}", {})
    whole = study.shared.get("mixture_em without None", {})
    sets = [_groups(seat) for seat in seats]
    new = {users.tobytes(): users for some in sets for users in some if users.tobytes() not in known}
    if new:
        member = np.array([study.uses(users, without=without) for users in new.values()])
        near = [whole.get(name, study.own[users].mean(axis=0)) for name, users in new.items()]
        ridge = np.full(len(new), study.ridge)
        known.update(zip(new, fit_many(study.parcels, member, ridge, start=np.array(near), tol=ROUGHLY), strict=True))
    return [np.array([known[users.tobytes()] for users in some]) for some in sets]


def _losses(study: Study, centres: FloatArray) -> FloatArray:
    """−log probability of each user's answers under each centre, shape (U, centres)."""
    return np.array(
        [
            sum(np.logaddexp(0.0, -held_out_margins(study, u, f, centres)).sum(axis=0) for f in range(FOLDS))
            for u in range(study.n_users)
        ]
    )
