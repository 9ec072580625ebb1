//! Assignment of buffers to physical slots.
//!
//! A temporary's slot is free again after its last reader; the best fitting free slot is taken, ties
//! going to the smaller number. Inputs, outputs and states keep slots of their own.

use crate::plan::{BufId, Class, Plan};

/// Gives every buffer its slot.
pub fn assign_slots(mut plan: Plan) -> Plan {
    let mut last = vec![usize::MAX; plan.bufs.len()];
    for (n, s) in plan.steps.iter().enumerate() {
        s.reads
            .iter()
            .chain(&s.writes)
            .for_each(|b| last[b.0 as usize] = n);
    }
    let mut slots: Vec<usize> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    for b in &mut plan.bufs {
        if matches!(b.class, Class::Input | Class::Output) {
            b.slot = slots.len();
            slots.push(b.words());
        }
    }
    let mut placed = vec![false; plan.bufs.len()];
    for (n, s) in plan.steps.iter().enumerate() {
        for w in &s.writes {
            let b = &mut plan.bufs[w.0 as usize];
            if b.class == Class::Temp && !std::mem::replace(&mut placed[w.0 as usize], true) {
                b.slot = take(&mut free, &mut slots, b.words());
            }
        }
        let mut dead: Vec<BufId> = s.reads.iter().chain(&s.writes).copied().collect();
        dead.sort();
        dead.dedup();
        for d in dead {
            if plan.bufs[d.0 as usize].class == Class::Temp && last[d.0 as usize] == n {
                free.push(plan.bufs[d.0 as usize].slot);
            }
        }
    }
    plan.slots = slots;
    plan
}

/// The smallest free slot that fits, else a new one.
fn take(free: &mut Vec<usize>, slots: &mut Vec<usize>, words: usize) -> usize {
    let best = (0..free.len())
        .filter(|&i| slots[free[i]] >= words)
        .min_by_key(|&i| (slots[free[i]], free[i]));
    match best {
        Some(i) => free.swap_remove(i),
        None => {
            slots.push(words);
            slots.len() - 1
        }
    }
}
