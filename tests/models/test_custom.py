from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from testbed.errors import ScenarioError
from testbed.models import BoundModel, CustomModel, Model, Network

HEAD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.size = image_shape[0] * image_shape[1] * image_shape[2]
"""
LINEAR = """
        self.score = nn.Linear(self.size, classes)
"""
FORWARD = """
    def forward(self, images):
        return self.score(images.flatten(1))
"""


def build(folder: Path, source: str, *, name: str = "Net", **options: object) -> Network:
    (folder / "custom").mkdir()
    (folder / "custom" / "net.py").write_text(source, encoding="utf-8")
    own = {"name": "custom", "file": "./my/net.py", "class": name}
    config = CustomModel.model_validate(own | options)
    return config.build((1, 2, 2), 3, folder=folder)


def bind(network: Network) -> BoundModel:
    return network.bind(network.initial(np.random.default_rng(0)))


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, 1, 2, 2)).astype(np.float32)


def test_parameters_are_flattened_in_the_order_of_the_module(tmp_path: Path) -> None:
    network = build(tmp_path, HEAD + LINEAR + FORWARD)
    assert network.layout.names == ("score.weight", "score.bias")
    assert network.layout.shapes == ((3, 4), (3,))
    flat = np.arange(15, dtype=np.float32)
    scores = network.bind(flat).scores(np.ones((1, 1, 2, 2), np.float32))
    np.testing.assert_array_equal(scores, [[0 + 1 + 2 + 3 + 12, 22 + 13, 38 + 14]])


def test_options_reach_the_class(tmp_path: Path) -> None:
    source = (HEAD + LINEAR + FORWARD).replace("classes):", "classes, *, width):")
    source = source.replace(
        "nn.Linear(self.size, classes)",
        "nn.Sequential(nn.Linear(self.size, width), nn.Linear(width, classes))",
    )
    assert build(tmp_path, source, width=7).layout.shapes == ((7, 4), (7,), (3, 7), (3,))


def test_an_option_unknown_to_the_class(tmp_path: Path) -> None:
    called = r"Net\(\(1, 2, 2\), 3, width=7\) raised TypeError.*"
    with pytest.raises(ScenarioError, match=called + r"as Net\(image_shape, classes, width=...\)"):
        build(tmp_path, HEAD + LINEAR + FORWARD, width=7)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = = 1\n", r"net.py:1: model: found SyntaxError: invalid syntax, expected valid Python"),
        ("\x00", r"net.py.*expected valid Python"),
        ("import no_such_package\n", r"net.py:1: .*No module named 'no_such_package'"),
        ("\n\n1 / 0\n", r"net.py:3: .*ZeroDivisionError: division by zero"),
        ("class Other:\n    pass\n", r"found no 'Net' in it; it defines Other, expected Net to be"),
        ("Net = 3\n", r"found Net, a int, expected a subclass of torch.nn.Module"),
        ("class Net:\n    pass\n", r"found Net, a type, expected a subclass of torch.nn.Module"),
        (
            "from torch import nn\nclass Net(nn.Module):\n    def __init__(self): ...\n",
            r"Net\(\(1, 2, 2\), 3\) raised TypeError.*called as Net\(image_shape, classes\)",
        ),
        (HEAD + "        raise KeyError('x')\n", r"net.py:9: .*raised KeyError"),
        (
            HEAD + "\n    def forward(self, images):\n        return torch.zeros(2, 3)\n",
            "does not depend on any trainable parameter, expected an output",
        ),
        (
            HEAD + LINEAR + "\n    def forward(self, images):\n        return self.score(images)\n",
            r"net.py:13: .*Net on images of shape \(2, 1, 2, 2\) raised RuntimeError",
        ),
        (
            HEAD + LINEAR + FORWARD.replace("flatten(1))", "flatten(1))[:, :2]"),
            r"shape \(2, 2\) and is torch.float32, expected scores, .* shape \(2, 3\)",
        ),
        (
            HEAD + LINEAR + FORWARD.replace("self.score", "str"),
            r"net.py:5: model: found Net's output is a str, expected",
        ),
        (
            HEAD + LINEAR + "        self.score.double()\n" + FORWARD,
            "Net's parameter score.weight is torch.float64, expected parameters of torch.float32",
        ),
        (
            HEAD + LINEAR + "        one = torch.ones(3, dtype=torch.int64)\n"
            "        self.count = nn.Parameter(one, requires_grad=False)\n" + FORWARD,
            "Net's parameter count is torch.int64",
        ),
    ],
)
def test_errors_are_reported(tmp_path: Path, source: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        build(tmp_path, source)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    config = CustomModel.model_validate({"name": "custom", "file": "net.py", "class": "Net"})
    with pytest.raises(ScenarioError, match=r"custom/net.py: model: found No such file") as caught:
        config.build((1, 2, 2), 3, folder=tmp_path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "options",
    [
        {"file": "net.txt", "class": "Net"},
        {"file": ".py", "class": "Net"},
        {"file": "net.py", "class": "my net"},
        {"file": "net.py"},
        {"file": "net.py", "class_name": "Net"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Model).validate_python({"custom": options})


def test_the_users_own_initialisation_depends_on_the_seed(tmp_path: Path) -> None:
    network = build(tmp_path, HEAD + LINEAR + FORWARD)
    before = torch.get_rng_state()
    bound = 1 / np.sqrt(4)  # the bound of nn.Linear's uniform law
    values = network.initial(np.random.default_rng(0))
    assert 0 < np.abs(values).max() <= bound
    assert torch.equal(torch.get_rng_state(), before)


def test_batch_statistics_are_those_of_the_batch(tmp_path: Path) -> None:
    """An evaluator never trains, so running statistics would stay at their initial values."""
    norm = LINEAR + "        self.norm = nn.BatchNorm1d(classes)\n"
    forward = FORWARD.replace("return ", "return self.norm(").replace("(1))", "(1)))")
    network = build(tmp_path, HEAD + norm + forward)
    scores = bind(network).scores(images(8) * 7 + 3)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scores.std(axis=0), 1, atol=1e-3)
    assert bind(network).evaluate(images(51), np.zeros(51, np.int64)).images == 51


@pytest.mark.parametrize(
    ("more", "scores", "least"),
    [
        ("", "self.score(images.flatten(1))", 1),
        ("self.norm = nn.BatchNorm1d(classes)", "self.norm(self.score(images.flatten(1)))", 2),
        ("self.norm = nn.BatchNorm2d(1)", "self.score(self.norm(images).flatten(1))", 1),
        ("", "self.score(images.flatten(1)).squeeze()", 2),
    ],
)
def test_the_minimum_number_of_samples_per_batch(
    more: str, scores: str, least: int, tmp_path: Path
) -> None:
    """Four pixels of one image have statistics; a network that loses the batch needs two."""
    forward = f"        {more}\n    def forward(self, images):\n        return {scores}\n"
    assert build(tmp_path, HEAD + LINEAR + forward).least_samples == least


SPECTRAL = "nn.utils.parametrizations.spectral_norm(nn.Linear(self.size, classes))"
HAND = """
        self.register_buffer("mean", torch.zeros(self.size))

    def forward(self, images):
        flat = images.flatten(1)
        {changes}
        return self.score(flat - self.mean)
