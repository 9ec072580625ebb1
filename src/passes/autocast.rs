//! Precision as a pass. It stands before `grad`, so that the gradient of a cast returns in the master's
//! type.
//!
//! The one policy of this version is full precision, under which every operation keeps its type and the
//! program is returned as it is. Low-precision schemes are not offered by the command line yet.

use crate::graph::NodeId;

/// A precision policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Everything in f32.
    #[default]
    Full,
}

/// Rewrites the graph that `outputs` need under a policy.
pub fn autocast(policy: Policy, outputs: &[NodeId]) -> Vec<NodeId> {
    match policy {
        Policy::Full => outputs.to_vec(),
    }
}
