//! The checks of tables of DynamoDB as a source.

use super::Checker;
use super::mysql::READERS_MAX;
use crate::config::raw::{ExpiredWord, NumberKeysWord, RawDynamodb, RawScan, SnapshotWord};
use crate::config::read::{At, Field};
use crate::config::substitute::Text;
use crate::config::{
    DynamodbConfig, NumberKeys, ReadUnits, Setting, SnapshotConfig, SnapshotMode, SourceConfig, TableFilter,
};

/// The name of the one database that the tables are in.
const DATABASE: &str = "dynamodb";

/// More than a table can have without asking.
const READ_UNITS_MAX: u64 = 10_000_000;

impl Checker<'_> {
    pub(super) fn dynamodb(&mut self, raw: &RawDynamodb) -> Option<SourceConfig> {
        if let Some(kind) = raw.r#type.set() {
            self.given("source.type", kind.value.word());
        }
        let tables = self.table_names(&raw.tables);
        let region = self.region(&raw.region);
        let endpoint_url = self.endpoint(&raw.endpoint_url);
        let number_keys =
            self.value("source.number_keys", &raw.number_keys, NumberKeysWord::Long, |word| word.word().into());
        let expired = self.value("source.expired", &raw.expired, ExpiredWord::Delete, |word| word.word().into());
        let (snapshot, read_units) = self.scan(&raw.snapshot);
        Some(SourceConfig::Dynamodb(DynamodbConfig {
            region,
            endpoint_url,
            tables: tables?,
            number_keys: match number_keys {
                NumberKeysWord::Long => NumberKeys::Long,
                NumberKeysWord::Decimal => NumberKeys::Decimal,
                NumberKeysWord::Text => NumberKeys::Text,
            },
            keep_expired: expired == ExpiredWord::Keep,
            snapshot,
            read_units,
        }))
    }

    /// Patterns of table names, as patterns of the one database.
    fn table_names(&mut self, field: &Field<Vec<At<Text>>>) -> Option<TableFilter> {
        let list = field.set()?;
        let (mut patterns, mut shown, mut is_good) = (Vec::new(), Vec::new(), true);
        for pattern in &list.value {
            let text = pattern.value.text();
            let (sign, name) = text.strip_prefix('!').map_or(("", text.as_str()), |name| ("!", name));
            let full = format!("{sign}{DATABASE}.{name}");
            // Table names have letters, digits and these; all else is a pattern's.
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-*?[]{},!".contains(c);
            if name.is_empty() || !name.chars().all(is_name) || TableFilter::new([&full]).is_err() {
                let message = "must be the name of a table of DynamoDB, or a pattern with * for any letters";
                self.report.add(pattern.at, &pattern.path, message);
                is_good = false;
            }
            patterns.push(full);
            shown.push(text);
        }
        if shown.iter().all(|text| text.starts_with('!')) {
            self.report.add(
                list.at,
                &list.path,
                "must have a name or pattern that selects tables, for example \"orders\"",
            );
            return None;
        }
        self.given("source.tables", &shown.join(", "));
        if is_good { TableFilter::new(&patterns).ok() } else { None }
    }

    fn region(&mut self, field: &Field<Text>) -> Option<String> {
        let Some(region) = field.set() else {
            self.settings.push(Setting::default("source.region", "AWS_REGION, or the AWS profile's"));
            return None;
        };
        let text = region.value.text();
        self.given("source.region", &text);
        if text.is_empty() || !text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
            self.refuse(field, "must be the name of an AWS region, for example eu-central-1");
        }
        Some(text)
    }

    fn endpoint(&mut self, field: &Field<Text>) -> Option<String> {
        let Some(address) = field.set() else {
            self.settings.push(Setting::default("source.endpoint_url", "the region's own"));
            return None;
        };
        let text = address.value.text();
        match url::Url::parse(&text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() && url.password().is_none() => {
                self.given("source.endpoint_url", url.as_str());
                Some(url.to_string())
            }
            _ => {
                self.refuse(field, "must be an address such as https://dynamodb.internal:8000, without a password");
                None
            }
        }
    }

    fn scan(&mut self, field: &Field<RawScan>) -> (SnapshotConfig, ReadUnits) {
        let none = RawScan::default();
        let raw = field.set().map_or(&none, |scan| &scan.value);
        let mode = self.value("source.snapshot.mode", &raw.mode, SnapshotWord::Initial, |word| word.word().into());
        let split_rows = self.split_rows(&raw.split_rows);
        let default = SnapshotConfig::DEFAULT;
        let readers = self.number("source.snapshot.readers", &raw.readers, default.readers as u64, 1, READERS_MAX);
        let read_units = self.read_units(&raw.read_units);
        let mode = match mode {
            SnapshotWord::Initial => SnapshotMode::Initial,
            SnapshotWord::Never => SnapshotMode::Never,
        };
        let readers = usize::try_from(readers).unwrap_or(usize::MAX);
        (SnapshotConfig { mode, split_rows, readers, ..default }, read_units)
    }

    fn read_units(&mut self, field: &Field<Text>) -> ReadUnits {
        const KEY: &str = "source.snapshot.read_units";
        let Some(given) = field.set() else {
            self.settings.push(Setting::default(KEY, "50%"));
            return ReadUnits::Percent(50);
        };
        let text = given.value.text();
        self.given(KEY, &text);
        let percent = text.strip_suffix('%').map(|number| number.parse::<u8>().ok().filter(|n| (1..=100).contains(n)));
        let number = text.parse::<u64>().ok().filter(|number| (1..=READ_UNITS_MAX).contains(number));
        match (text.as_str(), percent, number) {
            ("off", ..) => ReadUnits::Unlimited,
            (_, Some(Some(percent)), _) => ReadUnits::Percent(percent),
            (_, _, Some(number)) => ReadUnits::PerSecond(number),
            _ => {
                self.refuse(
                    field,
                    format!("must be a number from 1 to {READ_UNITS_MAX}, a share from 1% to 100%, or off"),
                );
                ReadUnits::Unlimited
            }
        }
    }
}
