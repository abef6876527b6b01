//! The JSON Schema of the job file, for editors, made from what the parser reads by.

use serde_json::{Value as Json, json};

use super::raw::{RawJob, mappings};
use super::read::{FromNode, Need};

/// The JSON Schema (draft 2020-12) of a job file.
pub fn json_schema() -> Json {
    let mut schema = RawJob::schema();
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        object.insert("title".into(), json!("Alluvium job file"));
    }
    schema
}

/// What is known of one key of the job file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The path of the mapping that it belongs to: `source.snapshot`, `tables[]`, empty for the file itself.
    pub parent: &'static str,
    pub name: &'static str,
    pub about: &'static str,
    /// What holds where the key is left out; `None` for a key that must be there.
    pub default: Option<&'static str>,
}

/// Every key that a job file may have, in the order of the documentation.
pub fn keys() -> Vec<Key> {
    let of_mapping = |(parent, keys): (&'static str, &'static [super::read::KeyDoc])| {
        keys.iter().map(move |key| Key {
            parent,
            name: key.name,
            about: key.about.trim(),
            default: match key.need {
                Need::Required(_) => None,
                Need::Default(default) => Some(default),
            },
        })
    };
    mappings().into_iter().flat_map(of_mapping).collect()
}
