from launcher.addresses import own_address


def test_the_address_that_services_report_is_the_one_to_reach() -> None:
    assert own_address("203.0.113.7") == "203.0.113.7"
    assert own_address("0.0.0.0") not in ("0.0.0.0", "")
    assert own_address(None) == own_address("0.0.0.0")
