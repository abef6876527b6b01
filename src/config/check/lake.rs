//! The checks of the lake.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use object_store::aws::AmazonS3ConfigKey;
use url::Url;

use super::Checker;
use crate::config::problem::closest;
use crate::config::raw::RawLake;
use crate::config::read::{At, Field};
use crate::config::substitute::Text;
use crate::config::{LakeConfig, Setting};

/// The options that a job is most likely to need, for the suggestion after a slip of the pen.
const USUAL_OPTIONS: [&str; 10] = [
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_region",
    "aws_endpoint",
    "aws_allow_http",
    "aws_conditional_put",
    "aws_virtual_hosted_style_request",
    "aws_skip_signature",
    "aws_server_side_encryption",
];

impl Checker<'_> {
    pub(super) fn lake(&mut self, raw: &RawLake) -> Option<LakeConfig> {
        let url = raw.path.set().and_then(|path| self.lake_url(path));
        let is_s3 = url.as_ref().is_none_or(|url| url.scheme() == "s3");
        if let (Some(options), false) = (raw.options.set(), is_s3) {
            self.report.add(options.at, &options.path, "has a meaning for s3:// only: a folder has no options");
        }
        let options = self.options(&raw.options);
        Some(LakeConfig { url: url?, options })
    }

    fn lake_url(&mut self, path: &At<Text>) -> Option<Url> {
        let text = path.value.text();
        let url = match text.split_once("://") {
            _ if text.is_empty() => Err("must be a folder or s3://bucket/prefix".to_string()),
            None => folder_url(&self.around.folder.join(&text)),
            Some(("s3", _)) => s3_url(&path.value.url_text()),
            Some(("file", folder)) if folder.starts_with('/') => folder_url(Path::new(folder)),
            Some(("gs" | "gcs" | "az" | "abfs" | "abfss" | "adl" | "hdfs", _)) => {
                Err("is a store that is not supported yet: write a folder or s3://bucket/prefix".to_string())
            }
            Some(("s3a" | "s3n", _)) => Err("must start with s3://".to_string()),
            Some(_) => Err("must be a folder or s3://bucket/prefix".to_string()),
        };
        match url {
            Ok(url) => {
                self.given("lake.path", url.as_str());
                Some(url)
            }
            Err(problem) => {
                self.report.add(path.at, &path.path, problem);
                None
            }
        }
    }

    fn options(&mut self, field: &Field<BTreeMap<String, At<Text>>>) -> BTreeMap<String, String> {
        let none = BTreeMap::new();
        let options = field.set().map_or(&none, |options| &options.value);
        let mut checked = BTreeMap::new();
        for (typed, value) in options {
            let name = typed.to_lowercase();
            if name.parse::<AmazonS3ConfigKey>().is_err() {
                let hint = closest(&name, USUAL_OPTIONS).map(|near| format!("; did you mean {near}?"));
                let message = format!("is not an option of S3{}", hint.unwrap_or_default());
                self.report.add(value.at, &value.path, message);
            }
            let is_secret = is_secret(&name);
            if is_secret && !value.value.has_variable() {
                let message =
                    format!("is a secret in clear: put it into an environment variable and write `{typed}: ${{NAME}}`");
                self.report.add(value.at, &value.path, message);
            }
            let shown = if is_secret { format!("(from {})", value.value.typed()) } else { value.value.text() };
            self.given(&value.path, if is_secret && !value.value.has_variable() { "***" } else { &shown });
            checked.insert(name, value.value.text());
        }
        if options.is_empty() {
            self.settings.push(Setting::default("lake.options", "none"));
        }
        checked
    }
}

/// Whether an option's value must not be seen. The id of an access key is no secret, the key itself is.
pub(super) fn is_secret(option: &str) -> bool {
    ["secret", "session_token", "customer_key", "password"].iter().any(|part| option.contains(part))
        || matches!(option, "token" | "aws_token")
}

fn folder_url(folder: &Path) -> Result<Url, String> {
    let folder = without_dots(folder);
    Url::from_directory_path(&folder).map_err(|()| format!("{} is not an absolute folder", folder.display()))
}

fn s3_url(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|error| format!("is not a URL ({error}): write s3://bucket/prefix"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err("has no bucket: write s3://bucket/prefix".into());
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err("may have nothing but a bucket and a prefix: put keys under `options`".into());
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// The path with its `.` and `..` taken out by their text, for the folder need not exist yet.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lake_is_a_url_with_a_slash_at_its_end() {
        let folder = |path: &str| folder_url(Path::new(path)).unwrap().to_string();
        assert_eq!(folder("/jobs/../lake/./shop"), "file:///lake/shop/");
        assert_eq!(folder("/a b"), "file:///a%20b/");
        assert!(folder_url(Path::new("lake")).is_err());
        assert_eq!(s3_url("s3://bucket/a/b").unwrap().as_str(), "s3://bucket/a/b/");
        assert_eq!(s3_url("s3://bucket").unwrap().as_str(), "s3://bucket/");
        for wrong in ["s3:///a", "s3://key:secret@bucket/a", "s3://bucket/a?x=1"] {
            assert!(s3_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn secret_options_are_known_by_their_names() {
        for (name, expected) in [
            ("aws_secret_access_key", true),
            ("aws_session_token", true),
            ("aws_sse_customer_key_base64", true),
            ("token", true),
            ("aws_access_key_id", false),
            ("aws_region", false),
            ("aws_web_identity_token_file", false),
        ] {
            assert_eq!(is_secret(name), expected, "{name}");
        }
    }
}
