//! Keywords and names of other languages with a counterpart in attn: `def`, `elif`, `return`,
//! `self.w`, `int`.

use super::{Inside, Scan, between, ends_operand, made};
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::shape::Elem;
use crate::source::Span;
use crate::syntax::token::{Lexeme, Token};
use std::collections::BTreeSet;

/// Replaces or removes foreign words.
pub(super) fn translate<'a>(lexemes: Vec<Lexeme<'a>>, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let scan = Scan::new(&lexemes);
    let own = lexemes.windows(2).filter_map(|pair| match (pair[0].token, pair[1].token) {
        (Token::Ident("layer" | "model" | "class") | Token::Fn, Token::Ident(name)) => Some(name),
        _ => None,
    });
    let own: BTreeSet<&str> = own.collect();
    let loops = lexemes.iter().enumerate().filter(|(_, lexeme)| lexeme.token == Token::For);
    let inside = loops.map(|(at, _)| scan.place(at));
    let inside = inside.filter(|place| matches!(place.holds, Inside::Round | Inside::Square | Inside::Indices));
    let comprehensions: BTreeSet<usize> = inside.filter_map(|place| place.open).collect();
    let out = Vec::with_capacity(lexemes.len());
    let mut words = Words {
        text,
        lexemes: &lexemes,
        scan: &scan,
        own,
        out,
        selves: None,
        variance: None,
        has_library: false,
        brackets: Vec::new(),
        comprehensions,
        diagnostics,
    };
    let mut at = 0;
    while at < lexemes.len() {
        at = words.step(at);
    }
    let Words { out, selves, variance, .. } = words;
    for message in [selves, variance].into_iter().flatten() {
        diagnostics.push(message);
    }
    out
}

pub(super) struct Words<'t, 'a> {
    pub(super) text: &'a str,
    pub(super) lexemes: &'t [Lexeme<'a>],
    pub(super) scan: &'t Scan,
    /// Layers and functions of the file, whose names are not foreign words.
    own: BTreeSet<&'a str>,
    pub(super) out: Vec<Lexeme<'a>>,
    /// The diagnostic about `self`, with all its locations.
    selves: Option<Diagnostic>,
    /// The diagnostic about a variable called `var`, with all its locations.
    variance: Option<Diagnostic>,
    /// Was an `import` replaced by `use std.nn`?
    has_library: bool,
    /// Opening brackets that contain a `for`.
    comprehensions: BTreeSet<usize>,
    /// Closing parentheses that are replaced by `>`.
    pub(super) brackets: Vec<usize>,
    pub(super) diagnostics: &'t mut Diagnostics,
}

