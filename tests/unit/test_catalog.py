"""A catalog entry that breaks a rule is refused by field, before anything is stored."""

import pytest

from llmgw.core.catalog import check_model
from llmgw.core.errors import InvalidInput
from tests.support.builders import a_model, a_profile


@pytest.mark.parametrize("slug", ["h100-80g", "6000-24g", "a100-80g-mig-3g.40gb", "rtx-pro-6000-96g", "gb10"])
def test_a_class_of_cards_is_written_as_nodes_write_it(slug: str) -> None:
    check_model(a_model(profiles=(a_profile(gpu_class=slug),)))


@pytest.mark.parametrize("slug", ["", "H100 80", "NVIDIA H100", "h100/80", "-h100", "h" * 129, "h100\n"])
def test_what_no_card_can_be_called_is_refused(slug: str) -> None:
    with pytest.raises(InvalidInput, match="h100-80g") as refused:
        check_model(a_model(profiles=(a_profile(), a_profile(name="gpu", gpu_class=slug))))
    assert refused.value.field == "profiles[1].gpu_class"