"""


@pytest.mark.parametrize(
    ("source", "buffer"),
    [
        (
            LINEAR.replace("nn.Linear(self.size, classes)", SPECTRAL) + FORWARD,
            r"score.parametrizations.weight.0._[uv]",
        ),
        (LINEAR + HAND.format(changes="self.mean.mul_(0.9).add_(0.1 * flat.mean(0))"), "mean"),
        (LINEAR + HAND.format(changes="self.mean = 0.9 * self.mean"), "mean"),
    ],
)
def test_a_forward_that_changes_a_buffer_is_refused(
    source: str, buffer: str, tmp_path: Path
) -> None:
    """Even if the values stay the same, as with these blank images."""
    told = f"net.py:5: model: found Net, which changes its buffer {buffer} during training"
    with pytest.raises(
        ScenarioError, match=told + r", expected buffers that no forward pass changes"
    ):
        build(tmp_path, HEAD + source)


def test_an_objective_that_changes_a_buffer_is_refused(tmp_path: Path) -> None:
    source = LINEAR + HAND.format(changes="")
    source += "    def loss(self, outputs, targets):\n        self.mean += 1\n"
    source += "        return outputs.mean()\n"
    with pytest.raises(ScenarioError, match="changes its buffer mean"):
        build(tmp_path, HEAD + source)


def test_constant_buffers_are_allowed(tmp_path: Path) -> None:
    """Drawn at the start, created by the first forward, or part of a normalisation layer."""
    source = (
        LINEAR
        + """
        self.norm = nn.BatchNorm1d(classes)
        self.register_buffer("fixed", torch.randn(self.size))
        self.register_buffer("made", None)

    def forward(self, images):
        if self.made is None:
            self.made = torch.arange(self.size)
        return self.norm(self.score(images.flatten(1) * self.fixed + self.made))
