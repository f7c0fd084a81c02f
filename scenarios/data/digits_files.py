"""Write scikit-learn's digits in the formats of the examples beside this file.

    python scenarios/data/digits_files.py [FOLDER]

FOLDER, by default that of this file, gets `digits-leaf`, `digits-huggingface` and `digits-parquet`.
The first two name a writer of each digit, which is made up: the data set in its order, cut into
equal parts.
"""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sklearn.datasets import load_digits

WRITERS = 40
STATE = {
    "_fingerprint": "digits",
    "_format_columns": None,
    "_format_kwargs": {},
    "_format_type": None,
    "_output_all_columns": False,
}
HALVES = {"train": slice(0, 1437), "test": slice(1437, None)}


def write_leaf(folder, images, labels, writers):
    """Write files of LEAF: lists of 64 numbers from 0 to 1, user by user."""
    folder.mkdir(parents=True)
    data = {
        name: {
            "x": (images[writers == name].reshape(-1, 64) / 16).tolist(),
            "y": labels[writers == name].tolist(),
        }
        for name in np.unique(writers).tolist()
    }
    counts = [len(one["y"]) for one in data.values()]
    content = {"users": list(data), "num_samples": counts, "user_data": data}
    (folder / "all_data_0.json").write_text(json.dumps(content))


def write_huggingface(folder, images, labels, writers):
    """Write a split as `save_to_disk` of the package datasets does: PNG files in a column."""
    folder.mkdir(parents=True)
    features = {
        "image": {"_type": "Image"},
        "label": {"names": [str(digit) for digit in range(10)], "_type": "ClassLabel"},
        "writer": {"dtype": "string", "_type": "Value"},
    }
    columns = {
        "image": [{"bytes": png(image), "path": None} for image in images],
        "label": labels,
        "writer": writers,
    }
    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema(
        [("image", picture), ("label", pa.int64()), ("writer", pa.string())],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    name = "data-00000-of-00001.arrow"
    with pa.ipc.new_stream(str(folder / name), schema) as stream:
        stream.write_table(pa.table(columns, schema), max_chunksize=100)
    state = {"_data_files": [{"filename": name}], "_split": folder.name, **STATE}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def png(image):
    """Return a picture of 8x8 pixels, 0 to 16, as PNG."""
    file = io.BytesIO()
    Image.fromarray((image * 15).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_parquet(file, images, labels):
    """Write rows of 8 lists of 8 bytes, and the label as a word."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    kind = pa.list_(pa.list_(pa.uint8()))
    pixels = pa.array((images * 15).astype(np.uint8).tolist(), kind)
    pq.write_table(pa.table({"pixels": pixels, "label": [words[one] for one in labels]}), file)


def main(folder):
    """Write all three."""
    digits = load_digits()
    names = np.array([f"writer{number:02}" for number in range(WRITERS)])
    writers = names[np.arange(len(digits.target)) * WRITERS // len(digits.target)]
    (folder / "digits-parquet").mkdir(parents=True)
    for split, part in HALVES.items():
        images, labels = digits.images[part], digits.target[part]
        write_leaf(folder / "digits-leaf" / split, images, labels, writers[part])
        write_huggingface(folder / "digits-huggingface" / split, images, labels, writers[part])
        write_parquet(folder / "digits-parquet" / f"{split}.parquet", images, labels)
    listed = json.dumps({"splits": list(HALVES)})
    (folder / "digits-huggingface" / "dataset_dict.json").write_text(listed)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
