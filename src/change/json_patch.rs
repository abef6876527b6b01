//! Changes of parts of a JSON document, kept as text until the document that they change is at hand.
//!
//! A patch is one line for each step, in order: `replace`, `insert` or `remove` as its first letter, a tab, the path
//! as MySQL writes it (`$.items[2]."a b"`), and, but for `remove`, a tab and the value. Patches of one document one
//! after the other are one patch. Documents and values are text as MySQL prints it: one space behind commas and
//! colons, keys ordered by their length and then by their bytes. (WL#2955 of MySQL describes the steps.)

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("a step of the JSON patch cannot be read")]
    Step,
    #[error("the document has nothing at the place that its patch changes")]
    Place,
    #[error("the document is no JSON")]
    Document,
}

/// What a step does at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Replace,
    /// A new member of an object, or an element before that index of an array (at its end, past the last).
    Insert,
    Remove,
}

impl Step {
    fn letter(self) -> char {
        match self {
            Self::Replace => 'r',
            Self::Insert => 'i',
            Self::Remove => 'd',
        }
    }
}

/// Adds a step to a patch. `value` is left out for [`Step::Remove`].
///
/// # Errors
/// [`PatchError::Step`] if the path holds a character that no printed path has.
pub fn push(patch: &mut String, step: Step, path: &str, value: &str) -> Result<(), PatchError> {
    if path.contains(['\t', '\n']) || value.contains(['\t', '\n']) {
        return Err(PatchError::Step);
    }
    patch.push(step.letter());
    patch.push('\t');
    patch.push_str(path);
    if step != Step::Remove {
        patch.push('\t');
        patch.push_str(value);
    }
    patch.push('\n');
    Ok(())
}

/// The document after all steps of `patch`.
///
/// # Errors
/// The document is not the one that the patch was made for, or either is damaged.
pub fn apply(document: &str, patch: &str) -> Result<String, PatchError> {
    let mut text = document.to_string();
    for line in patch.lines() {
        let mut fields = line.split('\t');
        let (step, path, value) = (fields.next(), fields.next().ok_or(PatchError::Step)?, fields.next());
        let legs = legs(path)?;
        text = match (step, value) {
            (Some("r"), Some(value)) => replace(&text, &legs, value)?,
            (Some("i"), Some(value)) => insert(&text, &legs, value)?,
            (Some("d"), None) => remove(&text, &legs)?,
            _ => return Err(PatchError::Step),
        };
    }
    Ok(text)
}

/// One step down into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leg {
    Member(String),
    Cell(usize),
}

fn legs(path: &str) -> Result<Vec<Leg>, PatchError> {
    let mut rest = path.strip_prefix('$').ok_or(PatchError::Step)?;
    let mut legs = Vec::new();
    while !rest.is_empty() {
        let (leg, behind) = if let Some(cell) = rest.strip_prefix('[') {
            let (number, behind) = cell.split_once(']').ok_or(PatchError::Step)?;
            (Leg::Cell(number.parse().map_err(|_| PatchError::Step)?), behind)
        } else {
            let member = rest.strip_prefix('.').ok_or(PatchError::Step)?;
            let end = if member.starts_with('"') {
                string_end(member, 0).map_err(|_| PatchError::Step)?
            } else {
                member.find(['.', '[']).unwrap_or(member.len())
            };
            let (name, behind) = member.split_at_checked(end).ok_or(PatchError::Step)?;
            let name = if name.starts_with('"') { decoded(name).map_err(|_| PatchError::Step)? } else { name.into() };
            (Leg::Member(name), behind)
        };
        legs.push(leg);
        rest = behind;
    }
    Ok(legs)
}

/// A child of an object or array, by offsets in the document's text.
#[derive(Debug, Clone)]
struct Child {
    /// Of its key, or of its value in an array.
    start: usize,
    value: std::ops::Range<usize>,
    key: Option<String>,
}

fn replace(text: &str, legs: &[Leg], value: &str) -> Result<String, PatchError> {
    let at = find(text, legs)?;
    splice(text, at, value)
}

