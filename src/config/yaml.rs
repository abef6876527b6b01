//! YAML text to a tree in which every node knows where it stands.
//!
//! Only what a job file needs: mappings with text keys, lists, scalars. The tree is built from the parser's
//! events and not by its loader, because a file must not be able to exhaust the stack or the memory, and
//! because every duplicate key is to be reported, not the first alone.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::problem::{Mark, Report};
use super::substitute::Text;

/// Deeper nesting than a job file can have; keeps the recursion below far from the end of the stack.
const DEPTH_MAX: usize = 32;

/// Nodes in the tree, those that aliases repeat included: a file of nested aliases ("billion laughs") would
/// otherwise grow without end. A job file of 1 MiB that is written out has fewer.
const NODES_MAX: usize = 200_000;

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub at: Mark,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Scalar(Text),
    List(Vec<Node>),
    /// In the order of the file, without duplicates.
    Map(Vec<(Key, Node)>),
    /// Something whose problem has been reported already.
    Invalid,
}

#[derive(Debug, Clone)]
pub(super) struct Key {
    pub at: Mark,
    pub text: String,
}

impl Value {
    /// What the node is, for messages of the form "must be a list, found text".
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
            Self::Invalid => "something invalid",
        }
    }
}

/// The one document of `text`, or `None` after a problem that leaves no tree to look at.
/// `environment` gives the values of `${NAME}`.
pub(super) fn parse(text: &str, environment: &dyn Fn(&str) -> Option<String>, report: &mut Report) -> Option<Node> {
    let mut builder =
        Builder { parser: Parser::new_from_str(text), environment, report, anchors: HashMap::new(), nodes: 0 };
    match builder.document() {
        Ok(root) => Some(root),
        Err(stop) => {
            report.add(stop.at, "", stop.message + quotes_hint(text, stop.at));
            None
        }
    }
}

/// The usual reason why a line with a variable is not YAML: inside `{}` or `[]` a brace ends the value.
fn quotes_hint(text: &str, at: Mark) -> &'static str {
    let line = text.lines().nth(at.line - 1).unwrap_or_default();
    let has_variable = line.contains("${") && !line.contains("\"${");
    if has_variable { "; inside braces or brackets write variables in quotes: \"${NAME}\"" } else { "" }
}

/// A problem after which the rest of the file cannot be made sense of.
struct Stop {
    at: Mark,
    message: String,
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        Self { at: mark(*error.marker()), message: format!("is not valid YAML: {}", error.info()) }
    }
}

fn mark(marker: Marker) -> Mark {
    Mark { line: marker.line().max(1), column: marker.col() + 1 }
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    environment: &'a dyn Fn(&str) -> Option<String>,
    report: &'a mut Report,
    /// Finished nodes with an anchor, and how many nodes each holds.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Mark), Stop> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, start(span))),
            Some(Err(error)) => Err(error.into()),
            None => Ok((Event::StreamEnd, Mark { line: 1, column: 1 })),
        }
    }

    fn document(&mut self) -> Result<Node, Stop> {
        let mut root = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamEnd => {
                    let empty = || Stop { at, message: "is empty: start with `version: 1`".into() };
                    return root.ok_or_else(empty);
                }
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(Stop { at, message: "holds a second document (---): write one job to a file".into() });
                }
                Event::DocumentStart(_) => {
                    let (event, at) = self.next()?;
                    root = Some(self.node(event, at, 0, "")?);
                }
                _ => return Err(Stop { at, message: "is not valid YAML: a document was expected".into() }),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, at: Mark, depth: usize, path: &str) -> Result<Node, Stop> {
        if depth > DEPTH_MAX {
            return Err(Stop { at, message: format!("is nested more than {DEPTH_MAX} levels deep") });
        }
        let nodes_before = self.nodes;
        self.count(1, at)?;
        let (anchor, tag, value) = match event {
            Event::Alias(anchor) => return self.alias(anchor, at, path),
            Event::Scalar(text, style, anchor, tag) => (anchor, tag, self.scalar(&text, style, at, path)),
            Event::SequenceStart(anchor, tag) => (anchor, tag, self.list(depth, path)?),
            Event::MappingStart(anchor, tag) => (anchor, tag, self.map(depth, path)?),
            _ => return Err(Stop { at, message: "is not valid YAML: a value was expected".into() }),
        };
        if let Some(tag) = tag {
            self.report.add(at, path, format!("has the tag {tag}: tags have no meaning in a job file; leave it out"));
        }
        let node = Node { at, value };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - nodes_before));
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize, at: Mark) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return Err(Stop { at, message: format!("has more than {NODES_MAX} values, repeated ones counted") });
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: Mark, path: &str) -> Result<Node, Stop> {
        let Some((node, nodes)) = self.anchors.get(&anchor).cloned() else {
            self.report.add(at, path, "refers to a value that it is part of");
            return Ok(Node { at, value: Value::Invalid });
        };
        self.count(nodes, at)?;
        Ok(node)
    }

    fn scalar(&mut self, typed: &str, style: ScalarStyle, at: Mark, path: &str) -> Value {
        if style == ScalarStyle::Plain && matches!(typed, "" | "~" | "null" | "Null" | "NULL") {
            return Value::Null;
        }
        match Text::new(typed, self.environment) {
            Ok(text) => Value::Scalar(text),
            Err(problems) => {
                for problem in problems {
                    self.report.add(at, path, problem);
                }
                Value::Invalid
            }
        }
    }

    fn list(&mut self, depth: usize, path: &str) -> Result<Value, Stop> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Value::List(items));
            }
            let path = item_path(path, items.len());
            items.push(self.node(event, at, depth + 1, &path)?);
        }
    }

    fn map(&mut self, depth: usize, path: &str) -> Result<Value, Stop> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, at) = self.next()?;
            let text = match event {
                Event::MappingEnd => return Ok(Value::Map(entries)),
                Event::Scalar(text, ..) => Some(text.into_owned()),
                event => {
                    self.node(event, at, depth + 1, path)?;
                    self.report.add(at, path, "has a key that is not text");
                    None
                }
            };
            let key_path = key_path(path, text.as_deref().unwrap_or("?"));
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth + 1, &key_path)?;
            let Some(text) = text else { continue };
            if let Some(line) = lines.get(&text) {
                self.report.add(at, &key_path, format!("is there twice; the first is on line {line}"));
                continue;
            }
            lines.insert(text.clone(), at.line);
            entries.push((Key { at, text }, value));
        }
    }
}

