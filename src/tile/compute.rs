//! What a kernel computes, for the kinds of kernels whose loops one expansion writes.
//!
//! In: a description and the types of a kernel's buffers. Out: the unscheduled kernel. Lowering makes kernels of these kinds with
//! [`Compute::expand`] alone, the text shows the description in the kernel's head (`computes(scan, axis=1)`), and the schedule reads it
//! instead of recognising loops. A text may claim anything, so the verifier expands the description again and demands the same
//! body ([`is_expanded`]). A scheduled kernel has no description: its loops are the schedule's.

use super::encode::{self, Encoding};
use super::{BufferType, Compute, Kernel, State, scan, simplify, sort};

impl Compute {
    /// The kernel that computes this on buffers of these types; `None` where they do not fit.
    pub(crate) fn expand(self, name: &str, types: &[BufferType]) -> Option<Kernel> {
        let kernel = match (self, types) {
            (Compute::Scan { axis }, [x, out]) => scan::cumsum(name, x, axis, out),
            (Compute::Sort { descending, site }, [x, out]) => sort::few(name, x, descending, out, site),
            (Compute::Sort { descending, site }, [x, room, out]) => sort::all(name, x, descending, room, out, site),
            (Compute::Scan { .. } | Compute::Sort { .. }, _) => None,
        };
        Some(Kernel { compute: Some(self), ..kernel? })
    }
}

/// Is a kernel the expansion of its description, if it has one?
pub(super) fn is_expanded(kernel: &Kernel) -> bool {
    let Some(compute) = kernel.compute else { return true };
    let how = Encoding { name: false, places: false, state: State::Unscheduled };
    let again = kernel.buffer_types().and_then(|types| compute.expand(&kernel.name, &types));
    again.is_some_and(|mut again| {
        simplify(&mut again.body);
        kernel.state == State::Unscheduled && encode::kernel(&again, how) == encode::kernel(kernel, how)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Dim, Elem};
    use crate::source::SourceMap;
    use crate::tile::verify::verify;
    use crate::tile::{Module, row_major, text};

    fn buffer(elem: Elem, shape: &[i64]) -> BufferType {
        let shape: Vec<Dim> = shape.iter().copied().map(Dim::from).collect();
        BufferType { elem, strides: row_major(&shape), shape }
    }

    fn read(source: &str) -> Module {
        text::parse(source, SourceMap::new().add("t.tir", source)).unwrap().module
    }

    #[test]
    fn the_verifier_demands_the_body_of_the_description() {
        let (x, kept) = (buffer(Elem::F32, &[4, 300]), buffer(Elem::I32, &[4, 5]));
        let (room, order) = (buffer(Elem::I32, &[4, 2, 300]), buffer(Elem::I32, &[4, 300]));
        let (sums, sort) = (Compute::Scan { axis: 1 }, Compute::Sort { descending: true, site: 0 });
        let lies = [
            ("scan, axis=1", "scan, axis=0"),
            ("scan, axis=1", "scan, axis=7"),
            ("descending=true", "descending=false"),
            ("site=0)", "site=1)"),
        ];
        let lies = lies.into_iter().chain([("sort, descending=true, site=0", "scan, axis=0")]);
        for (compute, types) in
            [(sums, vec![x.clone(), x.clone()]), (sort, vec![x.clone(), kept]), (sort, vec![x, room, order])]
        {
            let mut kernel = compute.expand("k", &types).unwrap();
            simplify(&mut kernel.body);
            let sites = vec!["a".to_string(), "b".to_string()];
            let module = Module { sites, kernels: vec![kernel], ..Module::default() };
            let printed = text::print(&module);
            assert!(printed.contains(&format!("computes({compute})")), "{printed}");
            assert_eq!(text::print(&read(&printed)), printed);
            assert!(verify(&read(&printed)).is_ok());
            for (truth, lie) in lies.clone().filter(|(truth, _)| printed.contains(truth)) {
                let complaint = verify(&read(&printed.replacen(truth, lie, 1))).unwrap_err().to_string();
                assert!(complaint.contains("not the expansion of its description"), "{lie}: {complaint}");
            }
        }
        // What fits no buffers has no expansion.
        assert!(
            sums.expand("k", &[]).is_none()
                && sort.expand("k", &[buffer(Elem::F32, &[]), buffer(Elem::I32, &[])]).is_none()
        );
    }
}
