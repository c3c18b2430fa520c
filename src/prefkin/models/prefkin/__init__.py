"""PrefKin: an empirical-Bayes hierarchical model of users, clusters or continuous heterogeneity.

settings       every constant of the method, with its reason
parameters     arguments of the estimator, and as the specification of a fit
estimator      `PrefKin`
fitting        from comparisons to the chosen model of all users
selection      candidates by held-out log-loss; scales and temperature
scales         M-step for the variances
covariance     covariance structures of continuous heterogeneity, and their M-step
partition      the prior over partitions, merging, reassignment, and the search
e_step         E-step and M-step over blocks of users, with sufficient statistics
everybody      passes of the E-step over all users, after a fit to a sample
position_bias  users who take the first side more often than its content says
posterior      the posterior of users: estimates, covariances, margins
new_user       the prior predictive law of a new user, and known users as mixtures or as a panel
update         new answers, and new users, under the hyperparameters as they are
out_of_core    the same with more users than memory holds
shares         how much of an estimate own answers decide, and what two users have in common
explain        why two users belong together, or not
reporting      the summary of a fit, and its warnings
file           a fitted model in one file
"""
