//! From the tree of a job file to the structs that mirror it, and from the same structs to its JSON Schema.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::problem::{Mark, Report, closest};
use super::substitute::Text;
use super::yaml::{Node, Value, item_path, key_path};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub at: Mark,
    pub path: String,
    pub value: T,
}

/// What a key of a mapping holds.
#[derive(Debug, Clone, Default)]
pub(super) enum Field<T> {
    /// The key is not there, or has no value.
    #[default]
    Missing,
    /// The key is there, and its problem has been reported.
    Invalid,
    Set(At<T>),
}

impl<T> Field<T> {
    pub fn set(&self) -> Option<&At<T>> {
        match self {
            Self::Set(at) => Some(at),
            Self::Missing | Self::Invalid => None,
        }
    }
}

/// A type that a node of the job file can be read as.
pub(super) trait FromNode: Sized {
    /// `None` once the problem, or all of them, have been reported.
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self>;

    /// The JSON Schema of what `from_node` takes.
    fn schema() -> Json;
}

/// One key of a mapping: read by the parser, shown to editors, described by `docs/job-file.md`.
#[derive(Debug)]
pub(super) struct KeyDoc {
    pub name: &'static str,
    pub about: &'static str,
    pub need: Need,
    pub schema: fn() -> Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Must be there; an example of what to write.
    Required(&'static str),
    /// May be left out; what then holds.
    Default(&'static str),
}

/// Keys that a later version will know, refused rather than ignored.
pub(super) type LaterKeys = &'static [&'static str];

/// Checks the keys of a mapping and gives its nodes by name; `None` if the node is no mapping.
pub(super) fn entries<'a>(
    node: &'a Node,
    path: &str,
    keys: &[KeyDoc],
    later: LaterKeys,
    report: &mut Report,
) -> Option<BTreeMap<&'a str, &'a Node>> {
    let Value::Map(entries) = &node.value else {
        let names: Vec<_> = keys.iter().map(|key| key.name).collect();
        return wrong_type(node, path, &format!("a mapping with the keys {}", names.join(", ")), report);
    };
    let names = || keys.iter().map(|key| key.name);
    for (key, _) in entries.iter().filter(|(key, _)| !names().any(|name| name == key.text)) {
        let path = key_path(path, &key.text);
        if later.contains(&key.text.as_str()) {
            report.add(key.at, &path, "is not supported yet: leave it out");
            continue;
        }
        let hint = match closest(&key.text, names()) {
            Some(name) => format!("is not a key here; did you mean {name}?"),
            None => format!("is not a key here; the keys are {}", names().collect::<Vec<_>>().join(", ")),
        };
        report.add(key.at, &path, hint);
    }
    let found: BTreeMap<_, _> = entries.iter().map(|(key, node)| (key.text.as_str(), node)).collect();
    for key in keys {
        let is_missing = found.get(key.name).is_none_or(|node| matches!(node.value, Value::Null));
        if let Need::Required(example) = key.need
            && is_missing
        {
            let at = found.get(key.name).map_or(node.at, |node| node.at);
            report.add(at, &key_path(path, key.name), format!("is missing: write for example `{example}`"));
        }
    }
    Some(found)
}

/// Reads the value of one key.
pub(super) fn field<T: FromNode>(
    entries: &BTreeMap<&str, &Node>,
    name: &str,
    path: &str,
    report: &mut Report,
) -> Field<T> {
    match entries.get(name) {
        None => Field::Missing,
        Some(node) if matches!(node.value, Value::Null) => Field::Missing,
        Some(node) => at(node, key_path(path, name), report).map_or(Field::Invalid, Field::Set),
    }
}

fn at<T: FromNode>(node: &Node, path: String, report: &mut Report) -> Option<At<T>> {
    let value = T::from_node(node, &path, report)?;
    Some(At { at: node.at, path, value })
}

/// The JSON Schema of a mapping with these keys.
pub(super) fn mapping_schema(about: &str, keys: &[KeyDoc]) -> Json {
    let properties: serde_json::Map<_, _> = keys.iter().map(|key| (key.name.to_string(), property(key))).collect();
    let required: Vec<_> =
        keys.iter().filter(|key| matches!(key.need, Need::Required(_))).map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": about.trim(),
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &KeyDoc) -> Json {
    let mut schema = (key.schema)();
    let about = match key.need {
        Need::Required(_) => key.about.trim().to_string(),
        Need::Default(default) => format!("{} Default: {default}.", key.about.trim()),
    };
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".into(), about.into());
    }
    schema
}

