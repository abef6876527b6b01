//! Which tables there are, and what they say of themselves.

use serde::Deserialize;
use serde_json::json;

use super::client::{Client, Operation, Refusal};
use super::shape::Shape;
use crate::change::TableId;
use crate::config::{DynamodbConfig, NumberKeys, TableFilter};
use crate::schema::{Column, TableSchema};
use crate::source::{DiscoveredTable, SourceError, SourceErrorKind};

/// DynamoDB has no databases: all its tables are in this one.
pub(super) const DATABASE: &str = "dynamodb";

/// A table as DescribeTable tells it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TableInfo {
    pub table_name: String,
    pub table_arn: String,
    key_schema: Vec<KeyElement>,
    attribute_definitions: Vec<AttributeDefinition>,
    /// Counted about every six hours.
    #[serde(default)]
    pub item_count: u64,
    /// In the service's own measure, counted as often.
    #[serde(default)]
    pub table_size_bytes: u64,
    #[serde(default)]
    stream_specification: Option<StreamSpecification>,
    #[serde(default)]
    latest_stream_arn: Option<String>,
    #[serde(default)]
    provisioned_throughput: Option<Throughput>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KeyElement {
    attribute_name: String,
    key_type: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributeDefinition {
    attribute_name: String,
    attribute_type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StreamSpecification {
    #[serde(default)]
    stream_enabled: bool,
    #[serde(default)]
    stream_view_type: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Throughput {
    #[serde(default)]
    read_capacity_units: u64,
}

impl TableInfo {
    pub fn table(&self) -> TableId {
        TableId::new(DATABASE, &self.table_name)
    }

    /// The stream that is switched on now.
    pub fn stream(&self) -> Option<&str> {
        let is_on = self.stream_specification.as_ref().is_some_and(|stream| stream.stream_enabled);
        self.latest_stream_arn.as_deref().filter(|_| is_on)
    }

    /// What its stream's records hold, by the service's name for it.
    pub fn view_type(&self) -> Option<&str> {
        self.stream_specification.as_ref()?.stream_view_type.as_deref()
    }

    /// Read units a second that it has; `None` for a table that is paid by the request.
    pub fn read_units(&self) -> Option<u64> {
        self.provisioned_throughput.as_ref().map(|units| units.read_capacity_units).filter(|units| *units > 0)
    }

    /// Why its stream does not tell all that a copy of the table needs, and how to mend it.
    pub fn stream_problem(&self) -> Option<String> {
        let advice = format!(
            "aws dynamodb update-table --table-name {} --stream-specification StreamEnabled=true,StreamViewType=NEW_IMAGE",
            self.table_name
        );
        if self.stream().is_none() {
            return Some(format!("its stream is off; switch it on: {advice}"));
        }
        match self.view_type() {
            Some("NEW_IMAGE" | "NEW_AND_OLD_IMAGES") => None,
            other => Some(format!(
                "the records of its stream hold {}, and not the new items; a stream's view cannot be changed, so switch it off and on \
                 again: {advice}",
                other.unwrap_or("nothing known")
            )),
        }
    }

    /// The key as columns; items bring the other columns. Why not, where the key cannot be one of the lake's.
    pub fn schema(&self, numbers: NumberKeys) -> Result<TableSchema, String> {
        let part = |kind: &str| self.key_schema.iter().find(|element| element.key_type == kind);
        let mut columns = Vec::new();
        for element in [part("HASH"), part("RANGE")].into_iter().flatten() {
            let column = self.key_column(&element.attribute_name, numbers)?;
            if columns.iter().any(|known: &Column| known.name.to_lowercase() == column.name.to_lowercase()) {
                return Err(format!("its key attributes {} and {} differ in case only", columns[0].name, column.name));
            }
            columns.push(column);
        }
        if columns.is_empty() {
            return Err("it has no key".into());
        }
        let key = (0..columns.len()).collect();
        Ok(TableSchema::new(self.table(), columns, key))
    }

    fn key_column(&self, name: &str, numbers: NumberKeys) -> Result<Column, String> {
        let definition = self.attribute_definitions.iter().find(|known| known.attribute_name == name);
        let kind = definition.map(|known| known.attribute_type.as_str());
        let shape = match (kind, numbers) {
            (Some("S"), _) | (Some("N"), NumberKeys::Text) => Shape::Text,
            (Some("N"), NumberKeys::Long) => Shape::Long,
            (Some("N"), NumberKeys::Decimal) => Shape::Whole,
            (Some("B"), _) => Shape::Binary,
            (other, _) => return Err(format!("its key attribute {name} has the type {other:?}")),
        };
        let column = shape.column(name);
        Ok(Column { nullable: false, source_type: kind.unwrap_or_default().to_string(), ..column })
    }

    pub fn discovered(&self, numbers: NumberKeys) -> DiscoveredTable {
        let schema = match self.stream_problem() {
            Some(problem) => Err(problem),
            None => self.schema(numbers),
        };
        let rows_estimated = Some(self.item_count).filter(|items| *items > 0);
        DiscoveredTable { table: self.table(), schema, key_advised: Vec::new(), rows_estimated }
    }
}

/// All tables that the job asks for.
pub(super) async fn tables(client: &Client, config: &DynamodbConfig) -> Result<Vec<TableInfo>, SourceError> {
    let (names, must_exist) = match named(&config.tables) {
        Some(names) => (names, true),
        None => (listed(client, &config.tables).await?, false),
    };
    let mut tables = Vec::new();
    for name in names {
        match describe(client, &name).await? {
            Some(info) => tables.push(info),
            None if must_exist => tracing::warn!(table = name, "there is no such table"),
            None => {}
        }
    }
    Ok(tables)
}

/// The tables that the patterns name, where none of them is a pattern: then no right to list tables is needed.
fn named(filter: &TableFilter) -> Option<Vec<String>> {
    let prefix = format!("{DATABASE}.");
    let names: Option<Vec<String>> = filter
        .patterns()
        .map(|pattern| {
            let name = pattern.strip_prefix(prefix.as_str())?;
            (!name.contains(['*', '?', '[', '{'])).then(|| name.to_string())
        })
        .collect();
    let mut names = names?;
    names.sort();
    names.dedup();
    Some(names)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListAnswer {
    table_names: Vec<String>,
    #[serde(default)]
    last_evaluated_table_name: Option<String>,
}

async fn listed(client: &Client, filter: &TableFilter) -> Result<Vec<String>, SourceError> {
    let (mut names, mut after) = (Vec::new(), None::<String>);
    loop {
        let body = match &after {
            Some(name) => json!({ "ExclusiveStartTableName": name }),
            None => json!({}),
        };
        let answer = client.require(Operation::ListTables, &body).await?;
        let answer: ListAnswer = parse(Operation::ListTables, &answer)?;
        names.extend(answer.table_names.into_iter().filter(|name| filter.matches(&TableId::new(DATABASE, name))));
        after = answer.last_evaluated_table_name;
        if after.is_none() {
            return Ok(names);
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeAnswer {
    table: TableInfo,
}

/// `None` where there is no such table.
pub(super) async fn describe(client: &Client, name: &str) -> Result<Option<TableInfo>, SourceError> {
    let answer = client.ask(Operation::DescribeTable, &json!({ "TableName": name })).await?;
    match answer {
        Ok(answer) => Ok(Some(parse::<DescribeAnswer>(Operation::DescribeTable, &answer)?.table)),
        Err(error) if error.refusal == Refusal::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads an answer.
///
/// # Errors
/// [`SourceErrorKind::Corrupt`] if it is not what the operation gives.
pub(super) fn parse<'a, T: Deserialize<'a>>(operation: Operation, answer: &'a [u8]) -> Result<T, SourceError> {
    serde_json::from_slice(answer).map_err(|error| {
        let message = format!("the answer of DynamoDB to {operation:?} makes no sense ({error})");
        SourceError::new(SourceErrorKind::Corrupt, message)
    })
}
