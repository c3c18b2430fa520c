"""The conditional logit of choices among several, written out: slow, exact, sharing no code with the package."""

import numpy as np
from scipy.optimize import minimize


def choice_loss(theta, options, chosen):
    """Mean negative log-likelihood of choices."""
    values = [np.asarray(some) @ theta for some in options]
    return float(np.mean([np.logaddexp.reduce(value) - value[pick] for value, pick in zip(values, chosen)]))


def pooled_logit(options, chosen, ridge):
    """argmin of Σ choice losses + ridge/2 ‖θ‖²."""

    def value(theta):
        return len(options) * choice_loss(theta, options, chosen) + ridge / 2 * float(theta @ theta)

    return minimize(value, np.zeros(np.shape(options[0])[1]), method="BFGS").x
