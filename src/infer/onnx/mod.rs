//! The model as an ONNX file.
//!
//! Input `idx`, int64 [batch, length], length from 1 to the block; output `logits`, f32 [batch, length,
//! vocab]. Both extents are free. Weights stand under PyTorch's names in PyTorch's layout, the head is the
//! token table. Narrow weights are widened in the graph: all arithmetic is f32, which every runtime has.
//! The metadata hold the vocabulary (a string of its characters, by token) and the model's extents.

mod graph;
mod proto;

use super::export::{Kind, Tensor};
use crate::models::char_gpt::CharGpt;
use prost::Message;
use proto::*;

/// Version of the operators: Split with `num_outputs` and LayerNormalization came with 17 and 18.
const OPSET: i64 = 23;
/// Version of the file format that came with it.
const IR: i64 = 11;
/// Protobuf's limit of a message, in bytes.
const LIMIT: usize = i32::MAX as usize;

/// The bytes of the file, for weights in the model's order.
///
/// # Errors
/// More than a protobuf message can hold.
pub fn encode(
    model: &CharGpt,
    vocab: &[char],
    kind: Kind,
    weights: Vec<Tensor>,
) -> Result<Vec<u8>, String> {
    let bytes: usize = weights.iter().map(|w| w.bytes.len()).sum();
    if bytes > LIMIT - (16 << 20) {
        return Err(format!(
            "its weights are {bytes} bytes, an ONNX file holds at most 2 GiB; export --safetensors instead"
        ));
    }
    let mut b = Builder::default();
    b.weights(kind, weights);
    b.model(model);
    let meta = |key: &str, value: String| StringStringEntryProto {
        key: key.into(),
        value,
    };
    let file = ModelProto {
        ir_version: IR,
        producer_name: "isobit".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        doc_string:
            "A char-level GPT: idx [batch, length] of characters to logits of the next ones. \
                     The vocabulary is in the metadata."
                .into(),
        graph: Some(b.finish(model)),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: OPSET,
        }],
        metadata_props: vec![
            meta("vocabulary", vocab.iter().collect()),
            meta("block", model.block.to_string()),
            meta("n_layer", model.n_layer.to_string()),
            meta("n_head", model.n_head.to_string()),
            meta("n_embd", model.n_embd.to_string()),
        ],
    };
    Ok(file.encode_to_vec())
}

/// A graph under construction. Values are names.
#[derive(Default)]
struct Builder {
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    /// Prefix of the names of new values.
    scope: String,
    /// Whether weights are read by their widened values.
    widened: bool,
}

impl Builder {
    /// Adds an operation with one result, named after its scope.
    fn op(&mut self, op: &str, input: &[&str], attribute: Vec<AttributeProto>) -> String {
        self.ops(op, input, attribute, 1).remove(0)
    }

    fn ops(
        &mut self,
        op: &str,
        input: &[&str],
        attribute: Vec<AttributeProto>,
        results: usize,
    ) -> Vec<String> {
        let name = format!("{}{}_{}", self.scope, op.to_lowercase(), self.nodes.len());
        let output: Vec<String> = (0..results)
            .map(|i| match i {
                0 => name.clone(),
                _ => format!("{name}_{i}"),
            })
            .collect();
        self.nodes.push(NodeProto {
            input: input.iter().map(|s| s.to_string()).collect(),
            output: output.clone(),
            name,
            op_type: op.into(),
            attribute,
        });
        output
    }

    /// A row of integers.
    fn ints(&mut self, name: &str, values: &[i64]) -> String {
        let raw_data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(name, vec![values.len() as i64], DataType::Int64, raw_data)
    }

    /// A single integer.
    fn int(&mut self, name: &str, value: i64) -> String {
        let raw_data = value.to_le_bytes().to_vec();
        self.constant(name, vec![], DataType::Int64, raw_data)
    }

    /// A single f32.
    fn float(&mut self, name: &str, value: f32) -> String {
        let raw_data = value.to_le_bytes().to_vec();
        self.constant(name, vec![], DataType::Float, raw_data)
    }

    fn constant(
        &mut self,
        name: &str,
        dims: Vec<i64>,
        data_type: DataType,
        raw_data: Vec<u8>,
    ) -> String {
        self.constants.push(TensorProto {
            dims,
            data_type: data_type as i32,
            name: name.into(),
            raw_data,
        });
        name.into()
    }

    /// The weights, and for narrow ones their values in f32 under `<name>.f32`.
    fn weights(&mut self, kind: Kind, weights: Vec<Tensor>) {
        let stored = match kind {
            Kind::Fp32 => DataType::Float,
            Kind::Bf16 => DataType::Bfloat16,
            Kind::Fp16 => DataType::Float16,
        };
        for w in weights {
            let dims = w.dims.iter().map(|&d| d as i64).collect();
            self.constant(&w.name, dims, stored, w.bytes);
            if kind != Kind::Fp32 {
                self.nodes.push(NodeProto {
                    input: vec![w.name.clone()],
                    output: vec![format!("{}.f32", w.name)],
                    name: format!("widen.{}", w.name),
                    op_type: "Cast".into(),
                    attribute: vec![int("to", DataType::Float as i64)],
                });
            }
        }
        self.widened = kind != Kind::Fp32;
    }

    /// A weight as an f32 value.
    fn weight(&self, name: &str) -> String {
        let end = if self.widened { ".f32" } else { "" };
        format!("{name}{end}")
    }

    fn finish(self, model: &CharGpt) -> GraphProto {
        let param = |name: &str| Extent::Param(name.into());
        let info = |name: &str, elem: DataType, extents: Vec<Extent>| {
            let dim = extents.into_iter().map(|e| Dimension { value: Some(e) });
            ValueInfoProto {
                name: name.into(),
                r#type: Some(TypeProto {
                    tensor_type: Some(TensorType {
                        elem_type: elem as i32,
                        shape: Some(TensorShapeProto { dim: dim.collect() }),
                    }),
                }),
            }
        };
        let rows = || vec![param("batch"), param("length")];
        let mut logits = rows();
        logits.push(Extent::Value(model.vocab as i64));
        GraphProto {
            node: self.nodes,
            name: "char-gpt".into(),
            initializer: self.constants,
            input: vec![info("idx", DataType::Int64, rows())],
            output: vec![info("logits", DataType::Float, logits)],
        }
    }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: kind as i32,
        ..AttributeProto::default()
    }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        i,
        ..attribute(name, AttributeType::Int)
    }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto {
        ints: ints.to_vec(),
        ..attribute(name, AttributeType::Ints)
    }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto {
        f,
        ..attribute(name, AttributeType::Float)
    }
}
