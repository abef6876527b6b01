//! A server that plays what moto does not: shards that split and end, parents that vanish, iterators that expire, records that are
//! forgotten, empty pages in the midst of a shard, and refusals. By chance, from a seed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::api::{Api, UNSIGNED};

/// The numbers of records grow by a digit soon after this one.
const FIRST_NUMBER: u128 = 99_999_999_999_999_999_950;

/// Items and records of one page, and shards of one: few, so that there are many pages.
const PAGE_ITEMS: usize = 7;
const PAGE_RECORDS: usize = 5;
const PAGE_SHARDS: usize = 3;

/// Empty pages in a row that a shard gives at most while it has records.
const HIDDEN_MAX: u32 = 2;

/// An answer: the status and the body.
type Answer = (u16, Value);

/// What happens to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Put,
    Delete,
    Expiry,
}

struct Shard {
    id: String,
    parent: Option<String>,
    /// Hashes of the keys whose changes it has, the end left out.
    hashes: (u64, u64),
    records: Vec<(u128, Value)>,
    is_closed: bool,
    /// So many of its first records have been forgotten.
    forgotten: usize,
    is_listed: bool,
    /// Empty pages in a row that hid records.
    hidden: u32,
}

struct Table {
    description: Value,
    key: Vec<String>,
    items: BTreeMap<String, Value>,
    shards: Vec<Shard>,
}

/// All that the server knows.
pub struct Model {
    random: StdRng,
    tables: BTreeMap<String, Table>,
    next_number: u128,
    /// Iterators of older generations have expired.
    generation: u64,
    /// Of a hundred requests, so many are refused or answered with an empty page.
    trouble_percent: u32,
    /// Items are changed between the pages of scans.
    interferes: bool,
}

/// The server, with a hand on its fate.
pub struct Scripted {
    pub api: Api,
    model: Arc<Mutex<Model>>,
}

impl Scripted {
    pub async fn start(seed: u64) -> Self {
        let model = Model {
            random: StdRng::seed_from_u64(seed),
            tables: BTreeMap::new(),
            next_number: FIRST_NUMBER,
            generation: 0,
            trouble_percent: 20,
            interferes: false,
        };
        let model = Arc::new(Mutex::new(model));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Arc::clone(&model);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let model = Arc::clone(&served);
                tokio::spawn(async move { serve(stream, &model).await });
            }
        });
        Self { api: Api::new(port), model }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Model) -> T) -> T {
        act(&mut self.model.lock().unwrap())
    }

    /// A random event in the life of each stream: a shard ends or splits, or all iterators expire.
    pub fn live_on(&self) {
        self.with(|model| {
            let names: Vec<String> = model.tables.keys().cloned().collect();
            for name in names {
                match model.random.random_range(0..3) {
                    0 => model.end_shard(&name, 2),
                    1 => model.end_shard(&name, 1),
                    _ => model.generation += 1,
                }
            }
        });
    }

    /// Has every stream forget all records that it has now, and all shards that have ended.
    pub fn forget(&self) {
        self.with(|model| {
            for table in model.tables.values_mut() {
                for shard in &mut table.shards {
                    shard.forgotten = shard.records.len();
                    shard.is_listed = !shard.is_closed;
                }
            }
        });
    }

    /// Replaces the stream of a table, as switching it off and on does.
    pub fn renew_stream(&self, name: &str) {
        self.with(|model| {
            let label = format!("renewed-{}", model.next_number);
            let table = model.tables.get_mut(name).unwrap();
            table.description["LatestStreamArn"] = json!(stream_arn(name, &label));
            table.shards = vec![Shard::new(format!("{label}-0"), None, (0, u64::MAX))];
        });
    }

    /// From now on items are changed and deleted before and after each page of a scan.
    pub fn interfere(&self) {
        self.with(|model| model.interferes = true);
    }

    /// The service deletes an item because it has expired.
    pub fn expire(&self, name: &str, item: &Value) {
        self.with(|model| model.change(name, item, Event::Expiry));
    }

    /// How many shards a table's stream has had.
    pub fn shards(&self, name: &str) -> usize {
        self.with(|model| model.tables[name].shards.len())
    }
}

