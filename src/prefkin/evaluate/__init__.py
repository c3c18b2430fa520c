"""How good a fit is, and how good the data are.

audit       what is wrong or thin in the data, before any fit
metrics     how good an estimate, a graph or a policy is
compare     held-out performance of every method on one's own data
people_map  where people are on a plane, and what its axes stand for
plots       pictures
"""
