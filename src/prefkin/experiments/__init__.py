"""The paper's experiments: methods meet data through small contracts, trials are pure functions of their specification.

1. many_fits   hundreds of pooled estimates at once
2. contracts   what a method sees, what it returns, how it is registered
3. methods     one small file each
4. tuning      ridge and pull by held-out answers, shared by the tuned methods
5. trial       a specification → rows
6. plan        TOML settings → the trials of an experiment
7. store       finished trials, append-only
8. run         trials on processes, in any order, with the same rows
9. summary     means with bands, paired comparisons
10. claims     what the paper says, what was measured
11. figures    one picture per panel
12. report     report.md, report.html, the tables of paper/README.md
"""
