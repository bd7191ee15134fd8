//! Expands descriptions of kernels into loops.
//!
//! In: a description and a kernel's parameters. Out: the unscheduled kernel. Lowering generates
//! kernels of these kinds from their descriptions alone, the IR text shows the description
//! (`computes(scan, axis=1)` in the kernel's head), and the scheduler reads it instead of
//! recognising loops. IR text may claim anything, so the verifier expands the description again and
//! requires the same body ([`difference`]). A scheduled kernel has no description: the scheduler
//! chose its loops.

use super::attention::Attention;
use super::encode::{self, Encoding};
use super::text::{ErrorLocation, lines_of_kernel};
use super::{BufferType, Compute, Kernel, State, matmul, scan, simplify, sort, tiling};

impl Compute {
    /// The kernel that computes this on buffers of these types. `None` if the types do not fit, or
    /// for matmul and attention, whose epilogues are not part of the description.
    pub(crate) fn expand(&self, name: &str, types: &[BufferType]) -> Option<Kernel> {
        let kernel = match (self, types) {
            (Compute::Copy, [from, to]) if from.shape == to.shape => Some(tiling::copy_kernel(name, from, to)),
            (Compute::Scan { axis }, [x, out]) => scan::cumsum(name, x, *axis, out),
            (Compute::Sort { descending, site }, [x, out]) => sort::few(name, x, *descending, out, *site),
            (Compute::Sort { descending, site }, [x, room, out]) => sort::all(name, x, *descending, room, out, *site),
            (Compute::Copy | Compute::Scan { .. } | Compute::Sort { .. }, _) => None,
            (Compute::Matmul(_) | Compute::Attention(_), _) => None,
        };
        Some(Kernel { compute: Some(self.clone()), ..kernel? })
    }
}

/// The first place where an unscheduled kernel differs from the expansion of its description.
pub(crate) fn difference(kernel: &Kernel) -> Option<(ErrorLocation, String)> {
    let compute = kernel.compute.as_ref()?;
    let again = match compute {
        Compute::Attention(attention) => {
            Attention::epilogue(kernel).and_then(|e| e.after(kernel, |kb| attention.write(kb)))
        }
        Compute::Matmul(matmul) => {
            matmul::epilogue(kernel).and_then(|e| matmul::rewrite(kernel, &e, matmul.clone(), kernel.buffer_types()?))
        }
        Compute::Copy | Compute::Scan { .. } | Compute::Sort { .. } => {
            kernel.buffer_types().and_then(|types| compute.expand(&kernel.name, &types))
        }
    };
    let Some(mut again) = again else {
        return Some((
            ErrorLocation::Head,
            "the kernel's description (`computes`) does not fit its parameters or its body".into(),
        ));
    };
    simplify(&mut again.body);
    let how = Encoding { name: false, places: false, state: State::Unscheduled };
    again.compute.clone_from(&kernel.compute);
    if encode::kernel(&again, how) == encode::kernel(kernel, how) {
        return None;
    }
    // The first instruction that differs, with values numbered in order in both kernels.
    let lines = |kernel: &Kernel| {
        let mut kernel = kernel.clone();
        kernel.body.forget_names();
        let mut lines = lines_of_kernel(&kernel);
        let insts: Vec<_> = kernel.body.insts().map(|(_, inst, _)| inst).collect();
        insts.into_iter().map(|inst| (inst, lines.remove(&inst).unwrap_or_default())).collect::<Vec<_>>()
    };
    let (own, wanted) = (lines(kernel), lines(&again));
    let differs = own.iter().zip(&wanted).find(|((_, own), (_, wanted))| own != wanted);
    Some(match differs {
        Some(((inst, own), (_, wanted))) => {
            // Without the operands, whose names differ between the bodies.
            let operation = |line: &str| {
                let line = line.split_once(" = ").map_or(line, |(_, line)| line);
                line.split('%').next().unwrap_or_default().trim_end().to_string()
            };
            let (own, wanted) = (operation(own), operation(wanted));
            let other = if own == wanted { " of other operands or another type" } else { "" };
            (ErrorLocation::Inst(*inst), format!("the kernel's description (`computes`) has `{wanted}`{other} here"))
        }
        None if own.len() != wanted.len() => {
            let count = wanted.len();
            (
                ErrorLocation::Head,
                format!("the kernel's description (`computes`) has {count} instructions, its body {}", own.len()),
            )
        }
        None => {
            (ErrorLocation::Head, "the kernel's grid, modes or jumps differ from its description (`computes`)".into())
        }
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
            [(&sums, vec![x.clone(), x.clone()]), (&sort, vec![x.clone(), kept]), (&sort, vec![x, room, order])]
        {
            let mut kernel = compute.expand("k", &types).unwrap();
            simplify(&mut kernel.body);
            let sites = vec!["a".to_string(), "b".to_string()];
            let module = Module { sites, kernels: vec![kernel], ..Module::default() };
            let printed = text::print(&module);
            assert!(read(&printed).kernels[0].compute.as_ref() == Some(compute), "{printed}");
            assert_eq!(text::print(&read(&printed)), printed);
            assert!(verify(&read(&printed)).is_ok());
            for (truth, lie) in lies.clone().filter(|(truth, _)| printed.contains(truth)) {
                let complaint = verify(&read(&printed.replacen(truth, lie, 1))).unwrap_err().to_string();
                assert!(complaint.contains("description (`computes`)"), "{lie}: {complaint}");
            }
        }
        // A description that does not fit its buffers has no expansion.
        assert!(
            sums.expand("k", &[]).is_none()
                && sort.expand("k", &[buffer(Elem::F32, &[]), buffer(Elem::I32, &[])]).is_none()
        );
    }
}
