"""PrefKin: evidence decides who is pooled, and how much.

settings   every constant with its reason, and how much effort users are worth
person     the posterior of one user, a law for each group
mixture    a mixture prior over users, and everybody's posterior
beliefs    about rows of users around one centre
scales     how far people are from centres, and centres from each other
degrees    people who differ by degrees
metric     how people differ: isotropic, diagonal, full or whitened covariance, learnt from everybody
merging    sets of users, merged while evidence grows: few, or thousands with their likely partners
places     who belongs where among the groups there are
modes      those whose sites do not settle
groups     the search for who belongs together
by_draws   few answers, matched together
settling   everybody under a prior learnt from some: in parts, of which no memory need hold all
calibrate  what held-out answers decide: the metric, spread of users, trust in probabilities
habit      a habit of taking the first side
lesson     what people teach about people: metric, groups or degrees, trust
newcomer   what is known about somebody of whom nothing is known: people in general
update     tomorrow's answers under the prior as it is, and whether it should be learnt again
explain    why somebody counts for somebody else, and what speaks for and against it
file       `PrefKin` on disk
estimator  `PrefKin`
in_shards  with more people than memory holds
"""
