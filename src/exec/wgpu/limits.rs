//! Whether a plan fits a device: asked before anything is allocated.

use super::super::bytes;
use super::adapter::Limits;
use super::buffers::bytes_for;
use super::pipelines::Facts;
use crate::plan::{Class, Plan, Step};

/// Checks the buffers of a plan.
///
/// # Errors
/// The first that is too large, with sizes and what to do.
pub(super) fn buffers(plan: &Plan, limits: &Limits, device: &str) -> Result<(), String> {
    let used: std::collections::HashSet<u32> = plan
        .steps
        .iter()
        .flat_map(|s| s.reads.iter().chain(&s.writes))
        .map(|b| b.0)
        .collect();
    for (i, b) in plan.bufs.iter().enumerate() {
        let size = bytes_for(b.words() as u64, false);
        let what = || {
            format!(
                "the {} program's {} {} is {}",
                plan.name,
                match b.class {
                    Class::State => "state",
                    Class::Input => "input",
                    Class::Output => "output",
                    Class::Temp => "buffer",
                },
                b.name,
                bytes(size)
            )
        };
        if size > limits.buffer {
            return Err(format!(
                "{}, {device} allocates at most {} at once; take a smaller model, batch or block, or another device",
                what(),
                bytes(limits.buffer)
            ));
        }
        if used.contains(&(i as u32)) && size > limits.binding {
            return Err(format!(
                "{}, a kernel on {device} sees at most {} of a buffer; take a smaller model, batch or block, or another device",
                what(),
                bytes(limits.binding)
            ));
        }
    }
    Ok(())
}

/// Checks one step: its bindings, its launch, its uniform block, its workgroup.
///
/// # Errors
/// What the device cannot do, with sizes.
pub(super) fn step(
    step: &Step,
    facts: &Facts,
    workgroups: u64,
    limits: &Limits,
) -> Result<(), String> {
    let bound = (step.reads.len() + step.writes.len()) as u32;
    if bound > limits.storage_buffers {
        return Err(format!(
            "it binds {bound} buffers, a kernel there binds at most {}",
            limits.storage_buffers
        ));
    }
    let uniform = uniform_bytes(step, facts.uniform_bytes);
    if uniform > limits.uniform {
        return Err(format!(
            "its uniform block is {}, at most {} fit there",
            bytes(uniform),
            bytes(limits.uniform)
        ));
    }
    let invocations: u64 = facts.workgroup.iter().map(|&x| x as u64).product();
    let each = facts
        .workgroup
        .iter()
        .zip(&limits.workgroup)
        .all(|(x, most)| x <= most);
    if invocations > limits.invocations as u64 || !each {
        return Err(format!(
            "its workgroup is {:?}, {invocations} invocations; there it is at most {:?} and {}",
            facts.workgroup, limits.workgroup, limits.invocations
        ));
    }
    if facts.workgroup_bytes > limits.workgroup_memory {
        return Err(format!(
            "its workgroups share {}, there they share at most {}",
            bytes(facts.workgroup_bytes),
            bytes(limits.workgroup_memory)
        ));
    }
    let most = limits.workgroups as u64;
    if workgroups > most * most {
        return Err(format!(
            "it needs {workgroups} workgroups, a launch there has at most {most} x {most}; take a smaller batch or block"
        ));
    }
    Ok(())
}

/// Bytes of a step's uniform block: its words, padded to what the shader declares.
pub(super) fn uniform_bytes(step: &Step, declared: u64) -> u64 {
    (4 * step.params.words.len() as u64)
        .next_multiple_of(16)
        .max(declared)
        .max(16)
}

#[cfg(test)]
mod tests {
    use super::super::super::grid;

    #[test]
    fn grids_cover_without_much_surplus() {
        assert_eq!(grid(0, 65535), [0, 1, 1]);
        assert_eq!(grid(65535, 65535), [65535, 1, 1]);
        for n in [65536u64, 65537, 131070, 131071, 1 << 20, 65535 * 65535] {
            let [x, y, z] = grid(n, 65535);
            let total = x as u64 * y as u64;
            assert!(x <= 65535 && y <= 65535 && z == 1);
            assert!(total >= n && total - n < y as u64, "{n}: {x} x {y}");
        }
    }
}
