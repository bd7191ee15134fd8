//! The tokens of a program in their order, with the comments between them.
//!
//! In: a text without errors, and its tokens. Out: the parts of a [`Doc`]: each token is taken
//! once, and with it the comments before it. It knows no trees.

use super::doc::Doc;
use crate::syntax::token::{Lexeme, Token};

/// A place between two tokens.
pub(super) struct Cursor<'a> {
    text: &'a str,
    /// Without the ends of lines and statements.
    tokens: Vec<Lexeme<'a>>,
    /// Index of the next token.
    at: usize,
    /// Where the last token or comment ended.
    end: usize,
}

/// A list of parts that is being made.
pub(super) type Docs<'a> = Vec<Doc<'a>>;

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, tokens: &[Lexeme<'a>]) -> Cursor<'a> {
        // `;` is an end only in a list of lines, not in `[Block<D>; L]`.
        let mut depth = Vec::new();
        let kept = tokens.iter().filter(|lexeme| {
            match lexeme.token {
                Token::LBracket | Token::LParen => depth.push(true),
                Token::LBrace | Token::LBraceMembers | Token::LBraceArms => depth.push(false),
                Token::RBracket | Token::RParen | Token::RBrace => {
                    depth.pop();
                }
                Token::Semi if depth.last() == Some(&true) => return true,
                _ => {}
            }
            !matches!(lexeme.token, Token::Newline | Token::Semi)
        });
        Cursor { text, tokens: kept.copied().collect(), at: 0, end: 0 }
    }

    /// The next token.
    pub(super) fn next(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|lexeme| lexeme.token)
    }

    /// The token after the next one.
    pub(super) fn second(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at + 1).map(|lexeme| lexeme.token)
    }

    /// Where the next token begins; the end of the text after the last one.
    pub(super) fn start(&self) -> usize {
        self.tokens.get(self.at).map_or(self.text.len(), |lexeme| lexeme.span.start as usize)
    }

    /// Takes the next token.
    pub(super) fn token(&mut self, out: &mut Docs<'a>) {
        self.comments(out);
        if let Some(lexeme) = self.tokens.get(self.at) {
            out.push(Doc::Text(self.text.get(lexeme.span.range()).unwrap_or_default().trim_end()));
            self.end = lexeme.span.end as usize;
            self.at += 1;
        }
    }

    /// Takes the next token if it is this one, with the comments before it after it: `a // why` and
    /// `, b` become `a, // why` and `b`.
    pub(super) fn skip(&mut self, token: Token<'_>, out: &mut Docs<'a>) {
        if self.next() == Some(token) {
            self.comments(out);
            self.end = self.tokens.get(self.at).map_or(self.end, |lexeme| lexeme.span.end as usize);
            self.at += 1;
        }
    }

    /// Takes the comments before the next token.
    pub(super) fn comments(&mut self, out: &mut Docs<'a>) {
        loop {
            let gap = self.gap();
            // Most gaps have no comment; a search for two bytes would take longer than all else.
            let Some(from) = gap.find('/') else { return };
            let before = gap.get(..from).unwrap_or_default();
            let comment = gap.get(from..).unwrap_or_default();
            let comment = comment.get(..comment.find('\n').unwrap_or(comment.len())).unwrap_or_default();
            self.end += from + comment.len();
            let trailing = self.at > 0 && !before.contains('\n');
            if has_blank_line(before) {
                out.push(Doc::Blank);
            }
            out.push(Doc::Comment { text: comment.trim_end(), trailing });
        }
    }

    /// Takes the comments before the next token, and one of the blank lines there.
    pub(super) fn begin_line(&mut self, out: &mut Docs<'a>) {
        self.comments(out);
        if has_blank_line(self.gap()) {
            out.push(Doc::Blank);
        }
    }

    /// Is there a newline before the next token?
    pub(super) fn is_on_new_line(&self) -> bool {
        self.gap().contains('\n')
    }

    /// Is there a whole line, blank or a comment, between the last token and the next one?
    pub(super) fn is_apart(&self) -> bool {
        has_blank_line(self.gap())
    }

    /// The number of tokens before an offset that are still to be taken.
    pub(super) fn count_before(&self, offset: usize) -> usize {
        let rest = self.tokens.get(self.at..).unwrap_or_default();
        rest.iter().take_while(|lexeme| (lexeme.span.start as usize) < offset).count()
    }

    /// The texts of all comments after this place.
    pub(super) fn all_comments(mut self) -> Vec<String> {
        let mut parts = Docs::new();
        while self.at <= self.tokens.len() {
            self.comments(&mut parts);
            self.end = self.tokens.get(self.at).map_or(self.text.len(), |lexeme| lexeme.span.end as usize);
            self.at += 1;
        }
        let comment = |part| match part {
            Doc::Comment { text, .. } => Some(text.to_string()),
            _ => None,
        };
        parts.into_iter().filter_map(comment).collect()
    }

    fn gap(&self) -> &'a str {
        self.text.get(self.end..self.start()).unwrap_or_default()
    }
}

fn has_blank_line(gap: &str) -> bool {
    gap.bytes().filter(|&byte| byte == b'\n').count() > 1
}
