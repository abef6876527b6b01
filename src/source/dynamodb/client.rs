//! DynamoDB's API (JSON 1.0 over HTTPS): six read-only operations, signed, with back-off. Answers are handed on as the bytes that
//! came, so that items are decoded straight from them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use serde_json::{Value as Json, json};
use tokio::sync::{Mutex, OnceCell};

use crate::config::DynamodbConfig;
use crate::source::{SourceError, SourceErrorKind, Usage};

/// Longest wait for an answer, and for a connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// The service sends 1 MB of items at most; their JSON is larger, by escapes and the names of types.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Tries of one request: with the pauses below about half a minute, in which a throttled table recovers.
const TRIES_MAX: u32 = 10;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Credentials are asked for again so long before they expire.
const CREDENTIALS_SPARE: Duration = Duration::from_secs(300);

/// Longest part of a server's own words in a message.
const WORDS_CHARS_MAX: usize = 500;

/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    ListTables,
    DescribeTable,
    Scan,
    DescribeStream,
    GetShardIterator,
    GetRecords,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::ListTables => "ListTables",
            Self::DescribeTable => "DescribeTable",
            Self::Scan => "Scan",
            Self::DescribeStream => "DescribeStream",
            Self::GetShardIterator => "GetShardIterator",
            Self::GetRecords => "GetRecords",
        }
    }

    /// Whether it belongs to the API of streams, which has an address of its own.
    fn is_of_streams(self) -> bool {
        matches!(self, Self::DescribeStream | Self::GetShardIterator | Self::GetRecords)
    }

    fn target(self) -> String {
        let api = if self.is_of_streams() { "DynamoDBStreams_20120810" } else { "DynamoDB_20120810" };
        format!("{api}.{}", self.name())
    }
}

/// What a refusal means for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Too many requests, or the service is in trouble: later.
    Later,
    /// The iterator is older than 15 minutes.
    IteratorExpired,
    /// The stream has forgotten the records asked for.
    Trimmed,
    /// There is no such table, stream or shard.
    NotFound,
    /// Keys, policies.
    Denied,
    /// Anything else: the request makes no sense to the service.
    Invalid,
}

/// A request that did not succeed, after all tries.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of DynamoDB failed: {words}")]
pub(super) struct ApiError {
    pub refusal: Refusal,
    operation: &'static str,
    /// What the service or the network said.
    words: String,
}

impl From<ApiError> for SourceError {
    fn from(error: ApiError) -> Self {
        let (kind, advice) = match error.refusal {
            Refusal::Later | Refusal::IteratorExpired => (SourceErrorKind::Unavailable, ""),
            Refusal::Trimmed => (SourceErrorKind::Lost, ""),
            Refusal::NotFound | Refusal::Invalid => (SourceErrorKind::Misconfigured, ""),
            Refusal::Denied => {
                (SourceErrorKind::Misconfigured, "; the policy that the job needs is printed by: alluvium check")
            }
        };
        Self::new(kind, format!("{error}{advice}"))
    }
}

/// Where requests go, and who sends them.
struct Session {
    region: String,
    dynamodb_url: String,
    streams_url: String,
    provider: SharedCredentialsProvider,
}

/// A client. Opens nothing before its first request.
pub(super) struct Client {
    config: DynamodbConfig,
    http: OnceCell<reqwest::Client>,
    session: OnceCell<Session>,
    credentials: Mutex<Option<Credentials>>,
    counts: Counts,
}

/// What was asked so far.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    sent_again: AtomicU64,
    log_reads: AtomicU64,
    /// In thousandths: small items use half a unit.
    read_units_milli: AtomicU64,
}

