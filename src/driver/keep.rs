//! Name patterns; `--keep`, which excludes weights from packing by such patterns, and the report on
//! precision losses of packed weights.
//!
//! In: the patterns of `--keep`, the parameters of a model, a weights file. Out: names of
//! parameters, and a table of errors.

use super::session::{CommandError, Session, tell};
use crate::interface::{matches, meant_by};
use crate::ir::{self, ParamDecl};
use crate::lowering::tile::lower;
use crate::runtime::weights::{WeightsFile, members};
use crate::tile::{self, Cpu, Loss, PackedWeight, WeightChoice, WeightFormat};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// Maximum number of lines in the table without `--verbose`.
const MAX_LINES: usize = 12;

/// The parameters whose names match one of the patterns.
///
/// # Errors
/// A pattern that matches no parameter, with a suggestion.
pub(super) fn parameters(patterns: &[String], params: &[ParamDecl]) -> Result<BTreeSet<String>, String> {
    let mut kept = BTreeSet::new();
    for pattern in patterns {
        let mut found = params.iter().filter(|p| matches(pattern, &p.name)).peekable();
        if found.peek().is_none() {
            return Err(format!("`--keep {pattern}` matches no parameter{}", meant(pattern, params)));
        }
        kept.extend(found.map(|p| p.name.clone()));
    }
    Ok(kept)
}

/// A suggestion for a pattern without matches.
fn meant(pattern: &str, params: &[ParamDecl]) -> String {
    let of_array =
        |p: &&ParamDecl| !p.counts.is_empty() && members(&p.name, &p.counts).iter().any(|n| matches(pattern, n));
    if let Some(p) = params.iter().find(of_array) {
        return format!(": the layers of an array are packed alike; use `{}`", p.name);
    }
    meant_by(pattern, params)
}

/// Prints the error of each quantised or rounded parameter relative to the one in the file.
pub(super) fn tell_losses(
    s: &mut Session,
    graph: &ir::Module,
    level: Cpu,
    choice: &WeightChoice,
    weights: &Path,
    verbose: bool,
) -> Result<(), CommandError> {
    s.stage("compare packed weights");
    let verified = ir::verify(graph).map_err(|errors| errors.to_string());
    let packed = verified
        .and_then(lower)
        .and_then(|tiles| tile::packed_weights(&tiles, level, choice))
        .map_err(|complaint| super::bugs::bug("lowering to tile IR", &complaint, None))?;
    // The file is readable, since the model has opened it.
    let Ok(file) = WeightsFile::open(weights) else { return Ok(()) };
    let mut rows = Vec::new();
    for weight in &packed {
        let Some(p) = ir::param_named(&graph.params, &weight.name) else { continue };
        let mut loss = Loss::default();
        for tensor in members(&p.name, &p.counts).iter().filter_map(|name| file.tensor(name)) {
            weight.lose(&tensor.to_f32(), &mut loss);
        }
        rows.push((weight, loss));
    }
    tell(&table(&mut rows, verbose));
    Ok(())
}

/// Formats the table, with the largest errors first; without `verbose` it is truncated.
fn table(rows: &mut [(&PackedWeight, Loss)], verbose: bool) -> String {
    let Some((first, _)) = rows.first() else { return String::new() };
    let format = match first.format {
        WeightFormat::F32 => "f32",
        WeightFormat::Bf16 => "bf16",
        WeightFormat::Int8 => "int8",
        WeightFormat::Int4 => "int4",
    };
    rows.sort_by(|(a, x), (b, y)| y.mean().total_cmp(&x.mean()).then_with(|| a.name.cmp(&b.name)));
    let shown = if verbose { rows.len() } else { rows.len().min(MAX_LINES) };
    let width = rows.iter().take(shown).map(|(w, _)| w.name.chars().count()).max().unwrap_or(0);
    let mut text =
        format!("weights packed as {format}, errors as shares of the weights (root mean squares; the largest):\n");
    for (weight, loss) in rows.iter().take(shown) {
        let _ = writeln!(text, "  {:<width$}  {:.2e}  {:.2e}", weight.name, loss.mean(), loss.most());
    }
    if shown < rows.len() {
        let _ = writeln!(text, "  ... and {} with less (`--verbose` shows all)", rows.len() - shown);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Dim, Elem, TensorType};

    #[test]
    fn patterns_choose_parameters() {
        let param = |(name, counts): (&str, &[u64])| ParamDecl {
            name: name.to_string(),
            counts: counts.to_vec(),
            ty: TensorType::new(Elem::F32, vec![Dim::from(2)]),
        };
        let params: Vec<ParamDecl> =
            [("h.*.gate.weight", &[2u64][..]), ("h.*.up.weight", &[2]), ("wte.weight", &[])].map(param).into();
        let kept = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            parameters(&patterns, &params).map(|kept| kept.into_iter().collect::<Vec<String>>())
        };
        let names = |list: &[&str]| Ok(list.iter().map(ToString::to_string).collect::<Vec<String>>());
        assert_eq!(kept(&[]), names(&[]));
        assert_eq!(kept(&["*.gate.*"]), names(&["h.*.gate.weight"]));
        assert_eq!(kept(&["h.*.gate.weight", "wte.weight"]), names(&["h.*.gate.weight", "wte.weight"]));
        assert_eq!(kept(&["*", "wte*"]), names(&["h.*.gate.weight", "h.*.up.weight", "wte.weight"]));
        for (pattern, said) in [
            ("h.1.gate.*", ": the layers of an array are packed alike; use `h.*.gate.weight`"),
            ("wte.wieght", "; did you mean `wte.weight`?"),
            ("*.gates.*", "; did you mean `*.gate.*`?"),
            ("router", "; there is `h.*.gate.weight`, `h.*.up.weight`, `wte.weight`"),
            ("", "; there is `h.*.gate.weight`, `h.*.up.weight`, `wte.weight`"),
        ] {
            assert_eq!(kept(&["wte*", pattern]), Err(format!("`--keep {pattern}` matches no parameter{said}")));
        }
        assert_eq!(
            parameters(&["x".into()], &[]),
            Err("`--keep x` matches no parameter: the model has none".to_string())
        );
    }
}
