"""Runs an ONNX model: run.py MODEL, then any number of BATCH LENGTH INPUT OUTPUT.

INPUT holds int64 indices, OUTPUT gets the f32 logits, both little-endian. Prints the metadata as JSON.
"""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
(idx,), (logits,) = session.get_inputs(), session.get_outputs()
assert (idx.name, idx.type, idx.shape) == ("idx", "tensor(int64)", ["batch", "length"]), idx
assert (logits.name, logits.type) == ("logits", "tensor(float)"), logits
assert logits.shape[:2] == ["batch", "length"], logits.shape
runs = sys.argv[2:]
for batch, length, source, target in zip(runs[0::4], runs[1::4], runs[2::4], runs[3::4]):
    x = np.fromfile(source, dtype="<i8").reshape(int(batch), int(length))
    (y,) = session.run(["logits"], {"idx": x})
    assert y.dtype == np.float32 and y.shape == (int(batch), int(length), logits.shape[2]), y.shape
    y.tofile(target)
print(json.dumps(session.get_modelmeta().custom_metadata_map))
