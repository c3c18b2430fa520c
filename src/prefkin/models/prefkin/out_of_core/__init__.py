"""PrefKin on out-of-core data: users in shards, more than memory holds.

files   what E-steps over shards leave on disk
fit     hyperparameters from a sample, then passes of the E-step over all shards
users   what `PrefKin` offers of users in shards
update  new answers, and new users
"""
