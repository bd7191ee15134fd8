//! Between the lexer and the grammar: matches brackets, decides which newlines count, finds soft
//! keywords.
//!
//! In: all tokens of a text. Out: tokens whose brackets match and nest at most [`MAX_DEPTH`] deep,
//! with [`Token::Newline`] only where it ends an item, a field or a statement. The rules:
//!
//! 1. Inside `(..)`, `[..]` and the `<..>` of a header newlines do not count; inside `{..}` they
//!    do.
//! 2. A newline does not count after an operator or a comma, before `else`, `->`, a `where` clause,
//!    or the `{` of a header, and neither at the start nor at the end of a list.
//! 3. `use layer model rule tap reset state` are keywords only at the start of an item, field or
//!    statement, before a name, `dim` only between `let` and a name, `train` only before a name,
//!    and `step` only in an index, after the end of a slice; elsewhere they are ordinary names.
//! 4. A bracket that is never closed ends before the next keyword that begins a statement or an
//!    item; the missing closing brackets are inserted, marked so that the parser does not report
//!    them again.

use super::ast::MAX_DEPTH;
use super::token::{Lexeme, Token};
use super::words;
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::Span;

/// Converts the tokens of a text for the grammar.
pub fn arrange<'a>(lexemes: &[Lexeme<'a>], source: &str, end: Span, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let mut layout = Layout {
        input: lexemes,
        source,
        output: Vec::with_capacity(lexemes.len()),
        open: Vec::new(),
        outer: Level::default(),
        documented: 0,
        taint_next: false,
        after_generics: false,
        was_too_deep: false,
        suspect: None,
        diagnostics,
    };
    let mut at = 0;
    while at < lexemes.len() {
        at = layout.step(at);
    }
    layout.close_all(0, end, None);
    layout.trim_separators(Token::LBrace);
    layout.output
}

/// The maximum number of unclosed brackets that are reported at one location.
const MAX_UNCLOSED: usize = 3;

/// The state of an open bracket, and of the text outside all brackets.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The first token of the current item, field or statement.
    start: Option<Head>,
    /// The number of open `<` of generics.
    angles: u32,
    /// The number of prefix operators before the next operand: `- - not`.
    prefixes: u32,
    /// After `train`: the next `{` holds its arms.
    trains: bool,
}

/// The kind of the first token of an item, field or statement.
#[derive(Clone, Copy, PartialEq)]
enum Head {
    /// `layer`, `model` or `rule`: its `{` holds fields and functions.
    Layer,
    /// `fn`, `pub`, `if`, `for`, `while`: its `{` may be on the next line.
    BeforeBlock,
    /// `use`
    Use,
    /// Any other token.
    Other,
}

#[derive(Clone, Copy)]
struct Open<'a> {
    token: Token<'a>,
    span: Span,
    /// `#[`: the newline after its `]` does not count.
    is_attribute: bool,
    level: Level,
}

struct Layout<'t, 'a> {
    input: &'t [Lexeme<'a>],
    source: &'t str,
    output: Vec<Lexeme<'a>>,
    open: Vec<Open<'a>>,
    outer: Level,
    /// The position of the token that the preceding doc comments describe; computed once for all of
    /// their lines.
    documented: usize,
    taint_next: bool,
    /// Is the last token a `>` that closes generics?
    after_generics: bool,
    was_too_deep: bool,
    /// A `{` and its `}`, if the `}` is indented differently from the line of the `{`.
    suspect: Option<(Span, Span)>,
    diagnostics: &'t mut Diagnostics,
}

