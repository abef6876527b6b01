//! From text to a syntax tree: time travel is folded into the names of tables, and only reading statements pass.

use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};

use super::QueryError;
use super::error::syntax_message;
use super::travel::{AsOf, parse_time};

/// A query may be nested this deeply: DataFusion's own limit, which keeps the parser's stack small.
const NESTING_MAX: usize = 50;

/// The tokens of one statement; `AS OF` clauses have become part of the name before them.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    pub tokens: Vec<TokenWithSpan>,
    /// The names that got an `AS OF`, as they stand in `tokens`: each must turn out to be the name of a table.
    pub travelled: Vec<String>,
}

impl Tokens {
    /// Reads the words of a query. Strings, comments and quoted names are never taken for clauses.
    pub fn read(sql: &str) -> Result<Self, QueryError> {
        let tokens = Tokenizer::new(&GenericDialect, sql)
            .tokenize_with_location()
            .map_err(|error| QueryError::Syntax(error.to_string()))?;
        fold_as_of(&tokens)
    }

    /// Names and SQL's own words, in order, without quotes.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| match &token.token {
            Token::Word(word) => Some(word.value.as_str()),
            _ => None,
        })
    }

    /// The one statement that the tokens make.
    pub fn parse(&self) -> Result<Statement, QueryError> {
        let mut statements = Parser::new(&GenericDialect)
            .with_recursion_limit(NESTING_MAX)
            .with_tokens_with_locations(self.tokens.clone())
            .parse_statements()
            .map_err(|error| QueryError::Syntax(syntax_message(&error)))?;
        match (statements.pop(), statements.len()) {
            (Some(statement), 0) => Ok(statement),
            (last, before) => Err(QueryError::NotOneStatement { found: before + usize::from(last.is_some()) }),
        }
    }
}

/// Turns `name [FOR] VERSION AS OF 12` into the name `name@v12`, and the same for times.
fn fold_as_of(tokens: &[TokenWithSpan]) -> Result<Tokens, QueryError> {
    let mut folded = Tokens { tokens: Vec::with_capacity(tokens.len()), travelled: Vec::new() };
    let mut name = None;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match (name, Clause::read(tokens, at)?) {
            (Some(name), Some(clause)) => {
                folded.rename(name, &clause.as_of);
                at = clause.end;
                continue;
            }
            (None, Some(_)) => return Err(QueryError::AsOfMisplaced),
            (_, None) => {}
        }
        match &token.token {
            Token::Whitespace(_) => {}
            Token::Word(_) => name = Some(folded.tokens.len()),
            _ => name = None,
        }
        folded.tokens.push(token.clone());
        at += 1;
    }
    Ok(folded)
}

impl Tokens {
    fn rename(&mut self, index: usize, as_of: &AsOf) {
        if let Some(TokenWithSpan { token: Token::Word(word), .. }) = self.tokens.get_mut(index) {
            let value = as_of.name_of(&word.value);
            self.travelled.push(value.clone());
            *word = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
        }
    }
}

/// One `AS OF` clause of a token list.
struct Clause {
    as_of: AsOf,
    /// The index behind its last token.
    end: usize,
}

impl Clause {
    /// Reads the clause that begins at a token: the forms of Spark and of SQL:2011.
    fn read(tokens: &[TokenWithSpan], start: usize) -> Result<Option<Self>, QueryError> {
        let mut reader = Reader { tokens, at: start };
        let spelled_out = reader.word(&["FOR"]);
        let versions = match reader.word(&["VERSION", "SYSTEM_VERSION"]) {
            true => true,
            false if reader.word(&["TIMESTAMP", "SYSTEM_TIME"]) => false,
            false => return Ok(None),
        };
        if !(reader.word(&["AS"]) && reader.word(&["OF"])) {
            return Ok(None);
        }
        // `SELECT version AS of FROM t` is a column with a strange alias.
        if !spelled_out && reader.ends_a_column() {
            return Ok(None);
        }
        let as_of = if versions { reader.version()? } else { reader.time()? };
        Ok(Some(Self { as_of, end: reader.at }))
    }
}

