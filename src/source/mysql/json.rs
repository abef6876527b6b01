//! MySQL's binary JSON, written as the text that the server prints for it.

/// Why bytes are not a JSON document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("JSON document of {length} bytes: {problem} at byte {at}")]
    Corrupt { length: usize, at: usize, problem: &'static str },
}

/// Appends the document's text to `out`: exactly what `CAST(j AS CHAR)` gives on the server. `bytes` is the
/// value as the log holds it, after its length. No bytes at all are the JSON `null` (what the server
/// stores for a missing NOT NULL value).
///
/// # Errors
/// If the bytes are no JSON document. `out` may then hold part of it.
pub fn write_text(bytes: &[u8], out: &mut String) -> Result<(), JsonError> {
    let _ = out;
    Err(JsonError::Corrupt { length: bytes.len(), at: 0, problem: "not read yet" })
}
