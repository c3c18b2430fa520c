"""The paper's experiments: methods meet data through small contracts, trials are pure functions of their specification.

worlds     people and their comparisons: synthetic, real, and planted on real features
contracts  what a method sees, what it returns, how it is registered
methods    small files
talk       conversations of Experiment 2
trial      a specification → rows
plan       TOML settings (in plans/) → the trials of an experiment
store      finished trials, append-only
run        trials on processes, in any order, with the same rows
summary    means with bands, paired comparisons
claims     what the paper says, what was measured
figures    one picture per panel
report     report.md, report.html, the tables of paper/README.md
speed      every public call against what one would write instead, for `prefkin bench`
"""
