"""People and their comparisons for the experiments: synthetic, real, and real features with planted preferences."""