impl<'a> Layout<'_, 'a> {
    /// Handles the token at `at` and returns where to continue.
    fn step(&mut self, at: usize) -> usize {
        let lexeme = self.input[at];
        match lexeme.token {
            Token::Newline => {
                let next = self.skip_newlines(at);
                self.newline(lexeme, next);
                return next;
            }
            Token::Semi if self.is_list_of_lines() => {
                if !self.at_start() {
                    self.emit(lexeme);
                }
            }
            Token::Doc(_) => self.doc(lexeme, at),
            Token::LParen | Token::LBracket | Token::LBrace => return self.opening(lexeme, at),
            Token::RParen | Token::RBracket | Token::RBrace => self.closing(lexeme),
            _ => {
                self.close_unclosed(lexeme, at);
                return self.word(lexeme, at);
            }
        }
        at + 1
    }

    fn word(&mut self, lexeme: Lexeme<'a>, at: usize) -> usize {
        let next = self.input.get(at + 1).map(|lexeme| lexeme.token);
        let previous = self.output.last().map(|lexeme| lexeme.token);
        let mut token = lexeme.token;
        if let Token::Ident(name) = token
            && self.at_start()
        {
            let is_header = self.open.is_empty() && matches!(name, "use" | "layer" | "model");
            if is_header || matches!(next, Some(Token::Ident(_))) {
                token = soft_keyword(name).unwrap_or(token);
            }
        }
        if token == Token::Ident("dim") && previous == Some(Token::Let) && matches!(next, Some(Token::Ident(_))) {
            token = Token::Dim;
        }
        if token == Token::Ident("train") && matches!(next, Some(Token::Ident(_))) {
            token = Token::Train;
            self.level().trains = true;
        }
        let called = self.input.get(at + 1).is_some_and(|next| next.span.start == lexeme.span.end);
        if token == Token::Ident("step") && self.is_step(previous, next, called) {
            token = Token::Step;
        }
        match token {
            Token::Lt if matches!(previous, Some(Token::Ident(_))) => {
                if matches!(next, Some(Token::Elem(_))) || self.names_elem(at) {
                    token = Token::LtElem;
                    self.level().angles += 1;
                } else if self.level().angles > 0 || self.in_type_or_header() {
                    self.level().angles += 1;
                }
            }
            Token::Plus | Token::Minus | Token::Not if !ends_operand(previous) => {
                self.level().prefixes += 1;
                if self.depth() > u32::from(MAX_DEPTH) {
                    return self.too_deep(lexeme, at);
                }
            }
            _ => {}
        }
        if self.at_start() {
            let head = match token {
                Token::Layer | Token::Model | Token::Rule => Head::Layer,
                Token::Fn | Token::Pub | Token::If | Token::For | Token::While => Head::BeforeBlock,
                Token::Use => Head::Use,
                _ => Head::Other,
            };
            self.level().start = Some(head);
        }
        if ends_operand(Some(token)) {
            self.level().prefixes = 0;
        }
        self.emit(Lexeme { token, ..lexeme });
        if token == Token::Gt && self.level().angles > 0 {
            // This `>` closes generics, so it is not an operator that continues on the next line.
            self.level().angles -= 1;
            self.after_generics = true;
        }
        at + 1
    }

    /// Is this the keyword `step`: after an operand in an index, where no name is possible, or
    /// between `..` and another operand? In `0.. step (2)` it is the keyword; in `0..step(2)`,
    /// where the bracket touches the name, it is a function.
    fn is_step(&self, previous: Option<Token<'a>>, next: Option<Token<'a>>, touches_next: bool) -> bool {
        let in_index = self.open.last().is_some_and(|open| open.token == Token::LBracket);
        let begins_operand = match next {
            Some(Token::LParen) => !touches_next,
            Some(Token::Int(_) | Token::Ident(_)) => next != Some(Token::Ident("step")),
            _ => false,
        };
        let after_dots = previous == Some(Token::DotDot) && begins_operand;
        in_index && (ends_operand(previous) || after_dots)
    }

    /// Is it `<E>(` after a name, i.e. a generic element type? Comparisons do not chain.
    fn names_elem(&self, at: usize) -> bool {
        let after = |n: usize| self.input.get(at + n).map(|lexeme| lexeme.token);
        matches!((after(1), after(2), after(3)), (Some(Token::Ident(_)), Some(Token::Gt), Some(Token::LParen)))
            && !self.in_type_or_header()
    }

    /// Pushes an opening bracket, or skips it with its contents if the nesting is too deep.
    fn opening(&mut self, lexeme: Lexeme<'a>, at: usize) -> usize {
        if self.depth() >= u32::from(MAX_DEPTH) {
            return self.too_deep(lexeme, at);
        }
        let previous = self.output.last().map(|lexeme| lexeme.token);
        let is_members = lexeme.token == Token::LBrace && self.level().start == Some(Head::Layer);
        let is_attribute = previous == Some(Token::Hash);
        if self.at_start() {
            self.level().start = Some(Head::Other);
        }
        let is_arms = lexeme.token == Token::LBrace && std::mem::take(&mut self.level().trains);
        let token = match lexeme.token {
            _ if is_members => Token::LBraceMembers,
            _ if is_arms => Token::LBraceArms,
            token => token,
        };
        self.open.push(Open { token, span: lexeme.span, is_attribute, level: Level::default() });
        self.emit(Lexeme { token, ..lexeme });
        at + 1
    }

    /// Closes the nearest opening bracket of its kind, if there is one.
    fn closing(&mut self, lexeme: Lexeme<'a>) {
        let is_brace = |token| matches!(token, Token::LBrace | Token::LBraceMembers | Token::LBraceArms);
        let mut found = None;
        for (i, open) in self.open.iter().enumerate().rev() {
            if closer(open.token) == lexeme.token {
                found = Some(i);
                break;
            }
            // A `)` never closes a bracket outside of its block.
            if is_brace(open.token) {
                break;
            }
        }
        let Some(found) = found else {
            let symbol = symbol(lexeme.token);
            let diagnostic = Diagnostic::error(codes::UNOPENED, format!("unmatched `{symbol}`")).at(lexeme.span, "");
            let diagnostic = match self.open.last() {
                Some(open) => diagnostic.also(open.span, "this bracket is still open"),
                None => diagnostic,
            };
            self.diagnostics.push(diagnostic);
            self.taint_next = true;
            if let Some(last) = self.output.last_mut() {
                last.tainted = true;
            }
            return;
        };
        self.close_all(found + 1, lexeme.span, Some(lexeme));
        let Some(open) = self.open.pop() else { return };
        self.level().prefixes = 0;
        if lexeme.token == Token::RBrace {
            self.trim_separators(open.token);
        }
        self.emit(lexeme);
        if lexeme.token == Token::RBrace && self.suspect.is_none() && self.is_suspect(open.span, lexeme.span) {
            self.suspect = Some((open.span, lexeme.span));
        }
        if open.is_attribute {
            // The next token still begins the field or item that the attribute belongs to.
            self.level().start = None;
        }
    }

    /// Inserts the closing brackets of all brackets open from index `keep` on, and reports them.
    fn close_all(&mut self, keep: usize, at: Span, closed_by: Option<Lexeme<'a>>) {
        let mut reported = 0;
        while self.open.len() > keep {
            let Some(open) = self.open.pop() else { return };
            let missing = closer(open.token);
            // Many brackets left open at one location have one cause, most likely the innermost.
            if reported < MAX_UNCLOSED && !self.was_too_deep && !self.lost_in_string(open.span) {
                let mut diagnostic =
                    Diagnostic::error(codes::UNCLOSED, format!("`{}` is never closed", symbol(open.token)))
                        .at(open.span, format!("opened here; the closing `{}` is missing", symbol(missing)));
                if let Some((brace, closer)) = self.suspect.take_if(|(brace, _)| brace.start > open.span.start) {
                    diagnostic = diagnostic
                        .also(brace, "this one may lack its `}`")
                        .also(closer, "this closes it, at a different indentation");
                }
                if let Some(lexeme) = closed_by {
                    diagnostic = diagnostic.also(lexeme.span, "this closes an outer bracket");
                }
                self.diagnostics.push(diagnostic);
                reported += 1;
            }
            self.trim_separators(open.token);
            if let Some(last) = self.output.last_mut() {
                last.tainted = true;
            }
            let span = Span::new(at.file, at.start, at.start);
            self.output.push(Lexeme { token: missing, span, tainted: true });
            self.taint_next = true;
        }
    }

    /// Is it a `}` that starts its line at another indentation than the line of its `{`?
    fn is_suspect(&self, open: Span, close: Span) -> bool {
        let line = |span: Span| {
            let before = self.source.get(..span.start as usize).unwrap_or("");
            before.get(before.rfind('\n').map_or(0, |at| at + 1)..).unwrap_or("")
        };
        let indent = |line: &str| line.len() - line.trim_start().len();
        let (open, close) = (line(open), line(close));
        close.trim_start().is_empty() && indent(open) != indent(close)
    }

    /// Did an unterminated string swallow the closing bracket?
    fn lost_in_string(&self, open: Span) -> bool {
        let since = self.output.iter().rev().take_while(|lexeme| lexeme.span.start > open.start);
        since.into_iter().any(|lexeme| lexeme.tainted && matches!(lexeme.token, Token::Str(_)))
    }

    /// Closes brackets that cannot contain a keyword that begins a statement or an item.
    fn close_unclosed(&mut self, lexeme: Lexeme<'a>, at: usize) {
        if self.open.is_empty() {
            return;
        }
        let before = at.checked_sub(1).and_then(|i| self.input.get(i)).map(|lexeme| lexeme.token);
        let on_new_line = matches!(before, None | Some(Token::Newline));
        let names_follow = matches!(self.input.get(at + 1), Some(Lexeme { token: Token::Ident(_), .. }));
        let soft = match lexeme.token {
            Token::Ident(name) if on_new_line && names_follow => soft_keyword(name),
            _ => None,
        };
        let in_column_one = lexeme.span.start == 0
            || self.source.as_bytes().get(lexeme.span.start as usize - 1).is_some_and(|&byte| byte == b'\n');
        let keep = match (lexeme.token, soft) {
            (_, Some(Token::Use | Token::Layer | Token::Model | Token::Rule)) if in_column_one => 0,
            (Token::Fn | Token::Pub, _) => {
                // `fn` belongs outside of all brackets or among the members of a layer.
                let members = self.open.iter().rposition(|open| open.token == Token::LBraceMembers);
                members.map_or(0, |i| i + 1)
            }
            (Token::Let | Token::Var | Token::For | Token::While | Token::Break, _) | (_, Some(_)) => {
                let brace = |open: &Open<'_>| matches!(open.token, Token::LBrace | Token::LBraceMembers);
                self.open.iter().rposition(brace).map_or(0, |i| i + 1)
            }
            _ => return,
        };
        if keep < self.open.len() {
            self.close_all(keep, lexeme.span, None);
            let span = Span::new(lexeme.span.file, lexeme.span.start, lexeme.span.start);
            self.output.push(Lexeme { token: Token::Newline, span, tainted: true });
            self.level().start = None;
            self.level().angles = 0;
        }
    }

    /// Reports nesting beyond the limit, skips the nested part and inserts a placeholder.
    fn too_deep(&mut self, lexeme: Lexeme<'a>, at: usize) -> usize {
        self.was_too_deep = true;
        self.diagnostics.push(
            Diagnostic::error(codes::TOO_DEEP, format!("nested more than {MAX_DEPTH} levels deep"))
                .at(lexeme.span, "one level too many")
                .help("give parts of the expression names with `let`"),
        );
        let mut depth = 0u32;
        let mut next = at;
        while let Some(lexeme) = self.input.get(next) {
            match lexeme.token {
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace if depth == 0 => break,
                Token::RParen | Token::RBracket | Token::RBrace => depth -= 1,
                Token::Newline if depth == 0 && self.is_list_of_lines() => break,
                _ => {}
            }
            next += 1;
        }
        self.level().prefixes = 0;
        self.emit(Lexeme { token: Token::Missing, tainted: true, ..lexeme });
        self.taint_next = true;
        // The loop advanced by at least one token: `at` is neither a closing bracket nor a newline.
        next.max(at + 1)
    }

    fn doc(&mut self, lexeme: Lexeme<'a>, at: usize) {
        if at >= self.documented {
            let rest = &self.input[at..];
            let lines = rest.iter().take_while(|l| matches!(l.token, Token::Newline | Token::Doc(_))).count();
            self.documented = at + lines;
        }
        let ends = matches!(self.input.get(self.documented), None | Some(Lexeme { token: Token::RBrace, .. }));
        let in_code = self.open.last().is_some_and(|open| open.token == Token::LBrace);
        let at_start = !self.is_list_of_lines() || self.at_start();
        if ends || in_code || !at_start {
            self.diagnostics.push(
                Diagnostic::warning(codes::LOST_DOC, "this doc comment documents nothing").at(lexeme.span, "").help(
                    "`///` goes before an item, a field, a function or a parameter; other comments begin with `//`",
                ),
            );
        } else {
            self.emit(lexeme);
        }
    }

    /// Does the output end with the (dotted) name of a declaration or of a type?
    fn in_type_or_header(&self) -> bool {
        let mut before = self.output.iter().rev().map(|lexeme| lexeme.token).skip(1);
        let mut token = before.next();
        while token == Some(Token::Dot) {
            before.next();
            token = before.next();
        }
        matches!(
            token,
            Some(Token::Layer | Token::Model | Token::Rule | Token::Fn | Token::Colon | Token::Arrow | Token::LBracket)
        )
    }

    /// Decides whether a newline ends something; `next` is the index of the next other token.
    fn newline(&mut self, lexeme: Lexeme<'a>, next: usize) {
        if !self.is_list_of_lines() || self.at_start() {
            return;
        }
        let following = self.input.get(next).map(|lexeme| lexeme.token);
        let after_next = self.input.get(next + 1).map(|lexeme| lexeme.token);
        let Some(previous) = self.output.last().map(|lexeme| lexeme.token) else { return };
        if matches!(previous, Token::Doc(_)) || self.level().start.is_none() {
            return;
        }
        let Some(following) = following else { return };
        let begins_statement = matches!(
            following,
            Token::Let | Token::Var | Token::For | Token::While | Token::Break | Token::Fn | Token::Pub | Token::RBrace
        );
        if !begins_statement && continues(previous) && !self.after_generics {
            return;
        }
        let head = self.level().start;
        let joins = match following {
            Token::Else | Token::Arrow => true,
            Token::Where => after_next != Some(Token::LParen),
            Token::LBrace => {
                matches!(head, Some(Head::Layer | Head::BeforeBlock)) && previous != Token::RBrace
                    || previous == Token::Else
            }
            Token::Gt => self.level().angles > 0,
            _ => false,
        };
        if joins {
            return;
        }
        if begins_with_operator(following) {
            let place = self.input.get(next).map_or(lexeme.span, |lexeme| lexeme.span);
            let symbol = self.source.get(place.range()).unwrap_or("");
            self.diagnostics.push(
                Diagnostic::error(codes::LEADING_OPERATOR, format!("a line cannot begin with `{symbol}`"))
                    .at(place, "the statement ended on the previous line")
                    .help(format!(
                        "put `{symbol}` at the end of the previous line, or the whole expression in parentheses"
                    )),
            );
            return;
        }
        // Outside of all brackets only complete items end, so that text that is not an item is one
        // error, not many.
        if self.open.is_empty() {
            let begins_item = match following {
                Token::Fn | Token::Pub | Token::Hash | Token::Doc(_) => true,
                Token::Ident(name) => soft_keyword(name).is_some() || words::begins_foreign_item(name),
                _ => false,
            };
            if !begins_item && previous != Token::RBrace && head != Some(Head::Use) {
                return;
            }
        }
        self.emit(lexeme);
    }

    /// Removes separators at the end of the output, where the list in `open` ends.
    fn trim_separators(&mut self, open: Token<'a>) {
        while let Some(Lexeme { token: Token::Newline | Token::Semi, .. }) = self.output.last() {
            self.output.pop();
        }
        if open != Token::LBrace && matches!(self.output.last(), Some(Lexeme { token: Token::Comma, .. })) {
            self.output.pop();
        }
    }

    /// Appends a token; a separator begins a new item, field or statement.
    fn emit(&mut self, mut lexeme: Lexeme<'a>) {
        lexeme.tainted |= std::mem::take(&mut self.taint_next);
        let in_members =
            self.open.last().is_some_and(|open| matches!(open.token, Token::LBraceMembers | Token::LBraceArms));
        let separates = match lexeme.token {
            Token::Newline | Token::Semi => self.is_list_of_lines(),
            // Not that of a `where` clause of a function.
            Token::Comma => {
                let in_head = self.level().start == Some(Head::BeforeBlock);
                let ends_body = matches!(self.output.last(), Some(Lexeme { token: Token::RBrace, .. }));
                in_members && self.level().angles == 0 && (!in_head || ends_body)
            }
            _ => false,
        };
        if separates {
            *self.level() = Level::default();
        }
        self.after_generics = false;
        self.output.push(lexeme);
    }

    fn level(&mut self) -> &mut Level {
        self.open.last_mut().map_or(&mut self.outer, |open| &mut open.level)
    }

    /// Is this the start of an item, field or statement?
    fn at_start(&mut self) -> bool {
        self.is_list_of_lines() && self.level().start.is_none()
    }

    /// Is this outside of all brackets or directly inside `{..}`, where newlines count?
    fn is_list_of_lines(&self) -> bool {
        let holds_lines =
            |open: &Open<'_>| matches!(open.token, Token::LBrace | Token::LBraceMembers | Token::LBraceArms);
        self.open.last().is_none_or(holds_lines)
    }

    fn depth(&self) -> u32 {
        let prefixes: u32 = self.open.iter().map(|open| open.level.prefixes).sum();
        self.open.len() as u32 + prefixes + self.outer.prefixes
    }

    fn skip_newlines(&self, at: usize) -> usize {
        let rest = self.input.get(at..).unwrap_or_default();
        at + rest.iter().take_while(|lexeme| lexeme.token == Token::Newline).count()
    }
}

