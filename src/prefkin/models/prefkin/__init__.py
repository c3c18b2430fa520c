"""PrefKin: evidence decides who is pooled, and how much.

settings   every constant with its reason, and how much effort users are worth
mixture    a mixture prior over users: evidence of a set, posterior of a person
degrees    people who differ by degrees
crowd      merging sets among many people, each with its likely partners
groups     the search for who belongs together
odds       what speaks for and against two users belonging together
calibrate  what held-out answers decide: units of features, spread of users, trust in probabilities
estimator  `PrefKin`
"""
