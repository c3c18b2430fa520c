"""Who belongs together.

prior        the prior over partitions
agglomerate  merging by marginal likelihood
reassign     leave-one-out responsibilities
search       rounds of both, accepted by evidence
"""
