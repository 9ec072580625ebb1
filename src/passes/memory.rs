//! Assignment of buffers to physical slots.
//!
//! A temporary's slot is free again after its last reader; the best fitting free slot is taken, ties
//! going to the smaller number. Inputs, outputs and states keep slots of their own.

use crate::plan::{BufId, Class, Plan};
use std::collections::HashSet;

/// Gives every buffer its slot; without `share`, one of its own.
pub fn assign_slots(mut plan: Plan, share: bool) -> Plan {
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
            if plan.bufs[d.0 as usize].class == Class::Temp && last[d.0 as usize] == n && share {
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

/// Maps a program's slots onto buffers that other programs use at other times: the largest slot first,
/// each to the smallest unused buffer that holds it, else to a new one at the end of `pool` (in words).
/// Returns the buffer of each slot.
pub fn share(pool: &mut Vec<usize>, slots: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|&s| (std::cmp::Reverse(slots[s]), s));
    let mut used = vec![false; pool.len()];
    let mut map = vec![0; slots.len()];
    for s in order {
        let fits = (0..used.len()).filter(|&i| !used[i] && pool[i] >= slots[s]);
        map[s] = fits.min_by_key(|&i| (pool[i], i)).unwrap_or_else(|| {
            pool.push(slots[s]);
            used.push(false);
            pool.len() - 1
        });
        used[map[s]] = true;
    }
    map
}

/// Bytes that an executor allocates for programs loaded in this order: their states, once each, and the
/// slots that they share.
pub fn session_bytes(plans: &[&Plan]) -> u64 {
    let mut names = HashSet::new();
    let states = plans.iter().flat_map(|p| p.states());
    let states: usize = states
        .filter(|b| names.insert(&b.name))
        .map(|b| b.words())
        .sum();
    let mut pool = Vec::new();
    for p in plans {
        share(&mut pool, &p.slots);
    }
    4 * (states + pool.iter().sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_share_buffers_that_fit() {
        let mut pool = Vec::new();
        assert_eq!(share(&mut pool, &[10, 30, 20]), [2, 0, 1]);
        assert_eq!(share(&mut pool, &[5, 25]), [2, 0]);
        assert_eq!(share(&mut pool, &[31, 1, 1, 1]), [3, 2, 1, 0]);
        assert_eq!(pool, [30, 20, 10, 31]);
    }
}
