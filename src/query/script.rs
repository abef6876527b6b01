//! Several statements in one text: where each ends, by the tokens and not by the letters.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// A text cut at the semicolons between its statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Each without its semicolon; those of comments and white space alone are left out.
    pub statements: Vec<String>,
    /// What stands behind the last semicolon; empty if that is comments and white space alone.
    pub rest: String,
}

impl Script {
    /// A text that ends within a literal, a quoted name or a comment is not cut: all of it is `rest`.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let Some(tokens) = tokens(text) else { return Self { statements: Vec::new(), rest: text.to_string() } };
        let mut pieces: Vec<&[Token]> = tokens.split(|token| *token == Token::SemiColon).collect();
        let rest = pieces.pop().unwrap_or_default();
        let says_something = |tokens: &&[Token]| !tokens.iter().all(|token| matches!(token, Token::Whitespace(_)));
        let statements = pieces.into_iter().filter(says_something).map(written).collect();
        Self { statements, rest: Some(rest).filter(says_something).map(written).unwrap_or_default() }
    }

    /// All statements, the one that no semicolon ends with them.
    #[must_use]
    pub fn into_statements(self) -> Vec<String> {
        let rest = Some(self.rest).filter(|rest| !rest.is_empty());
        self.statements.into_iter().chain(rest).collect()
    }
}

/// The same statement on one line, without comments; `None` where that would change it.
#[must_use]
pub fn on_one_line(statement: &str) -> Option<String> {
    let mut line = String::new();
    for token in tokens(statement)? {
        match token {
            Token::Whitespace(_) if line.is_empty() || line.ends_with(' ') => {}
            Token::Whitespace(_) => line.push(' '),
            other => line.push_str(&other.to_string()),
        }
    }
    (!line.contains(['\n', '\r'])).then(|| line.trim_end().to_string())
}

/// Tokens whose texts make the text again; `None` for one that ends too early.
fn tokens(text: &str) -> Option<Vec<Token>> {
    Tokenizer::new(&GenericDialect, text).with_unescape(false).tokenize().ok()
}

fn written(tokens: &[Token]) -> String {
    tokens.iter().map(Token::to_string).collect::<String>().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, statements: &[&str], rest: &str) {
        let expected =
            Script { statements: statements.iter().map(ToString::to_string).collect(), rest: rest.to_string() };
        assert_eq!(Script::read(text), expected, "{text}");
    }

    #[test]
    fn semicolons_count_only_between_statements() {
        check("select 1; select 2;", &["select 1", "select 2"], "");
        check("select ';' , \";\" -- ;\n, /* ; */ 2; select 3", &["select ';' , \";\" -- ;\n, /* ; */ 2"], "select 3");
        check("select 1; -- that is all", &["select 1"], "");
        check(";;  ;\n", &[], "");
        check("select 'it''s; \\n';", &["select 'it''s; \\n'"], "");
    }

    #[test]
    fn a_literal_that_is_open_waits_for_its_end() {
        check("select 1; select 'abc;\n", &[], "select 1; select 'abc;\n");
        check("select 1; select 'abc;\n def';", &["select 1", "select 'abc;\n def'"], "");
    }

    #[test]
    fn a_line_of_history_is_the_statement_that_was_asked() {
        assert_eq!(on_one_line("select 'a  b',\n\n  2 -- two\nfrom t").as_deref(), Some("select 'a  b', 2 from t"));
        assert_eq!(on_one_line("select 'a\nb'"), None);
    }
}
