//! Arguments of a call: matches them with parameters, and reports mismatches.
//!
//! In: arguments as written, then as values. Out: one for each parameter, with the callee's
//! dimensions bound.

use super::axes::{Axis, Misfit, Shape};
use super::body::Body;
use super::items::FunctionItem;
use super::matching::{Matching, Unfit};
use super::misfit::type_misfit;
use super::typed::{Expr, Tensor};
use super::values::{Ty, TypedExpr, coerce};
use crate::diagnostics::codes::{names, shapes};
use crate::diagnostics::{Diagnostic, did_you_mean};
use crate::shape::Elem;
use crate::source::Span;
use crate::syntax::ast;

/// Arguments in the order of the parameters.
pub(super) struct Slots<'e> {
    /// One for each parameter; `None` if it was omitted.
    pub(super) given: Vec<Option<&'e ast::Arg>>,
    /// Arguments with other names, if the operation allows them.
    pub(super) extra: Vec<&'e ast::Arg>,
}

impl Body<'_> {
    /// Puts arguments in the order of the parameters. The last `optional` parameters may be
    /// omitted; if `extra` is set, names that are not parameters are collected.
    pub(super) fn slots<'e>(
        &mut self,
        what: &str,
        params: &[&str],
        optional: usize,
        extra: bool,
        args: &'e [ast::Arg],
        span: Span,
    ) -> Option<Slots<'e>> {
        let mut slots = Slots { given: vec![None; params.len()], extra: Vec::new() };
        let mut fine = true;
        let mut next = 0;
        for arg in args {
            let index = match &arg.name {
                None => {
                    next += 1;
                    Some(next - 1)
                }
                Some(name) => params.iter().position(|param| *param == name.name),
            };
            // A name in a pattern may equal the name of an argument that is passed by position.
            let index = match (&arg.name, index) {
                (Some(_), Some(at)) if extra && slots.given.get(at).is_some_and(Option::is_some) => None,
                (_, index) => index,
            };
            match (index, &arg.name) {
                (Some(index), _) if index < params.len() => match slots.given.get_mut(index) {
                    Some(slot) if slot.is_none() => *slot = Some(arg),
                    _ => {
                        let name = params.get(index).copied().unwrap_or_default();
                        self.diagnostics.push(
                            Diagnostic::error(
                                shapes::ARGUMENT_COUNT,
                                format!("the argument `{name}` of `{what}` is given twice"),
                            )
                            .at(arg.span, "given again"),
                        );
                        fine = false;
                    }
                },
                (Some(_), _) => {
                    if fine {
                        let positional = args.iter().filter(|arg| arg.name.is_none()).count();
                        self.diagnostics.push(
                            Diagnostic::error(
                                shapes::ARGUMENT_COUNT,
                                format!("`{what}` takes {}, found {positional}", count(params.len(), "argument")),
                            )
                            .at(arg.span, format!("its signature is `{what}({})`", params.join(", "))),
                        );
                    }
                    fine = false;
                }
                (None, _) if extra => slots.extra.push(arg),
                (None, name) => {
                    let (name, at) = name.as_ref().map_or(("", arg.span), |name| (name.name.as_str(), name.span));
                    let mut diagnostic =
                        Diagnostic::error(names::UNKNOWN_ARGUMENT, format!("`{what}` has no argument `{name}`"))
                            .at(at, format!("its signature is `{what}({})`", params.join(", ")));
                    if let Some(near) = did_you_mean(name, params.iter().copied()) {
                        diagnostic = diagnostic.near(at, near);
                    } else if matches!(name, "dim" | "dims") && params.contains(&"axis") {
                        diagnostic = diagnostic.near(at, "axis");
                    } else if matches!(name, "keepdim" | "keepdims") && params.contains(&"keep") {
                        diagnostic = diagnostic.near(at, "keep");
                    }
                    self.diagnostics.push(diagnostic);
                    fine = false;
                }
            }
        }
        let needed = params.len().saturating_sub(optional);
        let missing: Vec<String> = params
            .iter()
            .zip(&slots.given)
            .take(needed)
            .filter(|(_, slot)| slot.is_none())
            .map(|(param, _)| format!("`{param}`"))
            .collect();
        if fine && !missing.is_empty() {
            self.diagnostics.push(
                Diagnostic::error(shapes::ARGUMENT_COUNT, format!("`{what}` is missing {}", missing.join(" and ")))
                    .at(span, format!("its signature is `{what}({})`", params.join(", "))),
            );
            fine = false;
        }
        if !fine {
            self.arguments_alone(args);
        }
        fine.then_some(slots)
    }

    /// Matches the arguments with the parameters; `None` on a mismatch. Omitted arguments stay
    /// omitted.
    pub(super) fn match_arguments(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        values: Vec<Option<TypedExpr>>,
        matching: &mut Matching,
    ) -> Option<Vec<Option<Expr>>> {
        let mut args = Vec::with_capacity(values.len());
        let mut fine = true;
        let mut spans = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            spans.push(value.as_ref().map(TypedExpr::span).unwrap_or_default());
            let Some(value) = value else {
                args.push(None);
                continue;
            };
            let Some(Some(declared)) = item.params.get(index) else {
                fine = false;
                continue;
            };
            match self.match_argument(item, what, index, declared, value, matching, &spans) {
                Some(expr) => args.push(Some(expr)),
                None => fine = false,
            }
        }
        if fine && let Err((index, unfit)) = matching.finish(&self.scope.facts) {
            let span = spans.get(index).copied().unwrap_or_default();
            if let (Some(Some(declared)), Some(Some(expr))) = (item.params.get(index), args.get(index)) {
                let given = Ty::from_type(&expr.ty);
                self.unfit(item, what, index, declared, &given, span, &unfit, matching, &spans);
            }
            fine = false;
        }
        fine.then_some(args)
    }

    #[expect(clippy::too_many_arguments, reason = "everything that the message about one argument needs")]
    pub(super) fn match_argument(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        index: usize,
        declared: &Tensor,
        value: TypedExpr,
        matching: &mut Matching,
        spans: &[Span],
    ) -> Option<Expr> {
        let span = value.span();
        let given = match &value.ty {
            Ty::Error => return None,
            Ty::Tensor(tensor) => tensor.clone(),
            Ty::Dim(_) | Ty::Float => Tensor { elem: declared.elem, shape: Shape::scalar() },
            Ty::Tuple(_) => {
                let shown = value.ty.to_string();
                self.not_a_tensor(&shown, span);
                return None;
            }
        };
        let ty = value.ty.clone();
        let name = item.ast.params.get(index).map_or("", |param| param.name.name.as_str());
        let place = item.ast.params.get(index).map_or(span, |param| param.ty.span);
        if given.elem != declared.elem {
            let mut diagnostic = Diagnostic::error(
                shapes::ARGUMENT_ELEM,
                format!("`{what}` expects {} elements for `{name}`, found {}", declared.elem, given.elem),
            )
            .at(span, ty.to_string())
            .also(place, "declared here");
            diagnostic = match self.text(span) {
                Some(text) => diagnostic.help(format!("convert them: `cast<{}>({text})`", declared.elem)),
                None => diagnostic.help(format!("convert them: `cast<{}>(..)`", declared.elem)),
            };
            self.diagnostics.push(diagnostic);
            return None;
        }
        if let Err(unfit) = matching.argument(index, &declared.shape, &given.shape, &self.scope.facts) {
            self.unfit(item, what, index, declared, &ty, span, &unfit, matching, spans);
            return None;
        }
        match coerce(value, declared.elem) {
            Ok(expr) => Some(expr),
            Err(why) => {
                self.diagnostics.push(
                    Diagnostic::error(
                        shapes::LITERAL,
                        format!("`{what}` expects {} for `{name}`: {why}", declared.elem),
                    )
                    .at(span, "")
                    .also(place, "declared here"),
                );
                None
            }
        }
    }

    /// Reports an argument of the wrong type.
    #[expect(clippy::too_many_arguments, reason = "everything that the message about one argument needs")]
    pub(super) fn unfit(
        &mut self,
        item: &FunctionItem<'_>,
        what: &str,
        index: usize,
        declared: &Tensor,
        given: &Ty,
        span: Span,
        unfit: &Unfit,
        matching: &Matching,
        spans: &[Span],
    ) {
        let name = item.ast.params.get(index).map_or("", |param| param.name.name.as_str());
        let place = item.ast.params.get(index).map_or(span, |param| param.ty.span);
        let before = matching.before(index);
        let known = |symbol: &str| before.dims.get(symbol).map(|(dim, _)| dim.clone());
        let rest = [Axis::Rest];
        let wanted = Tensor {
            elem: declared.elem,
            shape: declared.shape.substitute(&rest, &known).unwrap_or_else(|| declared.shape.clone()),
        };
        let diagnostic =
            Diagnostic::error(shapes::ARGUMENT_SHAPE, format!("`{what}` expects {wanted} for `{name}`, found {given}"))
                .at(span, given.to_string())
                .also(place, format!("declared as {declared} here"));
        let diagnostic = match unfit {
            Unfit::Rank => type_misfit(diagnostic, given, &Ty::Tensor(wanted), &self.scope),
            Unfit::Dim { wanted: dim, given: other, fixed_by, .. } => {
                let mut diagnostic = diagnostic.note(self.scope.differ(other, dim));
                if let Some(by) = fixed_by.and_then(|by| spans.get(by)) {
                    diagnostic = diagnostic.also(*by, format!("{dim} was bound by this argument"));
                }
                if let Ty::Tensor(given) = given
                    && let Some(form) = self.repeated(given, &wanted)
                {
                    let text = self.written(span);
                    let form = form.replace("{x}", &text);
                    diagnostic = diagnostic
                        .help(format!("arguments are not broadcast; repeat the axes of length 1: `{form}`"))
                        .fix(span, form);
                }
                if let Ty::Tensor(given) = given
                    && let Some((front, back)) = given.shape.split_last(2)
                {
                    let transposed = front.followed_by(back.into_iter().rev());
                    let mut again = matching.before(index);
                    if again.argument(index, &declared.shape, &transposed, &self.scope.facts).is_ok() {
                        diagnostic = diagnostic.help("`.T` swaps the last two axes and would match");
                    }
                }
                self.scope.label_origins(diagnostic, [other, dim])
            }
            Unfit::Lead(misfit) => {
                let by = spans.get(matching.rest_from).copied().unwrap_or(span);
                let diagnostic = diagnostic
                    .also(by, "`..` was bound by this argument")
                    .note("`..` is the same list of dimensions in all arguments, broadcast");
                match misfit {
                    Misfit::Dims { left, right, .. } => {
                        let (left, right) = (left.clone(), right.clone());
                        let diagnostic = diagnostic.note(self.scope.differ(&right, &left));
                        self.scope.label_origins(diagnostic, [&left, &right])
                    }
                    Misfit::Rest => diagnostic,
                }
            }
            Unfit::NotWhole { dividend, divisor, .. } => {
                let diagnostic = diagnostic.note(format!("it is not known that {dividend} is a multiple of {divisor}"));
                let diagnostic = self.scope.help_divide(diagnostic, dividend, divisor);
                self.scope.label_origins(diagnostic, [dividend, divisor])
            }
            Unfit::Rest => {
                diagnostic.note("the number of axes in `..` is not known, so it cannot match a single dimension")
            }
        };
        self.diagnostics.push(diagnostic);
    }
}

impl Body<'_> {
    /// How to broadcast a tensor to a shape whose dimensions are known here, with `{x}` for the
    /// tensor.
    fn repeated(&self, given: &Tensor, wanted: &Tensor) -> Option<String> {
        let from = wanted.shape.rest().map_or(0, |at| at + 1);
        let tail = Shape { axes: wanted.shape.axes.get(from..)?.to_vec() };
        let known = |axis: &Axis| {
            axis.dim().is_some_and(|dim| dim.symbols().iter().all(|s| self.scope.names.contains_key(&**s)))
        };
        if given.shape.rank() < tail.rank() || !tail.axes.iter().all(known) {
            return None;
        }
        let (_, own) = given.shape.split_last(tail.rank())?;
        let fits = own.iter().zip(&tail.axes).all(|(own, axis)| Some(own) == axis.dim() || own.as_const() == Some(1));
        if !fits {
            return None;
        }
        Some(match given.elem {
            Elem::Bool => format!("{{x}} and full<bool>(true, {tail})"),
            elem => format!("{{x}} + full<{elem}>(0, {tail})"),
        })
    }
}

/// `1 argument`, `2 arguments`
pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
