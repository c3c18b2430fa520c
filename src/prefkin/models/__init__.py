"""Estimators in scikit-learn's sense, and what every fitted one offers.

base       what every fitted model offers: probabilities, policies, sessions
calls      how methods are called: on which threads, about whom
given      what models are given, checked once
reports    what a model tells: explanations, summaries
coverage   in which directions a preference is known, in words
likeness   who is like whom, and groups in a few words
files      models on disk, in one file or as a folder of shards
off_c2pl   the paper's algorithm
prefkin    an empirical-Bayes hierarchical model: clusters of users, or continuous heterogeneity
baselines  what PrefKin has to beat, tuned
"""
