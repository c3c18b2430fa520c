"""PrefKin with people in shards, more than memory holds.

files   what steps over shards leave on disk
people  what is known about everybody, and what `PrefKin` offers of them
fit     the prior from some people, everybody else placed shard by shard
update  tomorrow's answers, and new people
"""
