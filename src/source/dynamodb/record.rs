//! Records of a stream, in the JSON that the API, Lambda events and files of them share.

use serde::Deserialize;

use super::attribute::{Item, Text};
use super::progress::SequenceNumber;

/// The principal that deletes expired items, in the records of their deletes.
const TTL_PRINCIPAL: &str = "dynamodb.amazonaws.com";

/// The answer to GetRecords.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RecordsAnswer<'a> {
    #[serde(borrow, default)]
    pub records: Vec<Record<'a>>,
    /// `None` at the end of a closed shard.
    #[serde(default)]
    pub next_shard_iterator: Option<String>,
}

/// One change of one item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record<'a> {
    pub event_name: EventName,
    #[serde(borrow)]
    pub dynamodb: Change<'a>,
    #[serde(borrow, default)]
    pub user_identity: Option<UserIdentity<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum EventName {
    Insert,
    Modify,
    Remove,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Change<'a> {
    /// Seconds since 1970-01-01 UTC.
    #[serde(default)]
    pub approximate_creation_date_time: f64,
    #[serde(borrow)]
    pub keys: Item<'a>,
    #[serde(borrow, default)]
    pub new_image: Option<Item<'a>>,
    pub sequence_number: SequenceNumber,
}

/// Who made the change; only the service's own changes say it. The API and Lambda spell the field differently.
#[derive(Debug, Deserialize)]
pub(super) struct UserIdentity<'a> {
    #[serde(borrow, default, alias = "PrincipalId", rename = "principalId")]
    principal: Option<Text<'a>>,
}

impl Record<'_> {
    /// When the change was made, in microseconds since 1970-01-01 UTC. The service gives whole seconds.
    pub fn commit_time_us(&self) -> i64 {
        // Whatever a file says: out of range becomes the end of the range.
        (self.dynamodb.approximate_creation_date_time * 1e6).round() as i64
    }

    /// Whether the service deleted the item because it had expired.
    pub fn is_expiry(&self) -> bool {
        let principal = self.user_identity.as_ref().and_then(|identity| identity.principal.as_ref());
        self.event_name == EventName::Remove && principal.is_some_and(|principal| principal.0 == TTL_PRINCIPAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_the_service_writes_it() {
        let text = r#"{"Records": [{"awsRegion": "us-west-2", "eventID": "1", "eventName": "MODIFY", "eventSource": "aws:dynamodb",
            "eventVersion": "1.1", "dynamodb": {"ApproximateCreationDateTime": 1.46480431E9, "Keys": {"id": {"S": "a"}},
            "NewImage": {"id": {"S": "a"}, "n": {"N": "1"}}, "SequenceNumber": "300000000000000499659", "SizeBytes": 41,
            "StreamViewType": "NEW_AND_OLD_IMAGES"}}], "NextShardIterator": "it"}"#;
        let answer: RecordsAnswer<'_> = serde_json::from_str(text).unwrap();
        assert_eq!(answer.next_shard_iterator.as_deref(), Some("it"));
        let record = &answer.records[0];
        assert_eq!((record.event_name, record.commit_time_us()), (EventName::Modify, 1_464_804_310_000_000));
        assert_eq!(record.dynamodb.sequence_number.0, "300000000000000499659");
        assert!(record.dynamodb.new_image.as_ref().is_some_and(|image| image.0.len() == 2));
        let last: RecordsAnswer<'_> = serde_json::from_str(r#"{"Records": []}"#).unwrap();
        assert!(last.records.is_empty() && last.next_shard_iterator.is_none());
    }

    #[test]
    fn an_expired_item_is_told_from_a_deleted_one() {
        let record = |event: &str, identity: &str| -> bool {
            let text =
                format!(r#"{{"eventName": "{event}", "dynamodb": {{"Keys": {{}}, "SequenceNumber": "1"}}{identity}}}"#);
            serde_json::from_str::<Record<'_>>(&text).unwrap().is_expiry()
        };
        let api = r#", "userIdentity": {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}"#;
        let lambda = r#", "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}"#;
        assert!(record("REMOVE", api) && record("REMOVE", lambda));
        assert!(!record("REMOVE", "") && !record("REMOVE", r#", "userIdentity": null"#) && !record("INSERT", api));
    }
}
