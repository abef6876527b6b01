//! Statements cut into tokens (manual, "Language Structure"): enough to tell names, strings and comments apart.

use super::{Context, SqlMode};

/// An ENUM may have 65,535 members, and each takes two tokens; statements of rows, which may be longer, are only read
/// at their beginning.
const TOKENS_MAX: usize = 400_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword or an unquoted name.
    Word(&'a str),
    /// A quoted name, without its quotes.
    Name(String),
    /// A string, without its quotes.
    Text(String),
    /// Unsigned, as written.
    Number(&'a str),
    Symbol(char),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("a string or quoted name does not end")]
    OpenQuote,
    #[error("a comment does not end")]
    OpenComment,
}

/// The tokens without comments; of a very long statement only the beginning.
///
/// # Errors
/// If a string, name or comment has no end.
pub(super) fn tokens<'a>(statement: &'a str, context: &Context<'_>) -> Result<Vec<Token<'a>>, TokenError> {
    let mut lexer = Lexer {
        rest: statement,
        mode: context.sql_mode,
        mariadb: context.mariadb,
        after_dot: false,
        after_name: false,
    };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        lexer.after_dot = token == Token::Symbol('.');
        lexer.after_name = matches!(token, Token::Word(_) | Token::Name(_));
        tokens.push(token);
        if tokens.len() == TOKENS_MAX {
            break;
        }
    }
    Ok(tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    mode: SqlMode,
    mariadb: bool,
    /// What follows a point is a name, also if it looks like a number.
    after_dot: bool,
    /// A point straight after a name is not the beginning of a number.
    after_name: bool,
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$') || !character.is_ascii()
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Result<Option<Token<'a>>, TokenError> {
        let length = self.rest.len();
        self.skip_comments()?;
        let in_name = self.after_name && self.rest.len() == length;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let token = match first {
            '`' => Token::Name(self.quoted('`', false)?),
            '"' if self.mode.ansi_quotes => Token::Name(self.quoted('"', false)?),
            '\'' | '"' => Token::Text(self.quoted(first, !self.mode.no_backslash_escapes)?),
            digit if digit.is_ascii_digit() && !self.after_dot => self.number_or_word(),
            '.' if !in_name && self.rest.chars().nth(1).is_some_and(|next| next.is_ascii_digit()) => {
                let end = self.rest.find(|c: char| c != '.' && !c.is_ascii_digit());
                Token::Number(self.cut(end.unwrap_or(self.rest.len())))
            }
            word if is_word(word) => Token::Word(self.cut_word()),
            symbol => {
                self.cut(symbol.len_utf8());
                Token::Symbol(symbol)
            }
        };
        Ok(Some(token))
    }

    fn cut(&mut self, length: usize) -> &'a str {
        let (token, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        token
    }

    fn cut_word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !is_word(c));
        self.cut(end.unwrap_or(self.rest.len()))
    }

    /// `12`, `1.5`, `1e10`, `0xFF`, and the name `1st`.
    fn number_or_word(&mut self) -> Token<'a> {
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let tail = self.rest.get(digits..).unwrap_or_default();
        if !tail.starts_with('.') && tail.starts_with(is_word) && !is_exponent(tail) {
            return Token::Word(self.cut_word());
        }
        let mut end = digits;
        if tail.starts_with('.') {
            end += 1 + tail.get(1..).unwrap_or_default().chars().take_while(char::is_ascii_digit).count();
        }
        let tail = self.rest.get(end..).unwrap_or_default();
        if is_exponent(tail) {
            end += 2 + tail.get(2..).unwrap_or_default().chars().take_while(char::is_ascii_digit).count();
        }
        Token::Number(self.cut(end))
    }

    fn skip_comments(&mut self) -> Result<(), TokenError> {
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.starts_with('#') || is_dash_comment(self.rest) {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.cut(end);
            } else if self.rest.starts_with("*/") {
                // The end of a versioned comment whose inside has just been read.
                self.cut(2);
            } else if self.rest.starts_with("/*") {
                self.skip_block()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Skips a comment, or only the beginning of one that the server executes.
    fn skip_block(&mut self) -> Result<(), TokenError> {
        let inside = self.rest.get(2..).unwrap_or_default();
        let code = match inside.strip_prefix('!') {
            Some(code) => Some(code),
            None if self.mariadb => inside.strip_prefix("M!"),
            None => None,
        };
        if let Some(code) = code {
            let digits = code.find(|c: char| !c.is_ascii_digit()).unwrap_or(code.len()).min(VERSION_DIGITS_MAX);
            let (version, rest) = code.split_at_checked(digits).unwrap_or((code, ""));
            if self.executes(version, inside.starts_with('!')) {
                self.rest = rest;
                return Ok(());
            }
        }
        let (_, rest) = inside.split_once("*/").ok_or(TokenError::OpenComment)?;
        self.rest = rest;
        Ok(())
    }

    /// Whether a server executes a comment of this version: MariaDB leaves out what is meant for MySQL 5.7 and
    /// later, MySQL what is meant for MariaDB 10 and later.
    fn executes(&self, version: &str, of_mysql: bool) -> bool {
        match version.parse::<u32>() {
            Ok(version) if self.mariadb => !(of_mysql && (50_700..100_000).contains(&version)),
            Ok(version) => version < 100_000,
            Err(_) => true,
        }
    }

    fn quoted(&mut self, quote: char, escapes: bool) -> Result<String, TokenError> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = characters.next() {
            if character == quote {
                if characters.next_if(|(_, next)| *next == quote).is_some() {
                    text.push(quote);
                    continue;
                }
                self.rest = self.rest.get(at + quote.len_utf8()..).unwrap_or_default();
                return Ok(text);
            }
            if character == '\\' && escapes {
                let (_, escaped) = characters.next().ok_or(TokenError::OpenQuote)?;
                push_escaped(escaped, &mut text);
            } else {
                text.push(character);
            }
        }
        Err(TokenError::OpenQuote)
    }
}