/// Reports that the node is not `wanted`, unless its problem is known.
pub(super) fn wrong_type<T>(node: &Node, path: &str, wanted: &str, report: &mut Report) -> Option<T> {
    if !matches!(node.value, Value::Invalid) {
        report.add(node.at, path, format!("must be {wanted}, found {}", node.value.describe()));
    }
    None
}

impl FromNode for Text {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) => Some(text.clone()),
            _ => wrong_type(node, path, "text", report),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl FromNode for u64 {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        let Value::Scalar(text) = &node.value else { return wrong_type(node, path, "a whole number", report) };
        let number = text.text().replace('_', "").parse().ok();
        if number.is_none() {
            report.add(node.at, path, format!("must be a whole number, found `{}`", text.typed()));
        }
        number
    }

    fn schema() -> Json {
        // The pattern is for a number that comes from a variable.
        json!({ "type": ["integer", "string"], "minimum": 0, "pattern": "^\\$\\{" })
    }
}

impl FromNode for bool {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        let word = word_of(node, path, &["true", "false"], report)?;
        Some(word == "true")
    }

    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

impl<T: FromNode> FromNode for Vec<At<T>> {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        let Value::List(items) = &node.value else { return wrong_type(node, path, "a list", report) };
        // All items are read, so that each can report its own problem.
        let items: Vec<_> =
            items.iter().enumerate().map(|(index, item)| at(item, item_path(path, index), report)).collect();
        items.into_iter().collect()
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema() })
    }
}

impl<T: FromNode> FromNode for BTreeMap<String, At<T>> {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        let Value::Map(entries) = &node.value else { return wrong_type(node, path, "a mapping", report) };
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, node)| Some((key.text.clone(), at(node, key_path(path, &key.text), report)?)))
            .collect();
        entries.into_iter().collect()
    }

    fn schema() -> Json {
        let value = T::schema();
        // Numbers and switches are read as the text that they are written as.
        let value = if value == Text::schema() { json!({ "type": ["string", "number", "boolean"] }) } else { value };
        json!({ "type": "object", "additionalProperties": value })
    }
}

/// Declares a mapping of the job file: a struct with a [`Field`] for each key, its reader, and its schema.
/// `required "example"` keys must be there; `default "what holds otherwise"` keys may be left out.
macro_rules! mapping {
    (
        $(#[doc = $about:literal])*
        struct $name:ident {
            $( $(#[doc = $doc:literal])* $field:ident : $kind:ty => $need:ident $text:literal, )*
        }
        later [$($later:literal),*]
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Default)]
        pub(in crate::config) struct $name { $( $(#[doc = $doc])* pub $field: Field<$kind>, )* }

        impl $name {
            pub const KEYS: &'static [KeyDoc] = &[$( KeyDoc {
                name: key_name(stringify!($field)),
                about: concat!($($doc),*),
                need: mapping!(@need $need $text),
                schema: <$kind as FromNode>::schema,
            }, )*];
        }

        impl FromNode for $name {
            fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
                let entries = entries(node, path, Self::KEYS, &[$($later),*], report)?;
                Some(Self { $( $field: field(&entries, key_name(stringify!($field)), path, report), )* })
            }

            fn schema() -> serde_json::Value {
                mapping_schema(concat!($($about),*), Self::KEYS)
            }
        }
    };
    (@need required $text:literal) => { Need::Required($text) };
    (@need default $text:literal) => { Need::Default($text) };
}

/// Declares an enum of words: each variant with the word that is written in the job file.
macro_rules! words {
    ($(#[doc = $about:literal])* enum $name:ident { $( $word:literal => $variant:ident, )* }) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::config) enum $name { $($variant),* }

        impl $name {
            pub fn word(self) -> &'static str {
                match self { $( Self::$variant => $word, )* }
            }
        }

        impl FromNode for $name {
            fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
                let words = [$($word),*];
                let typed = word_of(node, path, &words, report)?;
                match typed.as_str() {
                    $( $word => Some(Self::$variant), )*
                    _ => None,
                }
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),*] })
            }
        }
    };
}

pub(super) use {mapping, words};

/// The text of a node that must be one of `words`.
pub(super) fn word_of(node: &Node, path: &str, words: &[&str], report: &mut Report) -> Option<String> {
    let wanted = words.join(" or ");
    let Value::Scalar(text) = &node.value else { return wrong_type(node, path, &wanted, report) };
    let found = text.text();
    if words.contains(&found.as_str()) {
        return Some(found);
    }
    report.add(node.at, path, format!("must be {wanted}, found `{}`", text.typed()));
    None
}

/// `r#type` is written `type`.
pub(super) const fn key_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}