fn remove(text: &str, legs: &[Leg]) -> Result<String, PatchError> {
    let (last, parents) = legs.split_last().ok_or(PatchError::Place)?;
    let children = children(text, find(text, parents)?.start)?;
    let index = position(&children, last).ok_or(PatchError::Place)?;
    let child = children.get(index).ok_or(PatchError::Place)?;
    // The separator before it goes too, or the one behind the first.
    let range = match (index.checked_sub(1).and_then(|before| children.get(before)), children.get(index + 1)) {
        (Some(before), _) => before.value.end..child.value.end,
        (None, Some(next)) => child.start..next.start,
        (None, None) => child.start..child.value.end,
    };
    splice(text, range, "")
}

fn insert(text: &str, legs: &[Leg], value: &str) -> Result<String, PatchError> {
    let (last, parents) = legs.split_last().ok_or(PatchError::Place)?;
    let parent = find(text, parents)?;
    let children = children(text, parent.start)?;
    let is_object = text.as_bytes().get(parent.start) == Some(&b'{');
    let (index, piece) = match last {
        Leg::Cell(index) if !is_object => ((*index).min(children.len()), value.to_string()),
        Leg::Member(name) if is_object => {
            if position(&children, last).is_some() {
                return Err(PatchError::Place);
            }
            let is_before = |child: &Child| child.key.as_ref().is_some_and(|key| order(key) < order(name));
            let quoted = serde_json::to_string(name).map_err(|_| PatchError::Step)?;
            (children.partition_point(is_before), format!("{quoted}: {value}"))
        }
        _ => return Err(PatchError::Place),
    };
    match (children.get(index), children.last()) {
        (Some(next), _) => splice(text, next.start..next.start, &format!("{piece}, ")),
        (None, Some(before)) => splice(text, before.value.end..before.value.end, &format!(", {piece}")),
        (None, None) => splice(text, parent.start + 1..parent.start + 1, &piece),
    }
}

/// How MySQL orders the keys of an object.
fn order(key: &str) -> (usize, &[u8]) {
    (key.len(), key.as_bytes())
}

fn splice(text: &str, range: std::ops::Range<usize>, piece: &str) -> Result<String, PatchError> {
    let (head, tail) = (text.get(..range.start), text.get(range.end..));
    let (head, tail) = head.zip(tail).ok_or(PatchError::Document)?;
    Ok([head, piece, tail].concat())
}

/// Where the value at the end of the path stands.
fn find(text: &str, legs: &[Leg]) -> Result<std::ops::Range<usize>, PatchError> {
    let mut at = 0..text.len();
    for leg in legs {
        let children = children(text, at.start)?;
        let index = match leg {
            // MySQL takes a value that is no array for one of that single element.
            Leg::Cell(0) if text.as_bytes().get(at.start) != Some(&b'[') => continue,
            leg => position(&children, leg).ok_or(PatchError::Place)?,
        };
        at = children.get(index).ok_or(PatchError::Place)?.value.clone();
    }
    Ok(at)
}

fn position(children: &[Child], leg: &Leg) -> Option<usize> {
    match leg {
        Leg::Cell(index) => children.get(*index).filter(|child| child.key.is_none()).map(|_| *index),
        Leg::Member(name) => children.iter().position(|child| child.key.as_ref() == Some(name)),
    }
}

/// The children of the object or array that begins at `at`; none for any other value.
fn children(text: &str, at: usize) -> Result<Vec<Child>, PatchError> {
    let bytes = text.as_bytes();
    let is_object = match bytes.get(at) {
        Some(b'{') => true,
        Some(b'[') => false,
        _ => return Ok(Vec::new()),
    };
    let mut children = Vec::new();
    let mut here = at + 1;
    loop {
        match bytes.get(here) {
            Some(b'}' | b']') => return Ok(children),
            Some(b',' | b' ') => here += 1,
            Some(_) => {
                let start = here;
                let mut key = None;
                if is_object {
                    let end = string_end(text, here)?;
                    key = Some(decoded(text.get(here..end).ok_or(PatchError::Document)?)?);
                    here = end;
                    while matches!(bytes.get(here), Some(b':' | b' ')) {
                        here += 1;
                    }
                }
                let end = value_end(text, here)?;
                children.push(Child { start, value: here..end, key });
                here = end;
            }
            None => return Err(PatchError::Document),
        }
    }
}

