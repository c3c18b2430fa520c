"""prefkin: find the people who want the same, pool their comparisons, recommend what is safe, ask what teaches most.

The files in the order data flows through them:

1. errors        what can go wrong, in one line each
2. progress      work through many users, telling whoever wants to know
3. comparisons   who saw which pair and what they chose
4. candidates    what could be shown or recommended
5. files         tables and files in
6. likelihood    Bradley-Terry-Luce estimate of one preference
7. confidence    information, confidence width, coverage
8. graph         who may be pooled with whom
9. pooling       a neighbourhood's rows → one sharper estimate
10. gamma        choosing the threshold
11. policy       the pessimistic value and its best policy
12. queries      which pair to ask about next
13. active       a conversation with one user (Algorithm 2)
14. model        what every fitted model offers
15. model_file   models on disk
16. offline      Off-C²PL (Algorithm 1)
17. synthetic    data with known truth
18. audit        what is wrong or thin in the data, before any fit
19. metrics      how good an estimate, a graph or a policy is
20. theory       the paper's bounds, as numbers
21. embedding    texts → features
22. plots        pictures
23. cli          the command line
"""

from prefkin.active import ActiveSession
from prefkin.candidates import Candidates
from prefkin.comparisons import Comparisons
from prefkin.confidence import KAPPA_UNIT_BALL, ItemRegularity
from prefkin.errors import PrefkinError, PrefkinWarning
from prefkin.files import read_candidates, read_comparisons
from prefkin.offline import OffC2PL, load
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
    "PrefkinError",
    "PrefkinWarning",
    "Question",
    "__version__",
    "load",
    "read_candidates",
    "read_comparisons",
]