/// `/*!50100` has five digits, `/*!100301` six.
const VERSION_DIGITS_MAX: usize = 6;

/// An exponent has digits or a sign: `e5` but not `each`.
fn is_exponent(tail: &str) -> bool {
    let mut characters = tail.chars();
    let begins = matches!(characters.next(), Some('e' | 'E'));
    match (begins, characters.next()) {
        (true, Some('+' | '-')) => characters.next().is_some_and(|next| next.is_ascii_digit()),
        (true, Some(digit)) => {
            digit.is_ascii_digit() && characters.take_while(|c| is_word(*c)).all(|c| c.is_ascii_digit())
        }
        _ => false,
    }
}

/// Two dashes are a comment only before a space or the end ("Comments" in the manual).
fn is_dash_comment(rest: &str) -> bool {
    rest.strip_prefix("--")
        .is_some_and(|after| after.chars().next().is_none_or(|c| c.is_whitespace() || c.is_control()))
}

/// "String Literals" in the manual.
fn push_escaped(escaped: char, text: &mut String) {
    match escaped {
        '0' => text.push('\0'),
        'b' => text.push('\u{8}'),
        'n' => text.push('\n'),
        'r' => text.push('\r'),
        't' => text.push('\t'),
        'Z' => text.push('\u{1a}'),
        '%' | '_' => text.extend(['\\', escaped]),
        other => text.push(other),
    }
}

/// A place in the tokens of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'t, 'a> Cursor<'t, 'a> {
    pub(super) fn new(tokens: &'t [Token<'a>]) -> Self {
        Self { tokens, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'t Token<'a>> {
        self.tokens.get(self.at)
    }

    fn peek_at(&self, ahead: usize) -> Option<&'t Token<'a>> {
        self.tokens.get(self.at + ahead)
    }

    pub(super) fn next(&mut self) -> Option<&'t Token<'a>> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    pub(super) fn is_end(&self) -> bool {
        matches!(self.peek(), None | Some(Token::Symbol(';')))
    }

    /// Whether the next tokens are these keywords.
    pub(super) fn sees(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| self.peek_at(ahead).is_some_and(|token| token.is_word(word)))
    }

    pub(super) fn sees_symbol(&self, symbol: char) -> bool {
        self.peek() == Some(&Token::Symbol(symbol))
    }

    /// Steps over these keywords if they come next.
    pub(super) fn skip(&mut self, words: &[&str]) -> bool {
        let sees = self.sees(words);
        if sees {
            self.at += words.len();
        }
        sees
    }

    /// Steps over one of these keywords if it comes next.
    pub(super) fn skip_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.skip(&[word]))
    }

    pub(super) fn skip_symbol(&mut self, symbol: char) -> bool {
        let sees = self.sees_symbol(symbol);
        self.at += usize::from(sees);
        sees
    }

    /// A name, quoted or not.
    pub(super) fn name(&mut self) -> Option<String> {
        let name = match self.peek()? {
            Token::Word(word) => (*word).to_string(),
            Token::Name(name) => name.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(name)
    }

    /// What a charset, collation or engine may be written as.
    pub(super) fn name_or_text(&mut self) -> Option<String> {
        match self.peek()? {
            Token::Text(text) => {
                self.at += 1;
                Some(text.clone())
            }
            _ => self.name(),
        }
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        let Token::Number(number) = self.peek()? else { return None };
        self.at += 1;
        number.parse().ok()
    }

    /// The tokens inside the parentheses that open here; the cursor steps behind them.
    pub(super) fn parenthesized(&mut self) -> Option<Cursor<'t, 'a>> {
        if !self.sees_symbol('(') {
            return None;
        }
        let start = self.at + 1;
        let mut depth = 0_usize;
        while let Some(token) = self.next() {
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return self.tokens.get(start..self.at - 1).map(Cursor::new);
            }
        }
        None
    }

    /// Steps over one token, or over all of a parenthesized part.
    pub(super) fn skip_one(&mut self) {
        if self.parenthesized().is_none() {
            self.next();
        }
    }

    /// The tokens up to the next comma outside of parentheses; the cursor steps behind it.
    pub(super) fn item(&mut self) -> Option<Cursor<'t, 'a>> {
        if self.is_end() {
            return None;
        }
        let start = self.at;
        while !self.is_end() && !self.sees_symbol(',') {
            self.skip_one();
        }
        let item = self.tokens.get(start..self.at).map(Cursor::new);
        self.skip_symbol(',');
        item
    }
}

impl Token<'_> {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Word(found) if found.eq_ignore_ascii_case(word))
    }
}
