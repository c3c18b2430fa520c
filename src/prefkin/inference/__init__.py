"""Estimates and posteriors: functions of arrays, which trust their input.

estimate     the regularised Bradley-Terry-Luce estimate of one set of rows
compiled     when compiled code is worth loading
kernels      inner loops compiled by numba
overlapping  many estimates at once from overlapping sets of users
spectrum     smallest eigenvalues
information  information matrix, width of a confidence set, radius of a ball
held_out     what held-out answers choose
propagation  expectation propagation: each answer's likelihood as a quadratic in its margin
quadratics   each user's log-likelihood as a quadratic
"""
