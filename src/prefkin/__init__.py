"""prefkin: find the people who want the same, pool their comparisons, recommend what is safe, ask what teaches most.

The files in the order data flows through them:

1. errors        what can go wrong, in one line each
2. progress      work through many users, telling whoever wants to know
3. comparisons   who saw which pair and what they chose
4. candidates    what could be shown or recommended
5. storage       files written as a whole, labels as JSON
6. files         tables and files in
7. likelihood    Bradley-Terry-Luce estimate of one preference
8. confidence    information, confidence width, coverage
9. graph         who may be pooled with whom
10. pooling      a neighbourhood's rows → one sharper estimate
11. gamma        choosing the threshold
12. quadratics   each user's log-likelihood as a quadratic
13. blocks       a mixture prior over users: evidence and posterior
14. seating      the search for who sits with whom
15. referee      what held-out answers decide
16. policy       the pessimistic value and its best policy
17. queries      which pair to ask about next
18. active       a conversation with one user (Algorithm 2)
19. model        what every fitted model offers
20. model_file   models on disk
21. first_edge   why nobody was connected, and what it would take
22. offline      Off-C²PL (Algorithm 1)
23. kin          PrefKin: evidence decides who is pooled, and how much
24. baselines    what PrefKin has to beat, tuned
25. loading      saved models back into memory
26. synthetic    data with known truth
27. audit        what is wrong or thin in the data, before any fit
28. metrics      how good an estimate, a graph or a policy is
29. theory       the paper's bounds, as numbers
30. compare      held-out performance of every method on one's own data
31. embedding    texts → features
32. plots        pictures
33. cli          the command line
"""

from prefkin.active import ActiveSession
from prefkin.candidates import Candidates
from prefkin.comparisons import Comparisons
from prefkin.confidence import KAPPA_UNIT_BALL, ItemRegularity
from prefkin.errors import PrefkinError, PrefkinWarning
from prefkin.files import read_candidates, read_comparisons
from prefkin.kin import PrefKin
from prefkin.loading import load
from prefkin.offline import OffC2PL
from prefkin.policy import Policy
from prefkin.queries import Question

__version__ = "0.1.0"

__all__ = [
    "KAPPA_UNIT_BALL",
    "ActiveSession",
    "Candidates",
    "Comparisons",
    "ItemRegularity",
    "OffC2PL",
    "Policy",
    "PrefKin",
    "PrefkinError",
    "PrefkinWarning",
    "Question",
    "__version__",
    "load",
    "read_candidates",
    "read_comparisons",
]
