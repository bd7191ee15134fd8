//! Names with `*`: families (`h.*.ln_1.weight`, where `*` is an index) and user patterns (where `*`
//! matches any string).

use alloc::string::String;
use alloc::vec::Vec;

/// Does `name` match `pattern`? `*` matches any string, `?` any character.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (p, n) = (pattern.as_bytes(), name.as_bytes());
    let (mut i, mut j) = (0, 0);
    // Where to resume after the last star on a mismatch: the star then matches one more character.
    let mut retry: Option<(usize, usize)> = None;
    while j < n.len() {
        match p.get(i) {
            Some(b'*') => {
                retry = Some((i, j));
                i += 1;
            }
            Some(c) if *c == b'?' || n.get(j) == Some(c) => {
                i += 1;
                j += 1;
            }
            _ => match retry {
                Some((star, at)) => {
                    retry = Some((star, at + 1));
                    i = star + 1;
                    j = at + 1;
                }
                None => return false,
            },
        }
    }
    p.get(i..).is_some_and(|rest| rest.iter().all(|c| *c == b'*'))
}

/// Number of members of a family; `None` on overflow.
pub(crate) fn family_size(extents: &[u64]) -> Option<u64> {
    extents.iter().try_fold(1u64, |n, e| n.checked_mul(*e))
}

/// Name of member `index` (row-major over `extents`) of the family `pattern`.
pub(crate) fn member_name(pattern: &str, extents: &[u64], index: u64) -> String {
    let mut indices = Vec::with_capacity(extents.len());
    let mut rest = index;
    for e in extents.iter().rev() {
        indices.push(rest.checked_rem(*e).unwrap_or(0));
        rest = rest.checked_div(*e).unwrap_or(0);
    }
    let mut name = String::new();
    for (i, part) in pattern.split('*').enumerate() {
        if i > 0 {
            let index = indices.pop().unwrap_or(0);
            name.push_str(&alloc::format!("{index}"));
        }
        name.push_str(part);
    }
    name
}
