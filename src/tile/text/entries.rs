//! Entry points in the text form: the interface of a plan.
//!
//! ```text
//! entry @forward("x" batch: f32[batch, S, 64]) -> (batch f32[batch, S, 64]) {
//!   doc "Attention."
//!   where S <= 1024                                                                     loc(61:9)
//!   tap "h.*.weights"[12]                 : f32[12, S, S]
//!   sets states
//! }
//! ```

use super::forms::{Read, fail, form, only};
use crate::diagnostics::codes::ir as codes;
use crate::interface::{ArgDecl, EntryDecl, ResultDecl, TapDecl};
use crate::irtext::{ExprKind, Line, Phrase, Statement, quoted, read};
use crate::shape::Dim;
use crate::source::Loc;

/// The lines of an entry point, each with the location that follows it.
pub(crate) fn lines(e: &EntryDecl) -> Vec<(String, Loc)> {
    let batch = |is: bool| if is { "batch" } else { "" };
    let arg = |a: &ArgDecl| {
        let marked = if a.batch { format!("{} {}", quoted(&a.name), batch(true)) } else { quoted(&a.name) };
        format!("{marked}: {}", a.ty)
    };
    let args: Vec<String> = e.args.iter().map(arg).collect();
    let results: Vec<String> =
        e.results.iter().map(|r| format!("{} {}", batch(r.batch), r.ty).trim_start().to_string()).collect();
    let none = Loc::default();
    let mut out = vec![(format!("entry @{}({}) -> ({}) {{", e.name, args.join(", "), results.join(", ")), none)];
    if !e.doc.is_empty() {
        out.push((format!("  doc {}", quoted(&e.doc)), none));
    }
    out.extend(e.checks.iter().map(|(fact, loc)| (format!("  where {fact}"), *loc)));
    for tap in &e.taps {
        let extents: Vec<String> = tap.extents.iter().map(Dim::to_string).collect();
        let extents = if extents.is_empty() { String::new() } else { format!("[{}]", extents.join(", ")) };
        let line = format!("  {:<37} : {}", format!("tap {}{extents}", quoted(&tap.name)), tap.ty);
        out.push((line, none));
    }
    if e.sets_states {
        out.push(("  sets states".to_string(), none));
    }
    out.push(("}".to_string(), none));
    out
}

/// Parses an entry point; `loc` parses the location after a line.
pub(super) fn entry(s: &Statement, loc: &dyn Fn(&Statement) -> Read<Loc>) -> Read<EntryDecl> {
    let head = only(&s.args, s.place)?;
    let ExprKind::Call(name, args) = &head.kind else {
        return fail(codes::FORM, head.place, "an entry point's head is `@name(arguments) -> (results)`");
    };
    let ExprKind::Global(name) = &name.kind else {
        return fail(codes::FORM, name.place, "an entry point's name begins with `@`");
    };
    let mut e = EntryDecl { name: name.clone(), ..EntryDecl::default() };
    for a in args {
        e.args.push(argument(a)?);
    }
    let outs = only(&s.outs, s.place)?;
    let ExprKind::Paren(outs) = &outs.kind else {
        return fail(codes::FORM, outs.place, "the results `(types)` belong here");
    };
    for r in outs {
        e.results.push(result(r)?);
    }
    for line in s.body.iter().flatten() {
        match line {
            Line::Block(b) => return fail(codes::STRUCTURE, b.place, "an entry point has no blocks; its plan has"),
            Line::Statement(s) => detail(&mut e, s, loc)?,
        }
    }
    Ok(e)
}

fn detail(e: &mut EntryDecl, s: &Statement, loc: &dyn Fn(&Statement) -> Read<Loc>) -> Read<()> {
    match s.head.as_str() {
        "doc" => e.doc = form(read::text(only(&s.args, s.place)?))?.to_string(),
        "where" => e.checks.push((form(read::fact(only(&s.args, s.place)?))?, loc(s)?)),
        "tap" => {
            let at = only(&s.args, s.place)?;
            let (name, extents) = match &at.kind {
                ExprKind::Index(name, extents) => (form(read::text(name))?, form(read::dims(extents))?),
                _ => (form(read::text(at))?, Vec::new()),
            };
            let ty = form(read::tensor_type(only(&s.types, s.place)?))?;
            e.taps.push(TapDecl { name: name.to_string(), extents, ty });
        }
        "sets" => match read::word(only(&s.args, s.place)?) {
            Ok("states") => e.sets_states = true,
            _ => return fail(codes::FORM, s.place, "an entry point `sets states`"),
        },
        other => {
            let message =
                format!("`{other}` does not stand in an entry point: it has `doc`, `where`, `tap`, `sets states`");
            return fail(codes::STRUCTURE, s.place, message);
        }
    }
    Ok(())
}

/// Parses `"name": type` or `"name" batch: type`.
fn argument(p: &Phrase) -> Read<ArgDecl> {
    let (name, batch) = match p.terms.as_slice() {
        [name] => (name, false),
        [name, batch] if read::word(batch) == Ok("batch") => (name, true),
        _ => return fail(codes::FORM, p.place, "an argument is `\"name\": type`, with `batch` after the name"),
    };
    let [ty] = p.types.as_slice() else { return fail(codes::FORM, p.place, "the argument's type is missing") };
    Ok(ArgDecl { name: form(read::text(name))?.to_string(), ty: form(read::tensor_type(ty))?, batch })
}

/// Parses `type` or `batch type`.
fn result(p: &Phrase) -> Read<ResultDecl> {
    match p.terms.as_slice() {
        [ty] => Ok(ResultDecl { ty: form(read::tensor_type(ty))?, batch: false }),
        [batch, ty] if read::word(batch) == Ok("batch") => {
            Ok(ResultDecl { ty: form(read::tensor_type(ty))?, batch: true })
        }
        _ => fail(codes::FORM, p.place, "a result is `type` or `batch type`"),
    }
}
