"""A Flower app: handwritten digits, learned together with scikit-learn."""
