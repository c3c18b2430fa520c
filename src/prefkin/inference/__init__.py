"""Estimates and posteriors: functions of arrays, which trust their input.

loss         the ridge logistic loss, and when an estimate is found
estimate     the estimate of one set of rows, by Newton's method
sets         sets of rows as what they are made of
many         many estimates at once
shared       many estimates at once, of sets that share rows
_kernels     inner loops compiled by numba
spectrum     smallest eigenvalues
information  information matrix, width of a confidence set, radius of a ball
held_out     what held-out answers choose
components   one new user's answers under each of several priors
model        the hierarchical model on one page, and its types
likelihood   tilted moments of an answer's likelihood
factors      Gaussian factors in canonical form
hierarchy    the E-step: messages from users to group means, and moments back
ep           expectation propagation: sites, the sweep, and the loop
_ep_kernels  inner loops of these, compiled by numba
"""
