"""The server: averages what the clients return, and tests the average."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import arrays_of, data, model_with

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of FedAvg; clients train, the server evaluates."""
    config = context.run_config
    images, labels = data(test=True)

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        model = model_with(arrays.to_numpy_ndarrays(), hidden=config["hidden"])
        return MetricRecord({"accuracy": float(model.score(images, labels))})

    strategy = FedAvg(
        fraction_train=config["fraction-train"],
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=config["min-nodes"],
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(arrays_of(model_with(None, hidden=config["hidden"]))),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
