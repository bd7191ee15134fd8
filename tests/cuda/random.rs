//! Random programs in libraries for GPUs: the plans' code, the runtime with its memory and its graphs, the kernels. Several calls in one
//! session compute what the program means, within the bounds of running error analysis, and fail where the interpreter fails.

use std::env::var_os;
use std::ops::Range;

use attnc::tile::GpuArch;

use crate::standin::{self, printed, with_driver};
use crate::{compiled, meant};

/// Programs for each kind of code; `ATTNC_SEEDS` says otherwise, `ATTNC_FIRST_SEED` where to start.
const PROGRAMS: u64 = 20;

fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = number("ATTNC_FIRST_SEED").unwrap_or(5000);
    first..first + number("ATTNC_SEEDS").unwrap_or(PROGRAMS)
}

/// Runs in a process that has a driver: a library looks for it in the environment, so this process is started again with the stand-in there.
fn compute_what_they_mean(test: &str, settings: &str, kind: GpuArch) {
    if !standin::is_real_gpu() && var_os("ATTNC_CUDA_LIB").is_none() {
        let own = std::env::current_exe().expect("this program");
        let said = printed(with_driver(own, settings).args(["--exact", test, "--nocapture"]));
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    meant::compute_what_they_mean(seeds(), &|_| {
        let load = move |module: &_, params: &_, folder: &_| compiled::load_on_gpu(kind, module, params, folder);
        (kind.name().to_string(), Box::new(load))
    });
}

#[test]
fn random_programs_on_ampere() {
    compute_what_they_mean("random::random_programs_on_ampere", "capability=80", GpuArch::Sm80);
}

#[test]
fn random_programs_on_hopper() {
    let settings = "latest,capability=90,seed=5";
    compute_what_they_mean("random::random_programs_on_hopper", settings, GpuArch::Sm90a);
}