impl Client {
    pub fn new(config: DynamodbConfig) -> Self {
        Self {
            config,
            http: OnceCell::new(),
            session: OnceCell::new(),
            credentials: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// The region that requests go to.
    pub async fn region(&self) -> Result<&str, SourceError> {
        Ok(&self.session().await?.region)
    }

    async fn session(&self) -> Result<&Session, SourceError> {
        self.session.get_or_try_init(|| open(&self.config)).await
    }

    async fn http(&self) -> Result<&reqwest::Client, SourceError> {
        let build = || async {
            let client = reqwest::Client::builder().timeout(ANSWER_TIME_MAX).connect_timeout(CONNECT_TIME_MAX);
            // A redirect would carry the signature elsewhere.
            client.redirect(reqwest::redirect::Policy::none()).build()
        };
        let failed = |error| SourceError::new(SourceErrorKind::Misconfigured, "HTTP cannot be set up").caused_by(error);
        self.http.get_or_try_init(build).await.map_err(|error: reqwest::Error| failed(error))
    }

    pub fn usage(&self) -> Usage {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Usage {
            requests: read(&self.counts.requests),
            sent_again: read(&self.counts.sent_again),
            log_reads: read(&self.counts.log_reads),
            read_units: read(&self.counts.read_units_milli).div_ceil(1000),
        }
    }

    /// An answer has used so many read units.
    pub fn note_read_units(&self, units: f64) {
        // Whatever a server says: out of range becomes the end of the range.
        self.counts.read_units_milli.fetch_add((units * 1e3).round() as u64, Ordering::Relaxed);
    }

    /// Sends a request until it succeeds, or is refused for good.
    ///
    /// # Errors
    /// The outer one where no request could be made; the inner one where it was refused.
    pub async fn ask(&self, operation: Operation, body: &Json) -> Result<Result<Bytes, ApiError>, SourceError> {
        let (mut pause, mut tries) = (PAUSE_FIRST, 1);
        loop {
            match self.try_once(operation, body).await? {
                Err(error) if error.refusal == Refusal::Later && tries < TRIES_MAX => {
                    tracing::debug!(operation = operation.name(), %error, "asking again");
                    self.counts.sent_again.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(jittered(pause)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    tries += 1;
                }
                done => {
                    if done.is_ok() && operation == Operation::GetRecords {
                        self.counts.log_reads.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok(done);
                }
            }
        }
    }

    /// The same, where every refusal is an error.
    pub async fn require(&self, operation: Operation, body: &Json) -> Result<Bytes, SourceError> {
        self.ask(operation, body).await?.map_err(SourceError::from)
    }

    async fn try_once(&self, operation: Operation, body: &Json) -> Result<Result<Bytes, ApiError>, SourceError> {
        let session = self.session().await?;
        let url = if operation.is_of_streams() { &session.streams_url } else { &session.dynamodb_url };
        let body = body.to_string();
        let target = operation.target();
        let plain = [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target.as_str())];
        let signed = self.sign(session, url, &plain, body.as_bytes()).await?;
        let mut request = self.http().await?.post(url).body(body);
        for (name, value) in plain {
            request = request.header(name, value);
        }
        for (name, value) in &signed {
            request = request.header(name.as_str(), value.as_str());
        }
        let refused = |refusal, words| ApiError { refusal, operation: operation.name(), words };
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(refused(Refusal::Later, chain(&error)))),
        };
        let status = answer.status();
        let body = match read_body(answer).await {
            Ok(body) => body,
            Err(words) => return Ok(Err(refused(Refusal::Later, words))),
        };
        if status.is_success() {
            return Ok(Ok(body));
        }
        let (refusal, words) = refusal(status.as_u16(), &body);
        if refusal == Refusal::Denied {
            // They may have been replaced: the next request asks for them again.
            *self.credentials.lock().await = None;
        }
        Ok(Err(refused(refusal, words)))
    }

    async fn sign(
        &self,
        session: &Session,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Vec<(String, String)>, SourceError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            SourceError::new(SourceErrorKind::Misconfigured, "a request cannot be signed").caused_by(error)
        };
        let identity = self.credentials(session).await?.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&session.region)
            .name("dynamodb")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| failed(error.into()))?
            .into();
        let request = SignableRequest::new("POST", url, headers.iter().copied(), SignableBody::Bytes(body))
            .map_err(|error| failed(error.into()))?;
        let (instructions, _) = sign(request, &params).map_err(|error| failed(error.into()))?.into_parts();
        Ok(instructions.headers().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    async fn credentials(&self, session: &Session) -> Result<Credentials, SourceError> {
        let mut kept = self.credentials.lock().await;
        let is_fresh = |credentials: &&Credentials| {
            credentials.expiry().is_none_or(|expiry| expiry > SystemTime::now() + CREDENTIALS_SPARE)
        };
        if let Some(credentials) = kept.as_ref().filter(is_fresh) {
            return Ok(credentials.clone());
        }
        let found = session.provider.provide_credentials().await.map_err(|error| {
            let message = "no AWS credentials were found: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run \
                where a role is given to the machine or container";
            SourceError::new(SourceErrorKind::Misconfigured, message).caused_by(error)
        })?;
        Ok(kept.insert(found).clone())
    }
}

