"""prefkin: find the people who want the same, pool their comparisons, recommend what is safe, ask what teaches most.

The files in the order data flows through them:

1. errors        what can go wrong, in one line each
2. progress      work through many users, telling whoever wants to know
3. comparisons   who saw which pair and what they chose
4. candidates    what could be shown or recommended
5. storage       files written as a whole, labels as JSON
6. files         tables and files in
7. kernels       inner loops compiled by numba
8. compiled      when compiled code is worth loading
9. likelihood    Bradley-Terry-Luce estimate of one preference
10. spectrum     smallest eigenvalues
11. confidence   information, confidence width, coverage
12. posterior    what one user's answers leave open
13. directions   in which directions a preference is known, in words
14. all_pairs    the connection test for all pairs at once
15. graph        who may be pooled with whom
16. overlapping  many estimates at once from overlapping sets
17. pooling      a neighbourhood's rows → one sharper estimate
18. gamma        choosing the threshold
19. quadratics   each user's log-likelihood as a quadratic
20. blocks       a mixture prior over users: evidence and posterior
21. cloud        people who differ by degrees
22. seating      the search for who sits with whom
23. odds         what speaks for and against two users belonging together
24. referee      what held-out answers decide
25. policy       the pessimistic value and its best policy
26. queries      which pair to ask about next
27. forecast     how many more answers, and when to stop
28. active       a conversation with one user (Algorithm 2)
29. summary      how alike these people are, in words
30. model        what every fitted model offers
31. model_file   models on disk
32. first_edge   why nobody was connected, and what it would take
33. offline      Off-C²PL (Algorithm 1)
34. kin          PrefKin: evidence decides who is pooled, and how much
35. baselines    what PrefKin has to beat, tuned
36. loading      saved models back into memory
37. synthetic    data with known truth
38. audit        what is wrong or thin in the data, before any fit
39. metrics      how good an estimate, a graph or a policy is
40. theory       the paper's bounds, as numbers
41. compare      held-out performance of every method on one's own data
42. embedding    texts → features
43. plots        pictures
44. benchmark    every stage against its peers
45. datasets     people for the experiments: synthetic, real, planted on real features
46. experiments  the paper's section 6, reproduced
47. cli          the command line
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
