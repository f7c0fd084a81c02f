"""Generated from protos/ by protos/generate.py; not written by hand."""
