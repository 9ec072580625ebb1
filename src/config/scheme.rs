//! The precision schemes by name.

use crate::error::Error;
use crate::passes::autocast::{BF16, BF16_KAHAN, BF16_SR, FP16, FP32, MIXED, Policy};
use serde::{Deserialize, Serialize};

/// A precision scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Everything in binary32.
    Fp32,
    /// Weights and optimizer in binary32, products in bf16.
    Mixed,
    /// Everything stored in bf16.
    Bf16,
    /// Everything stored in bf16, weights and moments rounded stochastically.
    #[serde(rename = "bf16-sr")]
    Bf16Sr,
    /// Everything stored in bf16, with a compensation term for each weight.
    #[serde(rename = "bf16-kahan")]
    Bf16Kahan,
    /// Weights and optimizer in binary32, products in binary16 under dynamic loss scaling.
    Fp16,
}

/// The schemes of this version, in the order in which they run.
pub const SCHEMES: &[Scheme] = &[
    Scheme::Fp32,
    Scheme::Mixed,
    Scheme::Bf16,
    Scheme::Bf16Sr,
    Scheme::Bf16Kahan,
    Scheme::Fp16,
];

/// What runs where nothing else is asked for: the comparison of the seed document.
pub const DEFAULT_SCHEMES: &[Scheme] = &[Scheme::Fp32, Scheme::Mixed, Scheme::Bf16];

impl Scheme {
    /// Its policy.
    pub fn policy(self) -> Policy {
        match self {
            Scheme::Fp32 => FP32,
            Scheme::Mixed => MIXED,
            Scheme::Bf16 => BF16,
            Scheme::Bf16Sr => BF16_SR,
            Scheme::Bf16Kahan => BF16_KAHAN,
            Scheme::Fp16 => FP16,
        }
    }

    /// Its name on the command line and in file names.
    pub fn name(self) -> &'static str {
        self.policy().name
    }

    /// A scheme by name.
    ///
    /// # Errors
    /// An unknown name; the message lists the known ones.
    pub fn parse(name: &str) -> Result<Scheme, Error> {
        let known = || {
            SCHEMES
                .iter()
                .map(|s| s.name())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let found = SCHEMES.iter().copied().find(|s| s.name() == name.trim());
        found.ok_or_else(|| {
            Error::Usage(format!(
                "unknown scheme `{name}`: this version has {}",
                known()
            ))
        })
    }
}