impl Shard {
    fn new(id: String, parent: Option<String>, hashes: (u64, u64)) -> Self {
        Self { id, parent, hashes, records: Vec::new(), is_closed: false, forgotten: 0, is_listed: true, hidden: 0 }
    }
}

impl Model {
    /// A random open shard ends; its keys go to so many children.
    fn end_shard(&mut self, name: &str, children: u64) {
        let table = self.tables.get_mut(name).unwrap();
        let open: Vec<usize> = (0..table.shards.len()).filter(|index| !table.shards[*index].is_closed).collect();
        let ended = open[self.random.random_range(0..open.len())];
        let (count, shard) = (table.shards.len(), &mut table.shards[ended]);
        shard.is_closed = true;
        let (parent, (from, to)) = (shard.id.clone(), shard.hashes);
        let width = (to - from) / children;
        for child in 0..children {
            let end = if child + 1 == children { to } else { from + width * (child + 1) };
            // Identifiers are in no order.
            let id = format!("shard-{:03}-{}", self.random.random_range(0..1000), count + child as usize);
            table.shards.push(Shard::new(id, Some(parent.clone()), (from + width * child, end)));
        }
    }

    /// `has_trouble` is not for the test's own requests.
    fn answer(&mut self, operation: &str, body: &Value, has_trouble: bool) -> Answer {
        if has_trouble && self.random.random_range(0..100) < self.trouble_percent / 4 {
            return match self.random.random_range(0..2) {
                0 => refusal("ProvisionedThroughputExceededException"),
                _ => (500, json!({ "__type": "InternalServerError" })),
            };
        }
        match operation {
            "ListTables" => (200, json!({ "TableNames": self.tables.keys().collect::<Vec<_>>() })),
            "CreateTable" => self.create(body),
            "DescribeTable" => match self.tables.get(text(body, "TableName")) {
                Some(table) => {
                    let mut description = table.description.clone();
                    description["ItemCount"] = json!(table.items.len());
                    (200, json!({ "Table": description }))
                }
                None => refusal("ResourceNotFoundException"),
            },
            "PutItem" => self.change(text(body, "TableName"), &body["Item"], Event::Put),
            "DeleteItem" => self.change(text(body, "TableName"), &body["Key"], Event::Delete),
            "Scan" if has_trouble && self.interferes => {
                self.change_some();
                let answer = self.scan(body);
                self.change_some();
                answer
            }
            "Scan" => self.scan(body),
            "DescribeStream" => self.describe_stream(body),
            "GetShardIterator" => self.iterator(body),
            "GetRecords" => self.records(text(body, "ShardIterator")),
            other => panic!("{other} is not played"),
        }
    }

    /// A few random items of each table get another count, or are deleted.
    fn change_some(&mut self) {
        for name in self.tables.keys().cloned().collect::<Vec<_>>() {
            for _ in 0..self.random.random_range(0..4) {
                let items = &self.tables[&name].items;
                let Some(mut item) = items.values().nth(self.random.random_range(0..items.len().max(1))).cloned()
                else {
                    continue;
                };
                item["count"] = json!({ "N": self.random.random_range(1_000..9_000).to_string() });
                let event = if self.random.random_bool(0.2) { Event::Delete } else { Event::Put };
                self.change(&name, &item, event);
            }
        }
    }

    fn create(&mut self, body: &Value) -> Answer {
        let name = text(body, "TableName").to_string();
        let key = body["KeySchema"].as_array().unwrap().iter().map(|part| text(part, "AttributeName").to_string());
        let mut description = body.clone();
        description["TableArn"] = json!(format!("arn:aws:dynamodb:us-east-1:123456789012:table/{name}"));
        description["LatestStreamArn"] = json!(stream_arn(&name, "first"));
        let shards = vec![Shard::new("shard-500-0".into(), None, (0, u64::MAX))];
        let table = Table { description, key: key.collect(), items: BTreeMap::new(), shards };
        self.tables.insert(name, table);
        (200, json!({}))
    }

