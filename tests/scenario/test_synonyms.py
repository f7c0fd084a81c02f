"""Synonyms from other programs lead to existing keys."""

import pytest

from testbed.scenario.schema import Scenario
from testbed.scenario.schema_node import SchemaNode
from testbed.scenario.synonyms import MEANINGS, MEMBERS, REMARKS, nearest_key, nearest_member


@pytest.mark.parametrize("path", MEANINGS)
def test_every_path_is_in_the_schema(path: str) -> None:
    places = [SchemaNode(Scenario)]
    for key in path.split("."):
        name = "any" if key == "*" else key
        inside = [one for place in places for one in _inside(place, name)]
        assert inside, key
        places = inside


def _inside(place: SchemaNode, key: str) -> list[SchemaNode]:
    """The values under a key; in a family, those of all members that have it."""
    around = [*place.members.values()] or [place]
    return [found for one in around if (found := one.enter(key)) is not None]


def test_no_synonym_is_a_key_where_it_applies() -> None:
    for path, words in MEANINGS.items():
        assert path.rpartition(".")[2] not in words
    assert set(REMARKS) <= set(MEANINGS)


@pytest.mark.parametrize(
    ("word", "keys", "hint"),
    [
        ("lr", ["learning_rate", "ratio"], "Did you mean learning_rate?"),
        ("LR", ["learning_rate", "ratio"], "Did you mean learning_rate?"),
        ("lr", ["name", "seed"], "Did you mean algorithm.learning_rate?"),
        ("bandwidth", ["delay", "rate"], "Did you mean rate?"),
        ("bandwidth", ["up", "down"], "Did you mean workers.classes.NAME.link.up.rate?"),
        ("nmae", ["name", "seed"], "Did you mean name?"),
        ("optimiser", ["optimizer", "clip"], "Did you mean optimizer?"),
        ("optimizer", ["runtime", "seed"], "Did you mean algorithm? Models are trained with SGD,"),
        ("rounds", ["updates", "time"], "Did you mean updates? Every applied push is an"),
        ("buffer", ["buffer_size", "name"], "Did you mean buffer_size?"),
        ("buffer", ["policy", "rates"], "Did you mean policy?"),
        ("buffer", ["queue", "rate"], "Did you mean queue?"),
        ("rate", ["per_second", "name"], ""),
        ("zzz", ["name", "seed"], ""),
    ],
)
def test_the_intended_key_is_suggested(word: str, keys: list[str], hint: str) -> None:
    found = nearest_key(word, keys)
    assert found.startswith(hint)
    assert bool(found) == bool(hint)


def test_a_misspelt_key_is_preferred_to_a_meaning_elsewhere() -> None:
    """Alone, `epoch` means `stop.steps`."""
    assert nearest_key("epoch", ["epochs", "learning_rate"]) == "Did you mean epochs?"
    assert nearest_key("epoch", ["learning_rate"]).startswith("Did you mean stop.steps?")


def _members(*keys: str | int) -> list[str]:
    """The members of the family at a path of the schema."""
    node: SchemaNode | None = SchemaNode(Scenario)
    for key in keys:
        assert node is not None
        node = node.enter(key)
    assert node is not None
    return [*node.members]


def test_a_member_of_a_family_is_suggested_by_its_name_elsewhere() -> None:
    names, metrics = _members("algorithm"), _members("evaluate", "metrics", 0)
    assert set(MEMBERS) <= {*names, *metrics}
    assert nearest_member("FedAdam", names) == "Did you mean fedopt?"
    assert nearest_member("fed_yogi", names) == "Did you mean fedopt?"
    assert nearest_member("adacom", names) == "Did you mean adacomp?"
    assert nearest_member("accuracy", metrics) == "Did you mean top1?"
    assert nearest_member("fedadam", ["pack", "spread"]) == ""