/// The keyword that a name stands for at the start of an item, field or statement.
fn soft_keyword<'a>(name: &str) -> Option<Token<'a>> {
    match name {
        "use" => Some(Token::Use),
        "layer" => Some(Token::Layer),
        "model" => Some(Token::Model),
        "rule" => Some(Token::Rule),
        "state" => Some(Token::State),
        "tap" => Some(Token::Tap),
        "reset" => Some(Token::Reset),
        _ => None,
    }
}

/// Does a statement that ends with this token continue on the next line?
fn continues(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Plus
            | Token::Minus
            | Token::Star
            | Token::Slash
            | Token::Percent
            | Token::At
            | Token::EqEq
            | Token::Ne
            | Token::Lt
            | Token::Step
            | Token::LtElem
            | Token::Le
            | Token::Gt
            | Token::Ge
            | Token::Eq
            | Token::And
            | Token::Or
            | Token::Not
            | Token::In
            | Token::Dot
            | Token::DotDot
            | Token::Arrow
            | Token::Colon
            | Token::Comma
            | Token::Where
    )
}

/// Can a token only continue the previous line?
fn begins_with_operator(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Star
            | Token::Slash
            | Token::Percent
            | Token::At
            | Token::EqEq
            | Token::Ne
            | Token::Lt
            | Token::Le
            | Token::Gt
            | Token::Ge
            | Token::And
            | Token::Or
            | Token::Dot
            | Token::Eq
    )
}

/// Can an operand end with this token, so that a following `-` is a subtraction?
fn ends_operand(token: Option<Token<'_>>) -> bool {
    matches!(
        token,
        Some(
            Token::Ident(_)
                | Token::Int(_)
                | Token::Float(_)
                | Token::Str(_)
                | Token::True
                | Token::False
                | Token::Inf
                | Token::RParen
                | Token::RBracket
                | Token::RBrace
                | Token::Missing
        )
    )
}

fn closer(open: Token<'_>) -> Token<'_> {
    match open {
        Token::LParen => Token::RParen,
        Token::LBracket => Token::RBracket,
        _ => Token::RBrace,
    }
}

fn symbol(bracket: Token<'_>) -> &'static str {
    match bracket {
        Token::LParen => "(",
        Token::RParen => ")",
        Token::LBracket => "[",
        Token::RBracket => "]",
        Token::LBrace | Token::LBraceMembers | Token::LBraceArms => "{",
        _ => "}",
    }
}