    fn change(&mut self, name: &str, item: &Value, event: Event) -> Answer {
        let is_put = event == Event::Put;
        let table = self.tables.get_mut(name).unwrap();
        let key: Value = table.key.iter().map(|name| (name.clone(), item[name].clone())).collect();
        let before = if is_put {
            table.items.insert(key.to_string(), item.clone())
        } else {
            table.items.remove(&key.to_string())
        };
        let event_name = match (before.is_some(), is_put) {
            (false, false) => return (200, json!({})),
            (true, false) => "REMOVE",
            (false, true) => "INSERT",
            (true, true) => "MODIFY",
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let number = self.next_number;
        self.next_number += self.random.random_range(1..4);
        let mut change =
            json!({ "ApproximateCreationDateTime": now, "Keys": key, "SequenceNumber": number.to_string() });
        if is_put {
            change["NewImage"] = item.clone();
        }
        let hash = hash(&key);
        let is_its = |shard: &&mut Shard| !shard.is_closed && (shard.hashes.0..shard.hashes.1).contains(&hash);
        let shard = table.shards.iter_mut().find(is_its).unwrap();
        let mut record = json!({ "eventName": event_name, "dynamodb": change });
        if event == Event::Expiry {
            record["userIdentity"] = json!({ "Type": "Service", "PrincipalId": "dynamodb.amazonaws.com" });
        }
        shard.records.push((number, record));
        (200, json!({}))
    }

    fn scan(&mut self, body: &Value) -> Answer {
        let table = &self.tables[text(body, "TableName")];
        let (segment, total) = (body["Segment"].as_u64().unwrap_or(0), body["TotalSegments"].as_u64().unwrap_or(1));
        let after = body.get("ExclusiveStartKey").map(|key| key.to_string());
        let limit = body["Limit"].as_u64().map_or(PAGE_ITEMS, |limit| PAGE_ITEMS.min(limit as usize));
        let mut rest = table.items.iter().filter(|(key, _)| {
            let hash = hash(&serde_json::from_str(key).unwrap());
            hash % total == segment && after.as_ref().is_none_or(|after| *key > after)
        });
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let mut answer = json!({
            "Items": page.iter().map(|(_, item)| item).collect::<Vec<_>>(),
            "ConsumedCapacity": { "CapacityUnits": 1.0 },
        });
        if let (Some((key, _)), true) = (page.last(), rest.next().is_some()) {
            answer["LastEvaluatedKey"] = serde_json::from_str(key).unwrap();
        }
        (200, answer)
    }

    fn table_of_stream(&mut self, stream: &str) -> Option<&mut Table> {
        self.tables.values_mut().find(|table| table.description["LatestStreamArn"] == stream)
    }

    fn describe_stream(&mut self, body: &Value) -> Answer {
        let Some(table) = self.table_of_stream(text(body, "StreamArn")) else {
            return refusal("ResourceNotFoundException");
        };
        let after = body.get("ExclusiveStartShardId").and_then(Value::as_str);
        let listed: Vec<&Shard> = table.shards.iter().filter(|shard| shard.is_listed).collect();
        let from = after.map_or(0, |after| listed.iter().position(|shard| shard.id == after).map_or(0, |at| at + 1));
        let page: Vec<&&Shard> = listed.iter().skip(from).take(PAGE_SHARDS).collect();
        let shards: Vec<Value> = page
            .iter()
            .map(|shard| match &shard.parent {
                Some(parent) => json!({ "ShardId": shard.id, "ParentShardId": parent, "SequenceNumberRange": {} }),
                None => json!({ "ShardId": shard.id }),
            })
            .collect();
        let mut description = json!({ "StreamStatus": "ENABLED", "Shards": shards });
        if from + page.len() < listed.len() {
            description["LastEvaluatedShardId"] = json!(page.last().unwrap().id);
        }
        (200, json!({ "StreamDescription": description }))
    }

    /// An iterator is `GENERATION|STREAM|SHARD|INDEX`.
    fn iterator(&mut self, body: &Value) -> Answer {
        let (stream, id) = (text(body, "StreamArn").to_string(), text(body, "ShardId").to_string());
        let generation = self.generation;
        let Some(table) = self.table_of_stream(&stream) else { return refusal("ResourceNotFoundException") };
        let Some(shard) = table.shards.iter().find(|shard| shard.id == id && shard.is_listed) else {
            return refusal("ResourceNotFoundException");
        };
        let index = match text(body, "ShardIteratorType") {
            "TRIM_HORIZON" => shard.forgotten,
            "AFTER_SEQUENCE_NUMBER" => {
                let number: u128 = text(body, "SequenceNumber").parse().unwrap();
                shard.records.iter().position(|(known, _)| *known > number).unwrap_or(shard.records.len())
            }
            other => panic!("{other} is not played"),
        };
        if index < shard.forgotten {
            return refusal("TrimmedDataAccessException");
        }
        (200, json!({ "ShardIterator": format!("{generation}|{stream}|{id}|{index}") }))
    }

    fn records(&mut self, iterator: &str) -> Answer {
        let parts: Vec<&str> = iterator.split('|').collect();
        let (stream, id, from): (&str, &str, usize) = (parts[1], parts[2], parts[3].parse().unwrap());
        let generation = self.generation;
        if parts[0] != generation.to_string() {
            return refusal("ExpiredIteratorException");
        }
        let is_empty = self.random.random_range(0..100) < self.trouble_percent;
        let Some(table) = self.table_of_stream(stream) else { return refusal("ResourceNotFoundException") };
        let Some(shard) = table.shards.iter_mut().find(|shard| shard.id == id) else {
            return refusal("ResourceNotFoundException");
        };
        if from < shard.forgotten {
            return refusal("TrimmedDataAccessException");
        }
        let is_empty = is_empty && shard.hidden < HIDDEN_MAX;
        shard.hidden = if is_empty { shard.hidden + 1 } else { 0 };
        let to = if is_empty { from } else { shard.records.len().min(from + PAGE_RECORDS) };
        let records: Vec<&Value> = shard.records[from..to].iter().map(|(_, record)| record).collect();
        let mut answer = json!({ "Records": records });
        if !(shard.is_closed && to == shard.records.len()) {
            answer["NextShardIterator"] = json!(format!("{generation}|{stream}|{id}|{to}"));
        }
        (200, answer)
    }
}

fn stream_arn(table: &str, label: &str) -> String {
    format!("arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/{label}")
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn refusal(name: &str) -> Answer {
    (400, json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "message": "played" }))
}

fn hash(key: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.to_string().hash(&mut hasher);
    // The largest one belongs to no range.
    hasher.finish().min(u64::MAX - 1)
}

/// Answers the requests of one connection until it is closed.
async fn serve(mut stream: TcpStream, model: &Mutex<Model>) {
    let mut bytes = Vec::new();
    loop {
        let Some(head) = read_until_head(&mut stream, &mut bytes).await else { return };
        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let header = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_string())
        };
        let length: usize = header("content-length").unwrap().parse().unwrap();
        while bytes.len() < head + length {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let target = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let operation = target.lines().find(|line| line.to_ascii_lowercase().starts_with("x-amz-target")).unwrap();
        let operation = operation.rsplit('.').next().unwrap().trim().to_string();
        let body: Value = serde_json::from_slice(&bytes[head..head + length]).unwrap();
        bytes.drain(..head + length);
        let has_trouble = !target.contains(UNSIGNED);
        let (status, answer) = model.lock().unwrap().answer(&operation, &body, has_trouble);
        let answer = answer.to_string();
        let reply = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The length of the next request's head, once all of it is there.
async fn read_until_head(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            return Some(at + 4);
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}