"""
    )
    bound = bind(build(tmp_path, HEAD + source))
    assert bound.evaluate(images(4), np.zeros(4, np.int64)).images == 4


def test_dropout_is_off_in_evaluation_only(tmp_path: Path) -> None:
    forward = FORWARD.replace("images.flatten(1)", "self.drop(images.flatten(1))")
    drop = LINEAR + "        self.drop = nn.Dropout(0.5)\n"
    bound = bind(build(tmp_path, HEAD + drop + forward))
    one, two = (bound.scores(images(4)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    labels = np.zeros(4, np.int64)
    losses = {bound.loss_and_gradient(images(4), labels)[0] for _ in range(8)}
    assert len(losses) > 1


def test_unusual_modules_train(tmp_path: Path) -> None:
    """A tied, a frozen and an unused parameter, and an activation kept on self."""
    source = (
        HEAD
        + """
        self.first = nn.Linear(self.size, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.score = nn.Linear(4, classes)
        self.score.bias.requires_grad_(False)
        self.unused = nn.Parameter(torch.zeros(2))

    def forward(self, images):
        self.kept = self.second(self.first(images.flatten(1)))
        return self.score(self.kept)
"""
    )
    network = build(tmp_path, source)
    assert network.layout.size == 2 + 16 + 4 + 4 + 12 + 3
    bound = bind(network)
    _, gradient = bound.loss_and_gradient(images(5), np.array([0, 1, 2, 0, 1]))
    by_name = dict(zip(network.layout.names, network.layout.slices(), strict=True))
    assert np.all(gradient[by_name["unused"]] == 0)
    assert np.all(gradient[by_name["score.bias"]] == 0)
    assert np.all(gradient[by_name["second.bias"]] != 0)
    assert bind(network).evaluate(images(2), np.array([0, 1])).images == 2


def test_a_lazy_layer_gets_its_shape(tmp_path: Path) -> None:
    network = build(tmp_path, HEAD + LINEAR.replace("Linear(self.size,", "LazyLinear(") + FORWARD)
    assert network.layout.shapes == ((3, 4), (3,))
    assert len(network.initial(np.random.default_rng(0))) == 15


PREDICT = """
        self.line = nn.Linear(self.size, 1)

    def forward(self, images):
        return self.line(images.flatten(1))[:, 0]
"""
HALVED = """
    def loss(self, outputs, targets):
        return (outputs - targets).abs().mean() + 0.5 * self.line.weight.square().sum()
"""


def predictor(folder: Path, source: str) -> BoundModel:
    """Weights of 1 and a bias of 0: it sums four pixels."""
    (folder / "custom").mkdir()
    (folder / "custom" / "net.py").write_text(source, encoding="utf-8")
    config = CustomModel.model_validate({"name": "custom", "file": "net.py", "class": "Net"})
    network = config.build((1, 2, 2), 0, folder=folder)
    return network.bind(np.array([1, 1, 1, 1, 0], np.float32))


def test_numeric_targets_use_the_squared_error(tmp_path: Path) -> None:
    """Four pixels of 1 make 4, for 3 and 6: errors 1 and -2, mean square 2.5, slope 2 x -1 / 2."""
    bound = predictor(tmp_path, HEAD + PREDICT)
    ones, numbers = np.ones((2, 1, 2, 2), np.float32), np.array([3, 6], np.float32)
    loss, gradient = bound.loss_and_gradient(ones, numbers)
    assert loss == pytest.approx(2.5)
    np.testing.assert_allclose(gradient, [-1, -1, -1, -1, -1])
    evaluation = bound.evaluate(ones, numbers)
    assert evaluation.loss == pytest.approx(2.5)
    assert evaluation.metrics == {"top1": None, "top5": None}


def test_an_own_objective(tmp_path: Path) -> None:
    """Mean distance 1.5, plus half of the squared norm of four weights of 1: 3.5 in total."""
    bound = predictor(tmp_path, HEAD + PREDICT + HALVED)
    ones, numbers = np.ones((2, 1, 2, 2), np.float32), np.array([3, 6], np.float32)
    loss, gradient = bound.loss_and_gradient(ones, numbers)
    assert loss == pytest.approx(3.5)
    np.testing.assert_allclose(gradient, [1, 1, 1, 1, 0])  # the slopes 1/2 and -1/2 cancel
    assert bound.evaluate(ones, numbers).loss == pytest.approx(3.5)


def test_an_own_objective_with_accuracies(tmp_path: Path) -> None:
    """Twice the cross-entropy; 60 images are evaluated in two parts."""
    source = HEAD + LINEAR + FORWARD
    source += "    def loss(self, outputs, targets):\n"
    source += "        return 2 * nn.functional.cross_entropy(outputs, targets)\n"
    bound, plain = bind(build(tmp_path, source)), HEAD + LINEAR + FORWARD
    (tmp_path / "plain").mkdir()
    usual = bind(build(tmp_path / "plain", plain))
    labels = np.arange(60) % 3
    twice, once = (one.evaluate(images(60), labels) for one in (bound, usual))
    assert twice.loss == pytest.approx(2 * once.loss, rel=1e-5)
    assert twice.metrics == once.metrics


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("outputs", r"found Net.loss returned \(2, 3\), expected the mean loss"),
        ("3.0", r"found Net.loss returned a float, expected the mean loss"),
        ("torch.zeros(())", r"found Net.loss returned \(\), expected the mean loss"),
        ("outputs.nothing", r"net.py:\d+: model: found Net.loss on .* raised AttributeError"),
    ],
)
def test_an_invalid_objective(tmp_path: Path, returned: str, expected: str) -> None:
    own = f"    def loss(self, outputs, targets):\n        return {returned}\n"
    with pytest.raises(ScenarioError, match=expected):
        build(tmp_path, HEAD + LINEAR + FORWARD + own)
