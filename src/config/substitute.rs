//! `${NAME}` in the scalars of a job file.

/// A scalar: what was typed, and what it stands for. Its text may be a secret, so messages quote what was
/// typed, and `Debug` shows no more than that.
#[derive(Clone)]
pub(super) struct Text {
    typed: String,
    parts: Vec<Part>,
}

#[derive(Clone)]
enum Part {
    Literal(String),
    Variable(String),
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.typed)
    }
}

impl Text {
    /// Resolves every `${NAME}`; `$$` stands for one `$`, and a `$` before anything else for itself.
    ///
    /// # Errors
    /// A message for each variable that is not set or not named properly.
    pub fn new(typed: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let mut parts = Vec::new();
        let mut problems = Vec::new();
        let mut literal = String::new();
        let mut rest = typed;
        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                literal.push('$');
                rest = after;
            } else if let Some(after) = after.strip_prefix('{') {
                let Some((name, after)) = after.split_once('}') else {
                    problems.push("has a ${ without its }; write $$ for a dollar sign".into());
                    break;
                };
                match variable(name, environment) {
                    Ok(value) => parts.extend([Part::Literal(std::mem::take(&mut literal)), Part::Variable(value)]),
                    Err(problem) => problems.push(problem),
                }
                rest = after;
            } else {
                literal.push('$');
                rest = after;
            }
        }
        literal.push_str(rest);
        parts.push(Part::Literal(literal));
        if problems.is_empty() { Ok(Self { typed: typed.to_string(), parts }) } else { Err(problems) }
    }

    /// What was typed, variables by their names.
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// What it stands for.
    pub fn text(&self) -> String {
        self.parts.iter().map(Part::value).collect()
    }

    /// What it stands for as a URL: the value of a variable inside a longer text is percent-encoded, so that
    /// a password with an `@` or `/` cannot be taken for the URL's own. A variable that is the whole text is
    /// the whole URL.
    pub fn url_text(&self) -> String {
        if self.is_one_variable() {
            return self.text();
        }
        self.parts
            .iter()
            .map(|part| match part {
                Part::Literal(text) => text.clone(),
                Part::Variable(value) => percent_encoded(value),
            })
            .collect()
    }

    /// Whether any of the text comes from the environment.
    pub fn has_variable(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Variable(_)))
    }

    fn is_one_variable(&self) -> bool {
        self.has_variable() && self.parts.iter().filter(|part| !part.value().is_empty()).count() <= 1
    }
}

impl Part {
    fn value(&self) -> &str {
        match self {
            Self::Literal(text) | Self::Variable(text) => text,
        }
    }
}

fn variable(name: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!(
            "`${{{name}}}`: write the name of an environment variable as ${{NAME}}, and $$ for a dollar sign"
        ));
    }
    environment(name).ok_or_else(|| format!("the environment variable {name} is not set"))
}

/// Everything but RFC 3986's unreserved characters as `%XX`.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The bytes that `%XX` stand for put back; a `%` before anything else stands for itself. Bytes that are
/// no UTF-8 come as U+FFFD.
pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        match after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(b'%');
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        [("A", "alpha"), ("PASSWORD", "p@ss/w%d"), ("EMPTY", "")]
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.to_string())
    }

    fn check(typed: &str, expected: Result<&str, &str>) {
        let found = Text::new(typed, &environment).map(|text| text.text()).map_err(|problems| problems.join("; "));
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{typed}");
    }

    #[test]
    fn variables_are_replaced_and_dollars_escaped() {
        check("${A}/x/${A}", Ok("alpha/x/alpha"));
        check("$$${A} costs $5$", Ok("$alpha costs $5$"));
        check("$${A}", Ok("${A}"));
        check("${EMPTY}", Ok(""));
    }

    #[test]
    fn every_missing_variable_is_named() {
        check("${X}${Y}", Err("the environment variable X is not set; the environment variable Y is not set"));
        check(
            "${A:-b}",
            Err("`${A:-b}`: write the name of an environment variable as ${NAME}, and $$ for a dollar sign"),
        );
        check("${A", Err("has a ${ without its }; write $$ for a dollar sign"));
    }

    #[test]
    fn a_variable_inside_a_url_is_encoded_and_a_whole_url_is_not() {
        let url = |typed| Text::new(typed, &environment).unwrap().url_text();
        assert_eq!(url("mysql://u:${PASSWORD}@h"), "mysql://u:p%40ss%2Fw%25d@h");
        assert_eq!(url("${PASSWORD}"), "p@ss/w%d");
        assert_eq!(percent_decoded("p%40ss%2Fw%25d%"), "p@ss/w%d%");
    }

    #[test]
    fn a_secret_is_not_shown_by_debug() {
        assert_eq!(format!("{:?}", Text::new("${PASSWORD}", &environment).unwrap()), "\"${PASSWORD}\"");
    }
}
