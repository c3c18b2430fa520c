"""The experiments: fits, methods, trials, rows. What is kept in paper/ is what the rows say."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from prefkin.data.comparisons import Comparisons
from prefkin.errors import InvalidParameter, PrefkinWarning
from prefkin.models.baselines import GroupShrinkage
from prefkin.models.off_c2pl.estimator import OffC2PL
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.reproduce import methods as _registered  # noqa: F401
from prefkin.reproduce.claims import judged
from prefkin.reproduce.contracts import METHODS, Estimate, Study, Truth, method
from prefkin.reproduce.methods.pdc import OnePass, one_pass
from prefkin.reproduce.plan import DATA, EXPERIMENTS, read_plan
from prefkin.reproduce.report import paper_deviations, paper_readme
from prefkin.reproduce.run import run_all
from prefkin.reproduce.store import Store, as_frame
from prefkin.reproduce.summary import Mean, improvement, winners
from prefkin.reproduce.talk import TALKERS
from prefkin.reproduce.trial import NOT_COMPARED, run_trial
from prefkin.reproduce.worlds.planted import synthetic_world
from prefkin.reproduce.worlds.world import relative_gap
from tests.oracles import mirror_descent

PAPER = Path(__file__).parent.parent.parent / "paper"
SETTINGS = {
    **{"ridge": 1.0, "alpha": 1.0, "delta": 0.05, "neighbours": 3, "min_samples": 2, "policy_contexts": 4},
    **{"pdc_ridge_per_feature": 0.15, "pdc_rate": 1.0, "pdc_ball": 20.0, "pessimism": 1.0},
}


@pytest.fixture(scope="module")
def world():
    shape = {"users": 8, "groups": 2, "dim": 5, "rows": 40, "strength": 4.0, "spread": 0.3, "contexts": 30}
    return synthetic_world(np.random.default_rng(3), **shape, held_out=20)


@pytest.fixture(scope="module")
def study(world):
    return Study(world.data.by_user(), SETTINGS, (1, 2))


@pytest.fixture(scope="module")
def truth(world, study):
    return Truth(world, lambda theta: world.logged_gap(theta, study.rows, world.advantage))


def small(experiment="exp1", data="synthetic", runs=2, keep=None, **settings):
    """A quick plan made smaller still."""
    plan = read_plan(experiment, data, "quick", runs=runs)
    changed = {**dict(plan.settings), "users": 6, "groups": 2, "dim": 6, "contexts": 20, "held_out": 10, **settings}
    cells = tuple(tuple((name, value) for name, value in cell if name != "dim") for cell in plan.cells)[:2]
    return replace(plan, settings=tuple(sorted(changed.items())), cells=cells, methods=keep or plan.methods)


def compared(rows):
    return [{name: value for name, value in row.items() if name not in NOT_COMPARED} for row in rows]


# -- fits --------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::prefkin.errors.AssumptionWarning")
def test_a_set_is_fitted_once_and_as_off_c2pl_does(study, world):
    sets = [np.array([0, 3]), np.arange(8), np.array([0, 3])]
    pooled = study.pool(sets)
    assert np.array_equal(pooled[0], pooled[2])
    everybody = OffC2PL(gamma=np.inf).fit(world.data).theta_[0]
    assert np.allclose(pooled[1], everybody, rtol=1e-5, atol=1e-6)


def test_one_pass_is_mirror_descent_as_printed(rng):
    for ball in (20.0, 0.8):
        Z = rng.standard_normal((150, 4))
        y = (rng.random(150) < 0.5 + 0.4 * np.sign(Z[:, 0])).astype(float)
        setting = {"ridge": 2.0, "rate": 1.5, "ball": ball}
        found = one_pass(Z, y, **setting)
        assert np.allclose(found, mirror_descent.one_pass(Z, y, **setting), atol=1e-5)
        assert np.linalg.norm(found) <= ball * (1 + 1e-9)
    assert np.linalg.norm(one_pass(Z, y, ridge=2.0, rate=1.5, ball=20.0)) > 0.8  # the small ball did bind


def test_one_pass_does_not_depend_on_the_blocks(rng):
    Z, y = rng.standard_normal((100, 3)), rng.integers(0, 2, 100).astype(float)
    one_by_one = OnePass(3, ridge=1.0, rate=1.0, ball=2.0)
    for z, answer in zip(Z, y):
        one_by_one.hear(z[None], np.array([answer]))
    assert np.allclose(one_by_one.theta, one_pass(Z, y, ridge=1.0, rate=1.0, ball=2.0))


# -- worlds and measures -----------------------------------------------------------------------------------------------


def test_a_smaller_budget_is_the_beginning_of_a_larger_one(world):
    shape = {"users": 8, "groups": 2, "dim": 5, "strength": 4.0, "spread": 0.3, "contexts": 30, "held_out": 20}
    fewer = synthetic_world(np.random.default_rng(3), rows=12, **shape)
    kept = world.data.take(world.budget(12))
    assert np.array_equal(fewer.data.Z, kept.Z)
    assert np.array_equal(fewer.data.y, kept.y)
    assert np.array_equal(fewer.reward, world.reward)


def test_gaps_are_0_for_the_best_policy_and_1_for_a_blind_one(world, study, truth):
    theta = np.linalg.lstsq(world.contexts.features, world.reward.T, rcond=None)[0].T  # the truth, from its rewards
    assert np.allclose(world.fresh_gap(theta), 0.0)
    assert np.allclose(truth.logged(theta), 0.0)
    assert np.allclose(truth.logged(-theta), 2.0)
    assert np.allclose(truth.logged(0 * theta), 1.0)
    u, actions = 2, np.zeros(len(world.contexts), dtype=int)
    worth = world.reward[u].reshape(len(world.contexts), -1)
    slow = (worth.max(axis=1) - worth[:, 0]).mean() / (worth.max(axis=1) - worth.mean(axis=1)).mean()
    assert relative_gap(world.contexts, world.reward[u], actions) == pytest.approx(slow)


# -- methods -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(METHODS))
def test_every_method_keeps_the_contract(key, study, truth):
    one = method(key)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        result = one.run(study, truth) if one.told else one.run(study)
    members = result.members if isinstance(result, Estimate) else result
    assert len(members) == 8
    for user, some in enumerate(members):
        assert user in some
        assert np.array_equal(some, np.unique(some))
    if isinstance(result, Estimate):
        assert result.theta.shape == (8, 5)
        assert np.isfinite(result.theta).all()


def test_who_is_told_the_truth_says_so():
    for one in METHODS.values():
        assert one.told == any(word in one.label for word in ("true", "hindsight")), one.label


@pytest.mark.filterwarnings("ignore::prefkin.errors.PrefkinWarning")
@pytest.mark.parametrize(
    ("key", "model"),
    [
        ("per_user_tuned", GroupShrinkage("each")),
        ("shrink", GroupShrinkage("all", ridge=1.0)),
        ("mixture_em", GroupShrinkage("em", ridge=1.0)),
        ("off_c2pl", OffC2PL(gamma="auto")),
        ("prefkin", PrefKin(random_state=0)),
    ],
)
def test_methods_of_the_library_are_the_librarys(world, study, key, model):
    ours, theirs = METHODS[key].run(study), model.fit(world.data)
    assert np.array_equal(ours.theta, theirs.theta_)
    Z, users = world.held_out.Z, world.held_out.users
    assert np.array_equal(ours.probability(Z, users), theirs.predict_proba(Z, users=users)[:, 1])
    assert [some.tolist() for some in ours.members] == [theirs.members(u).tolist() for u in range(8)]


@pytest.mark.filterwarnings("ignore::prefkin.errors.PrefkinWarning")
def test_a_point_of_the_sweep_is_off_c2pl_with_that_threshold(world, study):
    some = METHODS["sweep_0.25"].run(study)
    assert np.allclose(some.theta, OffC2PL(gamma=float(some.note)).fit(world.data).theta_)
    assert 0.15 < np.mean([len(members) - 1 for members in some.members]) / 7 < 0.35


def test_an_unknown_method_is_refused_by_name():
    with pytest.raises(InvalidParameter, match="no method 'magic'; there are dbscan"):
        method("magic")


# -- plans, trials, rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("data", DATA)
def test_every_plan_names_methods_that_exist_and_settings_that_are_used(experiment, data):
    for size in ("full", "paper", "quick"):
        plan = read_plan(experiment, data, size)
        known = TALKERS if plan.kind == "active" else METHODS
        assert set(plan.methods) <= set(known)
        assert len({trial.key for trial in plan.trials()}) == plan.runs * len(plan.cells)
    assert read_plan(experiment, data).runs == 20


@pytest.mark.parametrize(
    "experiment", ["exp1", "exp2", *(pytest.param(one, marks=pytest.mark.long) for one in ("exp3", "exp4"))]
)
def test_a_trial_gives_the_same_rows_again(experiment):
    talk = {"asked": 1, "checkpoints": (0, 4), "pool_contexts": 12, "offline": 10, "rows": 20}
    plan = small(experiment, **(talk if experiment == "exp2" else {"rows": 20, "budget": 20}))
    if experiment in ("exp1", "exp3"):  # PrefKin is in the others
        plan = replace(plan, methods=tuple(key for key in plan.methods if key != "prefkin"))
    trial = plan.trials()[0]
    rows = run_trial(trial)
    assert compared(rows) == compared(run_trial(trial))
    assert {row["method"] for row in rows} == set(plan.methods)
    assert all(0 <= row["gap"] <= 2 for row in rows)


@pytest.mark.long
def test_a_killed_run_goes_on_and_processes_do_not_matter(tmp_path):
    plan = small(keep=("per_user", "kmeans", "off_c2pl"), rows=20)
    trials = plan.trials()
    one, two = Store(tmp_path / "one.jsonl"), Store(tmp_path / "two.jsonl")
    assert run_all(trials, one) == 4
    assert run_all(trials[:2], two) == 2
    with two.path.open("a") as file:
        file.write('{"trial": "cut o')  # killed in the middle of a line
    seen = []
    assert run_all(trials, two, processes=2, tell=lambda done, total, _: seen.append((done, total))) == 2
    assert seen[-1][0] == seen[-1][1] > 0
    kept = [as_frame(trials, store.finished()).drop(NOT_COMPARED, strict=False) for store in (one, two)]
    assert kept[0].equals(kept[1])
    assert len(kept[0]) == 4 * 3
    assert run_all(trials, two) == 0
    assert len([line for line in two.path.read_text().splitlines() if "rows" in line]) == 4  # each stored once


def test_other_settings_are_another_trial():
    plan = small()
    assert not {t.key for t in plan.trials()} & {t.key for t in small(strength=9.0).trials()}


def test_the_best_is_sought_among_runs_of_all():
    rows = pl.DataFrame(
        {"run": [0, 1, 2, 0, 1], "method": ["a", "a", "a", "b", "b"], "gap": [0.5, 0.5, 0.0, 0.4, 0.4], "budget": 5}
    )
    ((_, best, mean, second, apart),) = winners(rows, "budget", "gap", ["a", "b"])
    assert (best, mean.runs, second) == ("b", 2, "a")
    assert apart.value == pytest.approx(0.1)


def test_an_improvement_is_paired_by_run():
    rows = pl.DataFrame({"run": [0, 1, 0, 1], "method": ["a", "a", "b", "b"], "gap": [0.5, 0.1, 1.0, 0.2]})
    found = improvement(rows, "a", "b")
    assert found.value == pytest.approx(0.5)
    assert found.half == pytest.approx(0.0)


def test_verdicts():
    assert judged(Mean(0.5, 0.1, 20), 0.55) == "reproduced"
    assert judged(Mean(0.2, 0.1, 20), 0.55) == "direction only"
    assert judged(Mean(0.05, 0.1, 20), 0.05) == "no difference"
    assert judged(Mean(-0.5, 0.1, 20), 0.55) == "opposite"
    assert judged(Mean(0.5, float("nan"), 1), 0.55) == "too few runs"


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_in_the_repository_is_what_its_rows_say():
    assert (PAPER / "README.md").read_text() == paper_readme(PAPER)
    assert (PAPER / "deviations.md").read_text() == paper_deviations(PAPER)


def test_another_number_in_the_rows_is_another_page(tmp_path):
    name, pages = "exp1_synthetic_quick.parquet", []
    rows = pl.read_parquet(PAPER / "rows" / name)
    for folder, factor in ((tmp_path / "as it is", 1.0), (tmp_path / "changed", 1.1)):
        (folder / "rows").mkdir(parents=True)
        rows.with_columns(pl.col("gap") * factor).write_parquet(folder / "rows" / name)
        pages.append(paper_readme(folder))
    lines = [next(x for x in page.splitlines() if x.startswith("| PrefKin (ours)")) for page in pages]
    assert lines[0] != lines[1]


def test_stored_lines_are_json(tmp_path):
    store = Store(tmp_path / "x.jsonl")
    trial = small().trials()[0]
    store.add(trial, [{"method": "per_user", "gap": 0.1 + 0.2}])
    assert json.loads(store.path.read_text())["rows"][0]["gap"] == 0.1 + 0.2


def test_world_users_are_positions(world):
    assert isinstance(world.data, Comparisons)
    assert world.data.users.tolist() == np.repeat(np.arange(8), 40).tolist()
