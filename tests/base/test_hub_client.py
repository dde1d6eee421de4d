import pytest

from mtkit.base.hub_client import quiet_client


@pytest.mark.parametrize(("given", "is_off"), [(None, True), ("0", False)])
def test_xet_is_off_unless_the_user_asks_for_it(given, is_off, monkeypatch):
    # The client reads the variable when it is imported, which may be long before.
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    if given is None:
        monkeypatch.delenv("HF_HUB_DISABLE_XET", raising=False)
    else:
        monkeypatch.setenv("HF_HUB_DISABLE_XET", given)
    with quiet_client():
        assert constants.HF_HUB_DISABLE_XET is is_off
    assert constants.HF_HUB_DISABLE_XET is False
