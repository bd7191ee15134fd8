//! Masks and biases of attention scores: arguments, and formulas over positions in their many forms.

use attnc::shape::Dim;

use super::{Gen, Var};

impl Gen {
    /// The scores under a mask, or as they are.
    pub(super) fn mask(
        &mut self,
        scores: &str,
        x: &Var,
        queries: &Dim,
        keys: &Dim,
        heads: bool,
        outer: &str,
    ) -> String {
        let same_lead = |arg: &Var, own: usize| {
            arg.rest == x.rest
                && arg.rank() == x.rank() - 2 + own
                && arg.shape[..arg.rank() - own] == x.shape[..x.rank() - 2]
        };
        let h = if heads { "1 " } else { "" };
        // A finite score of a masked key counts.
        let fill = self.random.pick(&["-inf", "-inf", "-inf", "-1e9", "-2", "0.5"]);
        match self.random.below(14) {
            0 => format!("where(causal({queries}, {keys}), {scores}, {fill})"),
            // A mask is a formula over positions.
            4 => {
                let op = self.random.pick(&["<=", "<", ">=", ">"]);
                let shift = self.random.pick(&["", " + 1", " - 1", " * 2"]);
                let rows = format!("rearrange(iota({queries}), \"s -> s 1\"){shift}");
                format!("where(iota({keys}) {op} {rows}, {scores}, {fill})")
            }
            5 => {
                let rows = format!("rearrange(iota({queries}), \"s -> s 1\")");
                format!("where(abs(iota({keys}) - {rows}) > 2 and not causal({queries}, {keys}), {fill}, {scores})")
            }
            6 => format!("{scores} * 0.5"),
            1 => {
                let keep = self.vars.iter().find(|v| v.name == "keep" && same_lead(v, 1) && v.last() == Some(keys));
                match keep {
                    Some(_) => format!("where(rearrange(keep, \"{outer}s -> {outer}{h}1 s\"), {scores}, {fill})"),
                    None => scores.to_string(),
                }
            }
            2 => {
                let fits = |v: &&Var| v.name == "bias" && same_lead(v, 2) && v.last() == Some(keys) && queries == keys;
                match self.vars.iter().find(fits) {
                    Some(_) => format!("{scores} + rearrange(bias, \"{outer}s t -> {outer}{h}s t\")"),
                    None => scores.to_string(),
                }
            }
            3 => format!("where(causal({queries}, {keys}), {scores} * 0.5, -1e4)"),
            7..=10 => format!("where({}, {scores}, {fill})", self.visible(queries, keys)),
            11 => self.biased(scores, queries, keys, heads),
            _ => scores.to_string(),
        }
    }
    /// A formula over positions that says which keys a query sees.
    fn visible(&mut self, queries: &Dim, keys: &Dim) -> String {
        let (i, j) = (format!("rearrange(iota({queries}), \"s -> s 1\")"), format!("iota({keys})"));
        let w = self.random.below(4);
        match self.random.below(9) {
            // A window, global tokens, the ends aligned.
            0 => format!("abs({i} - {j}) <= {w}"),
            1 => format!("abs({i} - {j}) <= {w} or {j} < 2"),
            2 => format!("{j} <= {i} + ({keys} - ({queries})) and {j} > {i} - {w} + ({keys} - ({queries}))"),
            3 => format!("causal({queries}, {keys}) or {j} < {w}"),
            // Blocks, documents, every third key.
            4 => format!("{i} / 3 == {j} / 3"),
            5 => format!("{i} % 2 == {j} % 2 or {i} == {j}"),
            6 => format!("not ({j} % 3 == {w}) and {j} / 4 <= {i} / 4"),
            7 => format!("maximum({i}, {j}) < 5 or minimum({i}, {j}) >= 5"),
            _ => format!("bitwise_and(bitwise_xor({i}, {j}), 1) == 0"),
        }
    }

    /// The scores with what is added by distance, or with a soft cap.
    fn biased(&mut self, scores: &str, queries: &Dim, keys: &Dim, heads: bool) -> String {
        let (i, j) = (format!("rearrange(iota({queries}), \"s -> s 1\")"), format!("iota({keys})"));
        match self.random.below(4) {
            0 if heads => {
                let slopes = "rearrange(pow(2.0, -cast<f32>(iota(H))), \"h -> h 1 1\")";
                format!("{scores} - {slopes} * cast<f32>(abs({i} - {j}))")
            }
            1 => format!("{scores} - 0.25 * cast<f32>(minimum(abs({i} - {j}), 3))"),
            2 => format!("2 * tanh({scores} / 2)"),
            _ => format!("{scores} - 0.125 * cast<f32>(abs({i} - {j}))"),
        }
    }
}
