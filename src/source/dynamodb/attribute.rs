//! Items in DynamoDB's own JSON (`{"id": {"N": "7"}, "tags": {"SS": ["a"]}}`), as its API, the events of its streams and
//! its exports have them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::number::Number;

/// Text that is borrowed from the JSON where it has no escapes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<'a>(pub Cow<'a, str>);

/// The value of one attribute. Nesting is bounded by the JSON reader: 128 levels, and DynamoDB allows 32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attribute<'a> {
    Text(Text<'a>),
    /// As it was written; [`Number`] reads it.
    Number(Text<'a>),
    /// In Base64.
    Binary(Text<'a>),
    Bool(bool),
    Null,
    Map(Item<'a>),
    List(Vec<Attribute<'a>>),
    Texts(Vec<Text<'a>>),
    Numbers(Vec<Text<'a>>),
    Binaries(Vec<Text<'a>>),
}

/// An item, or a map within one: names and values, sorted by name, so that the order in which a server happens to write
/// them makes no difference. The last of equal names counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Item<'a>(pub Vec<(Text<'a>, Attribute<'a>)>);

impl<'a> Item<'a> {
    pub fn get(&self, name: &str) -> Option<&Attribute<'a>> {
        let found = self.0.binary_search_by(|(known, _)| known.0.as_ref().cmp(name)).ok()?;
        self.0.get(found).map(|(_, value)| value)
    }
}

impl Attribute<'_> {
    /// The value as text: text as it is, numbers in one spelling for each value, binary values in Base64, and everything else as
    /// JSON. `None` for null.
    pub fn to_text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) | Self::Binary(text) => Some(text.0.to_string()),
            Self::Number(text) => Some(canonical(&text.0)),
            other => {
                let mut json = String::new();
                other.write_json(&mut json);
                Some(json)
            }
        }
    }

    /// Appends the value as plain JSON: numbers with all their digits, binary values as Base64 text, sets as sorted arrays, the
    /// members of maps sorted by name.
    pub fn write_json(&self, json: &mut String) {
        match self {
            Self::Null => json.push_str("null"),
            Self::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
            Self::Text(text) | Self::Binary(text) => push_quoted(json, &text.0),
            Self::Number(text) => push_number(json, &text.0),
            Self::Map(item) => push_item(json, item.0.iter().map(|(name, value)| (name.0.as_ref(), value))),
            Self::List(values) => push_array(json, values.iter(), |json, value| value.write_json(json)),
            Self::Texts(texts) | Self::Binaries(texts) => {
                push_array(json, sorted(texts), push_quoted);
            }
            Self::Numbers(texts) => push_array(json, sorted(texts), push_number),
        }
    }
}

/// Appends a JSON object.
pub(super) fn push_item<'v, 'a: 'v>(json: &mut String, members: impl Iterator<Item = (&'v str, &'v Attribute<'a>)>) {
    json.push('{');
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_quoted(json, name);
        json.push(':');
        value.write_json(json);
    }
    json.push('}');
}

fn push_array<T>(json: &mut String, values: impl Iterator<Item = T>, push: impl Fn(&mut String, T)) {
    json.push('[');
    for (index, value) in values.enumerate() {
        if index > 0 {
            json.push(',');
        }
        push(json, value);
    }
    json.push(']');
}

