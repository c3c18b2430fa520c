"""schemathesis against the OpenAPI description: whatever is sent, no answer is a failure of the server."""

import pytest

pytestmark = pytest.mark.annotate
schemathesis = pytest.importorskip("schemathesis", reason="no schemathesis; pip install 'prefkin[browser]'")


@pytest.mark.parametrize("who", ["Ada", "open", "organiser", None])
def test_nothing_that_can_be_sent_makes_it_fail(world, who):
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_asgi("/openapi.json", world.client.app)
    world.project.rates.each_second = world.project.guesses.each_second = 1e9
    headers = {} if who is None else {"Authorization": f"Bearer {world.token(who)}"}
    operations = [operation.ok() for operation in schema.get_all_operations()]
    assert len(operations) == 5
    modes = list(schemathesis.GenerationMode)
    for operation in operations:
        for mode in modes:
            cases = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=30,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=cases, known=st.booleans())
            def send(case, known):
                response = case.call(headers=headers if known else {})
                case.validate_response(response, checks=(not_a_server_error,))
                assert response.status_code < 500

            try:
                send()
            except Exception as error:
                if "Unsatisfiable" not in type(error).__name__ and "negat" not in str(error).lower():
                    raise
