"""PrefKin: an empirical-Bayes hierarchical model of users, clusters or continuous heterogeneity.

settings    every constant of the method, with its reason
scales      M-step for the variances
covariance  covariance structures of continuous heterogeneity, and their M-step
partition   the prior over partitions, merging, reassignment, and the search
selection   candidates by held-out log-loss; scales and temperature
fitting     from comparisons to the chosen model of all users
position_bias  users who take the first side more often than its content says
"""
