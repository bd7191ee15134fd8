//! Field declarations of other languages: `proj = nn.Linear(D, D)`, `w =
//! nn.Parameter(torch.zeros(D))`, `param w: f32[D]`.

use super::words::Words;
use super::{Inside, between};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::syntax as codes;
use crate::shape::Elem;
use crate::source::Span;
use crate::syntax::token::{Lexeme, Token};

impl<'a> Words<'_, 'a> {
    /// `name: type`
    pub(super) fn is_field(&self, at: usize) -> bool {
        matches!(self.token(at), Some(Token::Ident(_))) && self.token(at + 1) == Some(Token::Colon)
    }

    /// `param w: f32[D, D]`
    pub(super) fn word_before_field(&mut self, at: usize) -> Option<usize> {
        let (word, name) = (self.lexemes[at].span, self.lexemes[at + 1].span);
        let written = self.text.get(word.range()).unwrap_or("param");
        self.diagnostics.push(
            Diagnostic::error(codes::FOREIGN_WORD, format!("`{written}` does not stand before a field"))
                .at(word, "")
                .help("a parameter is declared by only its name and type: `w: f32[D, D]`")
                .fix(Span::new(word.file, word.start, name.start), ""),
        );
        Some(at + 1)
    }

    /// Reports a field, and suggests the declaration `shown`.
    fn declared(&mut self, at: usize, close: usize, shown: String) {
        let whole = self.lexemes[at].span.to(self.lexemes[close].span);
        self.diagnostics.push(
            Diagnostic::error(codes::FOREIGN_WORD, "a field must be declared with its type")
                .at(self.lexemes[at + 1].span, "")
                .help(format!("write `{shown}`"))
                .fix(whole, shown),
        );
    }

    /// Repeats tokens of the text at another position.
    fn again(&mut self, from: usize, to: usize) {
        let list: Vec<Lexeme<'a>> = self.lexemes.get(from..to).unwrap_or_default().to_vec();
        self.out.extend(list.into_iter().map(|lexeme| Lexeme { tainted: true, ..lexeme }));
    }

    /// `w = nn.Parameter(torch.zeros(O, I))`: a field whose extents are the arguments of the
    /// innermost call.
    fn parameter(&mut self, at: usize, (open, close): (usize, usize)) -> Option<usize> {
        let span = self.lexemes[at + 1].span;
        let inner = (open..close).rev().find(|i| self.token(*i) == Some(Token::LParen))?;
        let end = self.scan.closers.get(inner).copied().flatten()?;
        let is_length = |token| {
            matches!(token, Token::Ident(_) | Token::Int(_) | Token::Comma | Token::Star | Token::Slash | Token::Plus)
        };
        let lengths = self.lexemes.get(inner + 1..end)?;
        if !lengths.iter().all(|lexeme| is_length(lexeme.token)) {
            self.diagnostics.push(
                Diagnostic::error(codes::FOREIGN_WORD, "a field must be declared with its type")
                    .at(span, "")
                    .help("a parameter is declared by only its name and type: `w: f32[D, D]`"),
            );
            return Some(close + 1);
        }
        let name = self.text.get(self.lexemes[at].span.range()).unwrap_or_default();
        let shape = if lengths.is_empty() { "" } else { between(self.text, self.lexemes, inner + 1, end - 1) };
        let has_shape = !shape.is_empty();
        let shown = if has_shape { format!("{name}: f32[{shape}]") } else { format!("{name}: f32") };
        self.declared(at, close, shown);
        self.again(at, at + 1);
        self.push(Token::Colon, span);
        self.push(Token::Elem(Elem::F32), span);
        if has_shape {
            self.push(Token::LBracket, self.lexemes[inner].span);
            self.again(inner + 1, end);
            self.push(Token::RBracket, self.lexemes[end].span);
        }
        Some(close + 1)
    }

    /// `blocks = nn.ModuleList([Block(D) for _ in range(L)])`: an array of layers.
    fn list(&mut self, at: usize, (open, close): (usize, usize)) -> Option<usize> {
        let find = |from: usize, wanted: &dyn Fn(Token<'_>) -> bool| {
            (from..close).find(|i| self.token(*i).is_some_and(wanted))
        };
        let span = self.lexemes[at + 1].span;
        let parts = find(open, &|token| token == Token::For).and_then(|for_| {
            let args = find(open + 1, &|token| token == Token::LParen).filter(|i| *i < for_)?;
            let args_end = self.scan.closers.get(args).copied().flatten().filter(|end| *end < for_)?;
            let range = find(for_, &|token| token == Token::Ident("range"))?;
            let range_end = self.scan.closers.get(range + 1).copied().flatten()?;
            let is_path = self
                .lexemes
                .get(open + 1..args)?
                .iter()
                .all(|l| matches!(l.token, Token::LBracket | Token::Ident(_) | Token::Dot));
            (is_path && args_end > args + 1 && range_end > range + 2).then_some((args, args_end, range, range_end))
        });
        let Some((args, args_end, range, range_end)) = parts else {
            self.diagnostics.push(
                Diagnostic::error(codes::FOREIGN_WORD, "a field must be declared with its type")
                    .at(span, "")
                    .help("an array of layers is `blocks: [Block<D>; L]`; layers of several kinds are a tuple, `(A<D>, B<D>)`"),
            );
            return Some(close + 1);
        };
        let text = |from, to| between(self.text, self.lexemes, from, to);
        let name = text(at, at);
        let shown = format!(
            "{name}: [{}<{}>; {}]",
            text(args - 1, args - 1),
            text(args + 1, args_end - 1),
            text(range + 2, range_end - 1)
        );
        self.declared(at, close, shown);
        self.again(at, at + 1);
        self.push(Token::Colon, span);
        self.push(Token::LBracket, span);
        self.again(args - 1, args);
        self.push(Token::Lt, span);
        self.again(args + 1, args_end);
        self.push(Token::Gt, span);
        self.push(Token::Semi, span);
        self.again(range + 2, range_end);
        self.push(Token::RBracket, span);
        Some(close + 1)
    }

    /// `proj = nn.Linear(D, D)` among the fields
    pub(super) fn field(&mut self, at: usize) -> Option<usize> {
        let equals = self.lexemes[at + 1].span;
        if !matches!(self.token(at + 2), Some(Token::Ident(_))) {
            return None;
        }
        let end = self.call_of_layer(at + 2)?;
        let name = self.text.get(self.lexemes[at].span.range()).unwrap_or_default();
        let (open, close) = end;
        let path = between(self.text, self.lexemes, at + 2, open - 1);
        let args = self.generics(open, close);
        let last = path.rsplit('.').next().unwrap_or(path);
        match last {
            "Parameter" | "Buffer" | "param" | "add_weight" => return self.parameter(at, (open, close)),
            "ModuleList" => return self.list(at, (open, close)),
            _ => {}
        }
        let shown = if args.is_empty() { format!("{name}: {last}") } else { format!("{name}: {last}<{args}>") };
        let whole = self.lexemes[at].span.to(self.lexemes[close].span);
        self.diagnostics.push(
            Diagnostic::error(codes::FOREIGN_WORD, "a field must be declared with its type")
                .at(equals, "")
                .help(format!("write `{shown}`"))
                .fix(whole, shown),
        );
        self.out.push(self.lexemes[at]);
        self.push(Token::Colon, equals);
        self.out.push(self.lexemes[open - 1]);
        self.brackets.push(close);
        self.push(Token::Lt, self.lexemes[open].span);
        Some(open + 1)
    }

    /// `proj: nn.Linear(D, D)`
    pub(super) fn layer_type(&mut self, at: usize) -> Option<usize> {
        if self.scan.place(at).holds != Inside::Members {
            return None;
        }
        let (open, close) = self.call_of_layer(at)?;
        let path = between(self.text, self.lexemes, at, open - 1);
        let last = path.rsplit('.').next().unwrap_or(path);
        let args = self.generics(open, close);
        let shown = if args.is_empty() { last.to_string() } else { format!("{last}<{args}>") };
        let whole = self.lexemes[at].span.to(self.lexemes[close].span);
        self.diagnostics.push(
            Diagnostic::error(codes::FOREIGN_WORD, "the generics of a layer are written in `<..>`")
                .at(self.lexemes[open].span.to(self.lexemes[close].span), "")
                .help(format!("write `{shown}`"))
                .fix(whole, shown),
        );
        self.out.push(self.lexemes[open - 1]);
        self.brackets.push(close);
        self.push(Token::Lt, self.lexemes[open].span);
        Some(open + 1)
    }

    /// The parentheses of `path.Name(..)`.
    fn call_of_layer(&self, at: usize) -> Option<(usize, usize)> {
        let mut last = at;
        while self.token(last + 1) == Some(Token::Dot) && matches!(self.token(last + 2), Some(Token::Ident(_))) {
            last += 2;
        }
        let open = last + 1;
        (self.token(open) == Some(Token::LParen)).then_some(())?;
        let close = self.scan.closers.get(open).copied().flatten()?;
        (close > open + 1).then_some((open, close))
    }

    fn generics(&self, open: usize, close: usize) -> &'a str {
        between(self.text, self.lexemes, open + 1, close - 1)
    }
}