async fn open(config: &DynamodbConfig) -> Result<Session, SourceError> {
    let mut loader = aws_config::defaults(aws_config::BehaviorVersion::latest());
    if let Some(region) = &config.region {
        loader = loader.region(aws_config::Region::new(region.clone()));
    }
    let found = loader.load().await;
    let misconfigured = |message: &str| SourceError::new(SourceErrorKind::Misconfigured, message);
    let region = found.region().map(|region| region.as_ref().to_string());
    let region =
        region.ok_or_else(|| misconfigured("no AWS region: give source.region in the job file, or set AWS_REGION"))?;
    let provider = found.credentials_provider().ok_or_else(|| misconfigured("no source of AWS credentials"))?;
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let url = |prefix: &str| match &config.endpoint_url {
        Some(url) => url.clone(),
        None => format!("https://{prefix}dynamodb.{region}.{suffix}/"),
    };
    Ok(Session { dynamodb_url: url(""), streams_url: url("streams."), region, provider })
}

/// The whole body, as long as it is not larger than any that the service sends.
async fn read_body(answer: reqwest::Response) -> Result<Bytes, String> {
    let (mut body, mut parts) = (BytesMut::new(), answer.bytes_stream());
    while let Some(part) = parts.next().await {
        body.extend_from_slice(&part.map_err(|error| chain(&error))?);
        if body.len() > ANSWER_BYTES_MAX {
            return Err(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    Ok(body.freeze())
}

/// What an answer other than success means, and its words.
fn refusal(status: u16, body: &[u8]) -> (Refusal, String) {
    let answer: Json = serde_json::from_slice(body).unwrap_or(json!({}));
    let text = |name: &str| answer.get(name).and_then(Json::as_str);
    let kind = text("__type").unwrap_or_default();
    let kind = kind.rsplit('#').next().unwrap_or(kind);
    let words = text("message").or(text("Message")).unwrap_or("no reason given");
    let refusal = match kind {
        "ExpiredIteratorException" => Refusal::IteratorExpired,
        "TrimmedDataAccessException" => Refusal::Trimmed,
        "ResourceNotFoundException" | "TableNotFoundException" => Refusal::NotFound,
        "ThrottlingException"
        | "Throttling"
        | "ProvisionedThroughputExceededException"
        | "LimitExceededException"
        | "RequestLimitExceeded"
        | "InternalServerError"
        | "ServiceUnavailable" => Refusal::Later,
        "AccessDeniedException"
        | "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "MissingAuthenticationToken" => Refusal::Denied,
        _ if status >= 500 || status == 429 => Refusal::Later,
        _ => Refusal::Invalid,
    };
    let words: String = format!("{kind}: {words}").chars().take(WORDS_CHARS_MAX).collect();
    (refusal, format!("{words} (HTTP {status})"))
}

/// Between half of the pause and all of it, so that those who were refused together do not come back together.
fn jittered(pause: Duration) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    pause / 2 + pause / 2 * (now.subsec_nanos() % 1000) / 1000
}

/// An error's words with those of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, expected: Refusal) {
        assert_eq!(refusal(status, body.as_bytes()).0, expected, "{status} {body}");
    }

    #[test]
    fn a_refusal_is_told_by_its_name_and_else_by_its_status() {
        let named = |name: &str| format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{name}","message":"m"}}"#);
        check(400, &named("ProvisionedThroughputExceededException"), Refusal::Later);
        check(400, &named("ExpiredIteratorException"), Refusal::IteratorExpired);
        check(400, &named("TrimmedDataAccessException"), Refusal::Trimmed);
        check(400, r#"{"__type":"ResourceNotFoundException"}"#, Refusal::NotFound);
        check(400, r#"{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"no"}"#, Refusal::Denied);
        check(400, &named("ValidationException"), Refusal::Invalid);
        check(500, "<html>", Refusal::Later);
        check(503, "", Refusal::Later);
        check(403, "", Refusal::Invalid);
    }

    #[test]
    fn the_service_s_own_words_are_told_and_cut() {
        let long = format!(r#"{{"__type":"X","message":"{}"}}"#, "w".repeat(5_000));
        let (_, words) = refusal(400, long.as_bytes());
        assert!(words.starts_with("X: www") && words.ends_with("(HTTP 400)") && words.len() < 600);
    }
}
