"""Off-C²PL, the paper's Algorithm 1.

radius     how far each user's own estimate may be off
posterior  what one user's answers leave open, for calibrated radii and distances
pairs      the connection test for all pairs at once
graph      the connection test, a row at a time
pooling    a neighbourhood's rows as one estimate
threshold  the paper's Appendix A, and a threshold by held-out answers
advice     why nobody was connected, and what it would take
bounds     the paper's bounds as numbers
estimator  `OffC2PL`: the files above, called in order
shards     the same with more users than memory holds: pooled estimates of those asked about
"""
