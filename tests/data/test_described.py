"""Features are told apart by their names, where these are names."""

import pytest

from prefkin.data.described import places_of_features
from prefkin.errors import InvalidCandidates


@pytest.mark.parametrize(
    ("given", "wanted", "places"),
    [
        (None, ["a"], None),
        (["a", "b"], None, None),
        (["a", "b"], ["a", "b"], None),
        (["b", "a"], ["a", "b"], [1, 0]),
        (["z1", "z0"], ["z0", "z1"], [1, 0]),  # in no order of numbers: these are names
        (["z0", "z1"], ["tone", "price"], None),
        (["tone", "price"], ["f_0", "f_1"], None),
        (["z0", "z1"], ["z0", "z1", "z2"], None),  # how many there are is told elsewhere
    ],
)
def test_names_say_where_features_stand(given, wanted, places):
    found = places_of_features(given, wanted, "the candidates", InvalidCandidates)
    assert (None if found is None else found.tolist()) == places


@pytest.mark.parametrize(
    ("given", "wanted", "said"),
    [
        (["a", "c"], ["a", "b"], "lack b and have c instead;"),
        (["a", "b", "id"], ["a", "b"], "have id besides;"),
        (["x1", "x2"], ["a", "b"], "lack a, b and have x1, x2 instead;"),
        (
            ["a", "b"],
            [f"f{k}x" for k in range(9)],
            r"lack f0x, f1x, f2x, f3x, f4x, \.\.\. \(9\) and have a, b instead",
        ),
    ],
)
def test_other_names_are_refused_with_the_difference(given, wanted, said):
    with pytest.raises(InvalidCandidates, match=said):
        places_of_features(given, wanted, "the candidates", InvalidCandidates)