/// A set has no order of its own.
fn sorted<'v>(texts: &'v [Text<'_>]) -> impl Iterator<Item = &'v str> {
    let mut sorted: Vec<&str> = texts.iter().map(|text| text.0.as_ref()).collect();
    sorted.sort_unstable();
    sorted.into_iter()
}

fn push_quoted(json: &mut String, text: &str) {
    // Text always has a JSON form.
    json.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// What is no number stays readable as text.
fn push_number(json: &mut String, text: &str) {
    match Number::parse(text) {
        Some(number) => json.push_str(&number.canonical()),
        None => push_quoted(json, text),
    }
}

fn canonical(text: &str) -> String {
    Number::parse(text).map_or_else(|| text.to_string(), |number| number.canonical())
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_string())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Item<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an item: attribute names with values such as {\"S\": \"text\"}")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members: Vec<(Text<'de>, Attribute<'de>)> = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                // Stable, so that of equal names the last one is the last in its run.
                members.sort_by(|one, other| one.0.cmp(&other.0));
                members.reverse();
                members.dedup_by(|later, kept| later.0 == kept.0);
                members.reverse();
                Ok(Item(members))
            }
        }
        deserializer.deserialize_map(ItemVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Attribute<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AttributeVisitor;
        impl<'de> Visitor<'de> for AttributeVisitor {
            type Value = Attribute<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of one type, such as {\"S\": \"text\"} or {\"N\": \"7\"}")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let Some(kind) = map.next_key::<Text<'de>>()? else {
                    return Err(M::Error::custom("a value without a type: expected one such as {\"S\": \"text\"}"));
                };
                let value = match kind.0.as_ref() {
                    "S" => Attribute::Text(map.next_value()?),
                    "N" => Attribute::Number(map.next_value()?),
                    "B" => Attribute::Binary(map.next_value()?),
                    "BOOL" => Attribute::Bool(map.next_value()?),
                    "NULL" => map.next_value::<bool>().map(|_| Attribute::Null)?,
                    "M" => Attribute::Map(map.next_value()?),
                    "L" => Attribute::List(map.next_value::<Values<'de>>()?.0),
                    "SS" => Attribute::Texts(map.next_value()?),
                    "NS" => Attribute::Numbers(map.next_value()?),
                    "BS" => Attribute::Binaries(map.next_value()?),
                    other => return Err(M::Error::custom(format!("{other:?} is no type of DynamoDB"))),
                };
                match map.next_key::<Text<'de>>()? {
                    None => Ok(value),
                    Some(second) => {
                        Err(M::Error::custom(format!("a value of two types, the second is {:?}", second.0)))
                    }
                }
            }
        }
        deserializer.deserialize_map(AttributeVisitor)
    }
}

/// The values of a list.
struct Values<'a>(Vec<Attribute<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Values<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValuesVisitor;
        impl<'de> Visitor<'de> for ValuesVisitor {
            type Value = Values<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of values")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_seq(ValuesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(value: &str) -> Option<String> {
        serde_json::from_str::<Attribute<'_>>(value).unwrap().to_text()
    }

    #[test]
    fn every_type_has_its_text() {
        for (value, expected) in [
            (r#"{"S": "a\"b\nc"}"#, "a\"b\nc"),
            (r#"{"N": "12.50"}"#, "12.5"),
            (r#"{"B": "AAEC"}"#, "AAEC"),
            (r#"{"BOOL": true}"#, "true"),
            (r#"{"SS": ["b", "a"]}"#, r#"["a","b"]"#),
            (r#"{"NS": ["10", "1.0"]}"#, "[1,10]"),
            (r#"{"BS": ["AQ==", "AA=="]}"#, r#"["AA==","AQ=="]"#),
            (
                r#"{"L": [{"NULL": true}, {"L": []}, {"N": "99999999999999999999999999999999999999"}]}"#,
                "[null,[],99999999999999999999999999999999999999]",
            ),
            (r#"{"M": {"z": {"S": "é"}, "a": {"M": {}}}}"#, r#"{"a":{},"z":"é"}"#),
        ] {
            assert_eq!(text_of(value).as_deref(), Some(expected), "{value}");
        }
        assert_eq!(text_of(r#"{"NULL": true}"#), None);
    }

    #[test]
    fn of_equal_names_the_last_counts() {
        let item: Item<'_> = serde_json::from_str(r#"{"a": {"N": "1"}, "b": {"N": "2"}, "a": {"N": "3"}}"#).unwrap();
        assert_eq!(item.0.len(), 2);
        assert_eq!(item.get("a").unwrap().to_text().as_deref(), Some("3"));
        assert!(item.get("c").is_none());
    }

    #[test]
    fn what_is_no_value_is_an_error_and_never_a_panic() {
        let deep = format!("{}{}{}", r#"{"L": ["#.repeat(500), r#"{"S": "x"}"#, "]}".repeat(500));
        for value in [
            "{}",
            "7",
            r#""text""#,
            r#"{"S": 7}"#,
            r#"{"N": 7}"#,
            r#"{"X": "7"}"#,
            r#"{"S": "a", "N": "7"}"#,
            r#"{"L": {"S": "a"}}"#,
            r#"{"M": {"a": "b"}}"#,
            r#"{"S": "a"#,
            &deep,
        ] {
            assert!(serde_json::from_str::<Attribute<'_>>(value).is_err(), "{value}");
        }
    }
}