fn start(span: Span) -> Mark {
    mark(span.start)
}

/// `source` and `tables` make `source.tables`.
pub(super) fn key_path(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_string() } else { format!("{parent}.{key}") }
}

/// `tables` and 2 make `tables[2]`.
pub(super) fn item_path(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree in a short notation, or the problems.
    fn check(text: &str, expected: &str) {
        let mut report = Report::default();
        let node = parse(text, &|name| (name == "HOME").then(|| "/here".into()), &mut report);
        let found = match node {
            Some(node) if report.is_empty() => show(&node),
            _ => report.into_problems("f".into()).to_string(),
        };
        assert_eq!(found, expected, "{}", text.chars().take(200).collect::<String>());
    }

    fn show(node: &Node) -> String {
        match &node.value {
            Value::Null => "-".into(),
            Value::Scalar(text) => text.text(),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
            Value::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| format!("{}:{}", key.text, show(value)));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(" "))
            }
            Value::Invalid => "!".into(),
        }
    }

    #[test]
    fn a_tree_has_the_shape_of_its_text() {
        check("a: 1\nb: [x, 'y z', ~]\nc:\n  d: ${HOME}/x\n  e:\n", "{a:1 b:[x y z -] c:{d:/here/x e:-}}");
        check("a: &x {k: 1}\nb: *x\n", "{a:{k:1} b:{k:1}}");
    }

    #[test]
    fn every_problem_has_its_place() {
        check("", "f:1:1: is empty: start with `version: 1`");
        check(
            "a: 1\nb: 2\na: 3\nb: 4\n",
            "f:3:1 a: is there twice; the first is on line 1\nf:4:1 b: is there twice; the first is on line 2",
        );
        check("a: 1\n---\nb: 2\n", "f:2:1: holds a second document (---): write one job to a file");
        check("a:\n  b: ${NOPE}\n", "f:2:6 a.b: the environment variable NOPE is not set");
        check("a: &x [*x]\n", "f:1:8 a[0]: refers to a value that it is part of");
        check(
            "a: !!int 3\n",
            "f:1:4 a: has the tag tag:yaml.org,2002:!int: tags have no meaning in a job file; leave it out",
        );
        check("? [a]\n: 1\n", "f:1:3: has a key that is not text");
    }

    #[test]
    fn broken_yaml_is_reported_where_it_breaks() {
        let mut report = Report::default();
        assert!(parse("a: [1,\nb: 2\n", &|_| None, &mut report).is_none());
        let text = report.into_problems("f".into()).to_string();
        assert!(text.starts_with("f:2:") && text.contains("is not valid YAML"), "{text}");
    }

    #[test]
    fn a_variable_without_quotes_inside_braces_is_explained() {
        check(
            "a: { b: ${HOME} }\n",
            "f:1:10: is not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'; inside braces \
             or brackets write variables in quotes: \"${NAME}\"",
        );
    }

    #[test]
    fn deep_and_repeated_nesting_ends_in_a_message() {
        for text in ["- ".repeat(100_000), "[".repeat(200), "a: {".repeat(50)] {
            let mut report = Report::default();
            assert!(parse(&text, &|_| None, &mut report).is_none());
        }
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let alias = format!("*a{}, ", level - 1).repeat(10);
            laughs += &format!("a{level}: &a{level} [{alias}]\n");
        }
        let mut report = Report::default();
        assert!(parse(&laughs, &|_| None, &mut report).is_none());
        assert!(report.into_problems("f".into()).to_string().contains("more than 200000 values"));
    }
}