/// Where the value that begins at `at` ends.
fn value_end(text: &str, at: usize) -> Result<usize, PatchError> {
    let bytes = text.as_bytes();
    let (mut here, mut depth) = (at, 0_usize);
    while let Some(byte) = bytes.get(here) {
        match byte {
            b'"' => here = string_end(text, here)?,
            b'{' | b'[' => {
                depth += 1;
                here += 1;
            }
            b'}' | b']' if depth == 0 => return Ok(here),
            b'}' | b']' => {
                depth -= 1;
                here += 1;
            }
            b',' if depth == 0 => return Ok(here),
            _ => here += 1,
        }
        let is_whole = depth == 0 && matches!(byte, b'"' | b'}' | b']');
        if is_whole {
            return Ok(here);
        }
    }
    if depth == 0 && here > at { Ok(here) } else { Err(PatchError::Document) }
}

/// Where the string that begins at `at` ends, behind its last quote.
fn string_end(text: &str, at: usize) -> Result<usize, PatchError> {
    let bytes = text.as_bytes();
    if bytes.get(at) != Some(&b'"') {
        return Err(PatchError::Document);
    }
    let mut here = at + 1;
    while let Some(byte) = bytes.get(here) {
        match byte {
            b'\\' => here += 2,
            b'"' => return Ok(here + 1),
            _ => here += 1,
        }
    }
    Err(PatchError::Document)
}

fn decoded(quoted: &str) -> Result<String, PatchError> {
    serde_json::from_str(quoted).map_err(|_| PatchError::Document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(document: &str, steps: &[(Step, &str, &str)], expected: Result<&str, PatchError>) {
        let mut patch = String::new();
        for (step, path, value) in steps {
            push(&mut patch, *step, path, value).unwrap();
        }
        assert_eq!(apply(document, &patch), expected.map(str::to_string), "{document} {patch:?}");
    }

    #[test]
    fn values_are_replaced_inserted_and_removed_at_their_paths() {
        use Step::{Insert, Remove, Replace};
        let document = r#"{"a": [1, {"b": "x, ]}"}, 3], "c": null, "long": {"é\"": 2}}"#;
        check(document, &[(Replace, "$.a[1].b", "5")], Ok(r#"{"a": [1, {"b": 5}, 3], "c": null, "long": {"é\"": 2}}"#));
        check(document, &[(Remove, "$.a[0]", "")], Ok(r#"{"a": [{"b": "x, ]}"}, 3], "c": null, "long": {"é\"": 2}}"#));
        check(document, &[(Remove, "$.a[2]", "")], Ok(r#"{"a": [1, {"b": "x, ]}"}], "c": null, "long": {"é\"": 2}}"#));
        check(
            document,
            &[(Remove, r#"$.long."é\"""#, "")],
            Ok(r#"{"a": [1, {"b": "x, ]}"}, 3], "c": null, "long": {}}"#),
        );
        check(r#"{"b": 1, "aa": 2}"#, &[(Insert, "$.ab", "3")], Ok(r#"{"b": 1, "aa": 2, "ab": 3}"#));
        check(r#"{"b": 1, "aa": 2}"#, &[(Insert, "$.c", "[]")], Ok(r#"{"b": 1, "c": [], "aa": 2}"#));
        check("{}", &[(Insert, r#"$."x y""#, "{}"), (Insert, r#"$."x y".z"#, "1")], Ok(r#"{"x y": {"z": 1}}"#));
        check("[1, 2]", &[(Insert, "$[1]", "9"), (Insert, "$[7]", "8")], Ok("[1, 9, 2, 8]"));
        check("[]", &[(Insert, "$[0]", r#""\"""#)], Ok(r#"["\""]"#));
        check("[1]", &[(Remove, "$[0]", "")], Ok("[]"));
        check("3", &[(Replace, "$", "4")], Ok("4"));
    }

    #[test]
    fn a_patch_of_another_document_is_an_error() {
        use Step::{Insert, Remove, Replace};
        check("[1]", &[(Remove, "$[1]", "")], Err(PatchError::Place));
        check("{}", &[(Replace, "$.a", "1")], Err(PatchError::Place));
        check("{\"a\": 1}", &[(Insert, "$.a", "1")], Err(PatchError::Place));
        check("[1", &[(Remove, "$[1]", "")], Err(PatchError::Document));
        assert_eq!(apply("1", "x\t$\t2\n"), Err(PatchError::Step));
        assert_eq!(apply("1", "r\t$"), Err(PatchError::Step));
        assert_eq!(apply("1", "r\t$[99999999999999999999999]\t1"), Err(PatchError::Step));
    }
}
