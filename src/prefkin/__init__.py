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
9. posterior     what one user's answers leave open
10. directions   in which directions a preference is known, in words
11. graph        who may be pooled with whom
12. pooling      a neighbourhood's rows → one sharper estimate
13. gamma        choosing the threshold
14. quadratics   each user's log-likelihood as a quadratic
15. blocks       a mixture prior over users: evidence and posterior
16. seating      the search for who sits with whom
17. odds         what speaks for and against two users belonging together
18. referee      what held-out answers decide
19. policy       the pessimistic value and its best policy
20. queries      which pair to ask about next
21. forecast     how many more answers, and when to stop
22. active       a conversation with one user (Algorithm 2)
23. summary      how alike these people are, in words
24. model        what every fitted model offers
25. model_file   models on disk
26. first_edge   why nobody was connected, and what it would take
27. offline      Off-C²PL (Algorithm 1)
28. kin          PrefKin: evidence decides who is pooled, and how much
29. baselines    what PrefKin has to beat, tuned
30. loading      saved models back into memory
31. synthetic    data with known truth
32. audit        what is wrong or thin in the data, before any fit
33. metrics      how good an estimate, a graph or a policy is
34. theory       the paper's bounds, as numbers
35. compare      held-out performance of every method on one's own data
36. embedding    texts → features
37. plots        pictures
38. cli          the command line
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