/// Steps over a token list, blind to white space and comments.
struct Reader<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<(usize, &'a Token)> {
        let rest = self.tokens.iter().enumerate().skip(self.at);
        rest.map(|(index, token)| (index, &token.token)).find(|(_, token)| !matches!(token, Token::Whitespace(_)))
    }

    /// Steps over one of the unquoted words, when it comes next.
    fn word(&mut self, words: &[&str]) -> bool {
        match self.peek() {
            Some((index, Token::Word(Word { value, quote_style: None, .. })))
                if words.iter().any(|word| word.eq_ignore_ascii_case(value)) =>
            {
                self.at = index + 1;
                true
            }
            _ => false,
        }
    }

    fn ends_a_column(&self) -> bool {
        match self.peek() {
            None | Some((_, Token::Comma | Token::SemiColon | Token::RParen | Token::EOF)) => true,
            Some((_, Token::Word(word))) => word.keyword == Keyword::FROM,
            _ => false,
        }
    }

    fn version(&mut self) -> Result<AsOf, QueryError> {
        let expected = "the number of a version, such as 12";
        let (index, token) = self.value(expected)?;
        let (Token::Number(text, _) | Token::SingleQuotedString(text)) = token else {
            return Err(QueryError::AsOfWhat { found: token.to_string(), expected });
        };
        let version = text.parse().map_err(|_| QueryError::AsOfWhat { found: token.to_string(), expected })?;
        self.at = index + 1;
        Ok(AsOf::Version(version))
    }

    fn time(&mut self) -> Result<AsOf, QueryError> {
        let expected = "a time in single quotes, such as '2026-01-31 10:00:00'";
        self.word(&["TIMESTAMP"]);
        let (index, token) = self.value(expected)?;
        let Token::SingleQuotedString(text) = token else {
            return Err(QueryError::AsOfWhat { found: token.to_string(), expected });
        };
        self.at = index + 1;
        Ok(AsOf::Time(parse_time(text)?))
    }

    fn value(&self, expected: &'static str) -> Result<(usize, &'a Token), QueryError> {
        self.peek().ok_or_else(|| QueryError::AsOfWhat { found: "nothing".to_string(), expected })
    }
}

/// Lets only queries through, and EXPLAIN of queries.
pub(super) fn check_reads_only(statement: &Statement) -> Result<(), QueryError> {
    match statement {
        Statement::Query(query) => check_query(query),
        Statement::Explain { statement, .. } => check_reads_only(statement),
        other => Err(QueryError::NotReadOnly { found: first_word(other) }),
    }
}

fn check_query(query: &Query) -> Result<(), QueryError> {
    match query.body.as_ref() {
        SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) | SetExpr::Merge(inner) => {
            Err(QueryError::NotReadOnly { found: first_word(inner) })
        }
        SetExpr::Select(select) if select.into.is_some() => {
            Err(QueryError::NotReadOnly { found: "SELECT ... INTO".to_string() })
        }
        _ => Ok(()),
    }
}

/// The word that a statement begins with: its values must not get into a message.
fn first_word(statement: &Statement) -> String {
    statement.to_string().split_whitespace().next().unwrap_or_default().to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sql: &str, expected: &str) {
        let found = match Tokens::read(sql) {
            Ok(tokens) => tokens.tokens.iter().map(|token| token.token.to_string()).collect::<String>(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn every_way_to_write_a_version_becomes_one_name() {
        check("FROM orders VERSION AS OF 12 o", "FROM \"orders@v12\" o");
        check("FROM shop.orders for version as of '12'", "FROM shop.\"orders@v12\"");
        check("FROM `my orders` FOR SYSTEM_VERSION AS OF 0", "FROM \"my orders@v0\"");
        check("FROM orders@v12", "FROM orders@v12");
        check("(orders /* now */ VERSION -- x\n AS OF 3)", "(\"orders@v3\")");
    }

    #[test]
    fn every_way_to_write_a_time_becomes_one_name() {
        let name = "FROM \"orders@t2026-01-01T10:00:00Z\" o";
        check("FROM orders TIMESTAMP AS OF '2026-01-01 10:00:00' o", name);
        check("FROM orders FOR TIMESTAMP AS OF '2026-01-01T12:00:00+02:00' o", name);
        check("FROM orders FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 10:00' o", name);
        check("FROM orders FOR SYSTEM_TIME AS OF '2026-01-01 10:00:00Z' o", name);
    }

    #[test]
    fn strings_comments_quoted_names_and_columns_are_left_alone() {
        for sql in [
            "SELECT 'orders VERSION AS OF 12' FROM t",
            "SELECT 1 -- orders VERSION AS OF 12",
            "SELECT 1 /* orders VERSION AS OF 12 */",
            "SELECT \"version\" AS of, a FROM t",
            "SELECT version AS of FROM t",
            "SELECT t.timestamp AS of, x FROM t",
            "SELECT version, timestamp FROM t WHERE version > 3",
        ] {
            check(sql, sql);
        }
    }

    #[test]
    fn a_version_that_is_not_one_is_refused() {
        check("FROM t VERSION AS OF -1", "AS OF is followed by -, expected the number of a version, such as 12");
        check("FROM t VERSION AS OF 1.5", "AS OF is followed by 1.5, expected the number of a version, such as 12");
        check(
            "FROM t TIMESTAMP AS OF now()",
            "AS OF is followed by now, expected a time in single quotes, such as '2026-01-31 10:00:00'",
        );
        check(
            "FROM t TIMESTAMP AS OF 'soon'",
            "'soon' is not a time; write it as '2026-01-31', '2026-01-31 10:00:00' (UTC) or '2026-01-31T10:00:00+02:00'",
        );
        check(
            "FROM (SELECT 1) VERSION AS OF 1",
            "AS OF belongs directly behind a table's name and before its alias: orders VERSION AS OF 3 AS o",
        );
    }
}
