//! Talks to a DynamoDB in its own JSON, as an application would. Nothing here goes through Alluvium.

use serde_json::{Value, json};

/// What tells the requests of tests from those of Alluvium.
pub const UNSIGNED: &str = "Signature=0";

/// A table's name and the attributes of its key, each with its type.
#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    pub key: Vec<(String, String)>,
}

impl Table {
    pub fn new(name: &str, key: &[(&str, &str)]) -> Self {
        Self { name: name.into(), key: key.iter().map(|(name, kind)| (name.to_string(), kind.to_string())).collect() }
    }

    pub fn key_names(&self) -> Vec<String> {
        self.key.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// A client of one server.
#[derive(Clone)]
pub struct Api {
    url: String,
    http: reqwest::Client,
}

impl Api {
    pub fn new(port: u16) -> Self {
        Self { url: format!("http://127.0.0.1:{port}/"), http: reqwest::Client::new() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// # Panics
    /// When the server refuses.
    pub async fn ask(&self, operation: &str, body: Value) -> Value {
        // Servers for tests take the region from the signature, and do not check it.
        let signature = format!(
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, {UNSIGNED}"
        );
        let request = self
            .http
            .post(&self.url)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
            .header("authorization", signature)
            .body(body.to_string());
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{operation} {body}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub async fn create(&self, table: &Table) {
        let kinds = ["HASH", "RANGE"];
        let key: Vec<Value> = table
            .key
            .iter()
            .zip(kinds)
            .map(|((name, _), kind)| json!({ "AttributeName": name, "KeyType": kind }))
            .collect();
        let attributes: Vec<Value> =
            table.key.iter().map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind })).collect();
        let body = json!({
            "TableName": table.name,
            "KeySchema": key,
            "AttributeDefinitions": attributes,
            "BillingMode": "PAY_PER_REQUEST",
            "StreamSpecification": { "StreamEnabled": true, "StreamViewType": "NEW_IMAGE" },
        });
        self.ask("CreateTable", body).await;
    }

    pub async fn put(&self, table: &Table, item: &Value) {
        self.ask("PutItem", json!({ "TableName": table.name, "Item": item })).await;
    }

    pub async fn delete(&self, table: &Table, key: &Value) {
        self.ask("DeleteItem", json!({ "TableName": table.name, "Key": key })).await;
    }

    /// All items of a table.
    pub async fn items(&self, table: &Table) -> Vec<Value> {
        let mut items = Vec::new();
        let mut body = json!({ "TableName": table.name, "ConsistentRead": true });
        loop {
            let answer = self.ask("Scan", body.clone()).await;
            items.extend(answer["Items"].as_array().unwrap().iter().cloned());
            match answer.get("LastEvaluatedKey") {
                Some(key) if !key.is_null() => body["ExclusiveStartKey"] = key.clone(),
                _ => return items,
            }
        }
    }
}
