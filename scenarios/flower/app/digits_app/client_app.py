"""The client: trains on its own part of the digits."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import arrays_of, data, model_with

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Pass once over the images of this partition, and return the new parameters."""
    images, labels = data(test=False)
    first, step = context.node_config["partition-id"], context.node_config["num-partitions"]
    images, labels = images[first::step], labels[first::step]
    model = model_with(
        message.content["arrays"].to_numpy_ndarrays(),
        hidden=context.run_config["hidden"],
        learning_rate=context.run_config["learning-rate"],
    )
    model.partial_fit(images, labels)
    metrics = {"train_loss": float(model.loss_), "num-examples": len(labels)}
    content = {"arrays": ArrayRecord(arrays_of(model)), "metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(content), reply_to=message)