impl<'a> Words<'_, 'a> {
    pub(super) fn token(&self, at: usize) -> Option<Token<'a>> {
        self.lexemes.get(at).map(|lexeme| lexeme.token)
    }

    fn before(&self, at: usize) -> Option<Token<'a>> {
        self.token(at.checked_sub(1)?)
    }

    fn foreign(&mut self, span: Span, word: &str, help: impl Into<String>) -> Diagnostic {
        Diagnostic::error(codes::FOREIGN_WORD, format!("`{word}` is not a keyword of attn")).at(span, "").help(help)
    }

    pub(super) fn push(&mut self, token: Token<'a>, span: Span) {
        self.out.push(Lexeme { token, span, tainted: true });
    }

    /// Handles a token; returns where to continue.
    fn step(&mut self, at: usize) -> usize {
        let lexeme = self.lexemes[at];
        let place = self.scan.place(at);
        let in_code = matches!(place.holds, Inside::Body | Inside::Block);
        let starts_item = place.starts && matches!(place.holds, Inside::Items | Inside::Members);
        let next = self.token(at + 1);
        let done = match lexeme.token {
            Token::Ident("def" | "func" | "function")
                if (starts_item || self.before(at) == Some(Token::Pub)) && matches!(next, Some(Token::Ident(_))) =>
            {
                self.def(at)
            }
            Token::Ident("class") if starts_item && matches!(next, Some(Token::Ident(_))) => self.class(at),
            Token::Ident("import" | "from") if place.starts && place.holds == Inside::Items => self.import(at),
            Token::Ident("elif") if place.starts => self.elif(at),
            Token::Ident("pass") if place.starts && !self.goes_on(at + 1) => self.pass(at),
            Token::Ident("return") if in_code && place.starts => self.return_(at),
            Token::Ident("self") => self.self_(at),
            Token::Ident(word) if self.in_type(at) && !self.own.contains(word) => {
                self.type_(at, word).or_else(|| self.layer_type(at))
            }
            Token::Ident(_) if self.in_type(at) => self.layer_type(at),
            Token::Ident(_) if in_code && place.starts && next == Some(Token::Colon) => self.annotated(at),
            Token::Ident(_) if place.holds == Inside::Members && place.starts && next == Some(Token::Eq) => {
                self.field(at)
            }
            Token::Ident("param" | "parameter" | "buffer" | "val" | "const") | Token::Let | Token::Var
                if place.holds == Inside::Members && place.starts && self.is_field(at + 1) =>
            {
                self.word_before_field(at)
            }
            // `torch.where(..)`; the type checker has a better message.
            Token::Where if self.before(at) == Some(Token::Dot) && next == Some(Token::LParen) => {
                self.push(Token::Ident("where"), lexeme.span);
                Some(at + 1)
            }
            Token::LBracket | Token::LParen if self.comprehensions.contains(&at) => self.comprehension(at),
            Token::Var => self.var(at),
            Token::RParen if self.brackets.contains(&at) => {
                self.push(Token::Gt, lexeme.span);
                Some(at + 1)
            }
            _ => None,
        };
        done.unwrap_or_else(|| {
            self.out.push(lexeme);
            at + 1
        })
    }

    /// Does the statement continue?
    fn goes_on(&self, at: usize) -> bool {
        !matches!(self.token(at), None | Some(Token::Newline | Token::Semi | Token::RBrace))
    }

    /// `def f(..)`
    fn def(&mut self, at: usize) -> Option<usize> {
        let span = self.lexemes[at].span;
        let word = self.text.get(span.range()).unwrap_or("def");
        if self.token(at + 1) == Some(Token::Ident("__init__")) {
            return self.constructor(at);
        }
        let message = self.foreign(span, word, "functions are declared with `fn`, entry points with `pub fn`");
        let is_member = self.scan.place(at).holds == Inside::Members;
        let public = is_member && self.in_model(at) && self.before(at) != Some(Token::Pub);
        self.diagnostics.push(message.fix(span, if public { "pub fn" } else { "fn" }));
        if public {
            self.push(Token::Pub, Span::new(span.file, span.start, span.start));
        }
        self.push(Token::Fn, span);
        Some(at + 1)
    }

    /// Is it a member of a model?
    fn in_model(&self, at: usize) -> bool {
        let Some(open) = self.scan.place(at).open else { return false };
        (0..open).rev().find_map(|i| match self.token(i) {
            Some(Token::Ident("model")) => Some(true),
            Some(Token::Ident("layer" | "class")) => Some(false),
            _ => None,
        }) == Some(true)
    }

    /// `def __init__(self, ..)`: removed with its body.
    fn constructor(&mut self, at: usize) -> Option<usize> {
        let brace = (at..self.lexemes.len()).find(|i| self.token(*i) == Some(Token::LBrace))?;
        let end = self.scan.closers.get(brace).copied().flatten()?;
        let place = self.lexemes[at].span.to(self.lexemes[at + 1].span);
        let message = Diagnostic::error(codes::FOREIGN_WORD, "a layer has no constructor")
            .at(place, "")
            .help("declare its fields in its braces, with their types: `proj: Linear<D, D>`, `w: f32[D, D]`");
        self.diagnostics.push(message);
        Some(end + 1)
    }

    /// `class A(nn.Module):`
    fn class(&mut self, at: usize) -> Option<usize> {
        let span = self.lexemes[at].span;
        let name = self.lexemes.get(at + 1)?.span;
        let round = self.token(at + 2) == Some(Token::LParen);
        let end = if round { self.scan.closers.get(at + 2).copied().flatten()? } else { at + 1 };
        let mut message = self
            .foreign(span, "class", "write `layer Name<D> { .. }`, or `model Name { .. }` to compile it")
            .fix(span, "layer");
        if round {
            message = message.fix(name.after().to(self.lexemes[end].span), "");
        }
        self.diagnostics.push(message);
        self.push(Token::Ident("layer"), span);
        let name = self.lexemes[at + 1];
        self.out.push(Lexeme { tainted: true, ..name });
        Some(end + 1)
    }

    /// `import torch.nn as nn`
    fn import(&mut self, at: usize) -> Option<usize> {
        let end =
            (at..self.lexemes.len()).find(|i| self.token(*i) == Some(Token::Newline)).unwrap_or(self.lexemes.len());
        let span = self.lexemes[at].span;
        let line = between(self.text, self.lexemes, at, end - 1);
        let whole = Span::new(span.file, span.start, span.start + line.len() as u32);
        let word = self.text.get(span.range()).unwrap_or("import");
        let library = line.contains("nn") && !self.text.contains("use std.nn") && !self.has_library;
        let help = "operations need no import; `use std.nn` imports the layers of the library";
        let message = self.foreign(span, word, help);
        self.diagnostics.push(message.fix(whole, if library { "use std.nn" } else { "" }));
        if library {
            self.has_library = true;
            for token in [Token::Ident("use"), Token::Ident("std"), Token::Dot, Token::Ident("nn"), Token::Newline] {
                self.push(token, span);
            }
        }
        Some(end + usize::from(end < self.lexemes.len()))
    }

    fn elif(&mut self, at: usize) -> Option<usize> {
        let span = self.lexemes[at].span;
        let message = self.foreign(span, "elif", "write `else if`").fix(span, "else if");
        self.diagnostics.push(message);
        self.push(Token::Else, span);
        self.push(Token::If, span);
        Some(at + 1)
    }

    fn pass(&mut self, at: usize) -> Option<usize> {
        let span = self.lexemes[at].span;
        let message = self.foreign(span, "pass", "a block may be empty: `{ }`").fix(span, "");
        self.diagnostics.push(message);
        Some(at + 1)
    }

    /// `return x`: at the end of a function it is replaced by `x`; elsewhere there is no
    /// counterpart.
    fn return_(&mut self, at: usize) -> Option<usize> {
        let lexeme = self.lexemes[at];
        let end = self.scan.end(self.lexemes, at);
        let after = (end..self.lexemes.len()).find(|i| !matches!(self.token(*i), Some(Token::Newline | Token::Semi)));
        let place = self.scan.place(at);
        let is_last = place.holds == Inside::Body && after.is_none_or(|after| self.token(after) == Some(Token::RBrace));
        let help = "the last expression of a function's body is its value";
        let message = self.foreign(lexeme.span, "return", help);
        if !self.goes_on(at + 1) {
            self.diagnostics.push(message);
            self.push(Token::Missing, lexeme.span);
            return Some(at + 1);
        }
        if is_last {
            let start = self.lexemes.get(at + 1).map_or(lexeme.span.end, |lexeme| lexeme.span.start);
            self.diagnostics.push(message.fix(Span::new(lexeme.span.file, lexeme.span.start, start), ""));
            return Some(at + 1);
        }
        let message = message.help("there is no early return; write `if c { a } else { b }` as the last expression");
        self.diagnostics.push(message);
        self.push(Token::Missing, lexeme.span);
        Some(end)
    }

    /// `self.x`, and `self` among the arguments.
    fn self_(&mut self, at: usize) -> Option<usize> {
        let span = self.lexemes[at].span;
        let (change, next) = match self.token(at + 1) {
            Some(Token::Dot) => (span.to(self.lexemes[at + 1].span), at + 2),
            Some(Token::Comma) if self.before(at) == Some(Token::LParen) => {
                let end = self.lexemes.get(at + 2).map_or(span.end, |lexeme| lexeme.span.start);
                (Span::new(span.file, span.start, end), at + 2)
            }
            Some(Token::RParen) if self.before(at) == Some(Token::LParen) => (span, at + 1),
            _ => return None,
        };
        let message = self.selves.take().unwrap_or_else(|| {
            Diagnostic::error(codes::FOREIGN_WORD, "there is no `self`")
                .at(span, "")
                .help("use the fields and functions of a layer by name alone")
        });
        self.selves = Some(message.fix(change, ""));
        Some(next)
    }

    /// Is this the position of a type: after a `:` that is not a slice, or after `->`?
    fn in_type(&self, at: usize) -> bool {
        match self.before(at) {
            Some(Token::Colon) => self.scan.place(at).holds != Inside::Indices,
            Some(Token::Arrow) => true,
            Some(Token::LParen | Token::Comma) => {
                let Some(open) = self.scan.place(at).open else { return false };
                self.token(open) == Some(Token::LParen) && self.before(open) == Some(Token::Arrow)
            }
            Some(Token::Lt) => false,
            _ => false,
        }
    }

    /// `int[S]`, `float`, `Tensor`
    fn type_(&mut self, at: usize, word: &'a str) -> Option<usize> {
        let span = self.lexemes[at].span;
        let mut last = at;
        let mut name = word;
        while self.token(last + 1) == Some(Token::Dot)
            && let Some(Token::Ident(part)) = self.token(last + 2)
        {
            last += 2;
            name = part;
        }
        let span = span.to(self.lexemes[last].span);
        let written = self.text.get(span.range()).unwrap_or(word);
        let has_shape = self.token(last + 1) == Some(Token::LBracket);
        let elem = match name {
            "int" | "int32" => Elem::I32,
            "long" | "int64" => Elem::I64,
            "int8" => Elem::I8,
            "float" | "float32" | "double" | "float64" => Elem::F32,
            "half" | "float16" => Elem::F16,
            "bfloat16" => Elem::BF16,
            "Tensor" | "tensor" | "ndarray" | "Array" | "array" | "FloatTensor" => Elem::F32,
            "LongTensor" | "IntTensor" => Elem::I32,
            _ => return None,
        };
        let is_tensor = name.to_lowercase().ends_with("tensor") || name.to_lowercase().ends_with("array");
        let message = Diagnostic::error(codes::FOREIGN_WORD, format!("`{written}` is not a type of attn")).at(span, "");
        if is_tensor && !has_shape {
            self.diagnostics
                .push(message.help(format!("a type is an element type and its dimensions: `{elem}[S, D]`")));
            self.push(Token::Missing, span);
            return Some(last + 1);
        }
        let shape = if has_shape { self.scan.closers.get(last + 1).copied().flatten() } else { None };
        let shape = shape.map_or("", |closer| between(self.text, self.lexemes, last + 1, closer));
        let list = "the element types are `f32`, `bf16`, `f16`, `i8`, `i32`, `i64` and `bool`";
        self.diagnostics.push(message.help(format!("write `{elem}{shape}`")).note(list).fix(span, elem.name()));
        self.push(Token::Elem(elem), span);
        Some(last + 1)
    }

    /// `y: f32[S] = ..` in a body
    fn annotated(&mut self, at: usize) -> Option<usize> {
        let span = self.lexemes[at].span;
        let end = self.scan.end(self.lexemes, at);
        let equals = (at..end).find(|i| self.token(*i) == Some(Token::Eq))?;
        let head = between(self.text, self.lexemes, at, equals - 1);
        let before = Span::new(span.file, span.start, span.start);
        self.diagnostics.push(
            Diagnostic::error(codes::FOREIGN_WORD, "a new variable must be declared")
                .at(span, "")
                .help(format!("write `let {head} = ..`, or `var` if it is assigned again"))
                .fix(before, "let "),
        );
        self.push(Token::Let, before);
        self.out.push(self.lexemes[at]);
        Some(at + 1)
    }

    /// `[f(t) for t in x]`
    fn comprehension(&mut self, at: usize) -> Option<usize> {
        let close = self.scan.closers.get(at).copied().flatten()?;
        let span = self.lexemes[at].span.to(self.lexemes[close].span);
        self.diagnostics.push(
            Diagnostic::error(codes::FOREIGN_WORD, "there are no comprehensions")
                .at(span, "")
                .help("write elementwise computations on whole tensors: `exp(x)`")
                .help("or fill a variable: `var y = full<f32>(0, [S, D])`, then `for t in 0..S { y[t] = .. }`"),
        );
        self.push(Token::Missing, span);
        Some(close + 1)
    }

    /// `var = ..`, `x / var`: a variable with that name.
    fn var(&mut self, at: usize) -> Option<usize> {
        let span = self.lexemes[at].span;
        let place = self.scan.place(at);
        if place.starts && matches!(self.token(at + 1), Some(Token::Ident(_) | Token::LParen)) {
            return None;
        }
        let is_call = self.token(at + 1) == Some(Token::LParen);
        if is_call || self.before(at) == Some(Token::Dot) {
            // `var(x)`, `x.var(..)`: a function; the type checker has a better message.
            self.push(Token::Ident("var"), span);
            return Some(at + 1);
        }
        let is_name =
            place.starts || matches!(self.before(at), Some(Token::Let | Token::Var)) || self.variance.is_some();
        if !is_name && self.before(at).is_none_or(ends_operand) {
            return None;
        }
        let word = "variance";
        let message = self.variance.take().unwrap_or_else(|| {
            Diagnostic::error(codes::RESERVED_WORD, "`var` is reserved and cannot be a name")
                .at(span, "")
                .help(format!("choose another name, such as `{word}`"))
        });
        let adds_let = place.starts && self.token(at + 1) == Some(Token::Eq);
        self.variance = Some(message.fix(span, if adds_let { format!("let {word}") } else { word.to_string() }));
        if adds_let {
            self.out.push(made(Token::Let, span));
        }
        self.push(Token::Ident(word), span);
        Some(at + 1)
    }
}
