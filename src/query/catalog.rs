//! The planner's view of the lake: one catalogue with a schema per database.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;

use super::names::{LakeNames, TableAt};
use super::tables::LakeReader;

/// The name of the catalogue.
pub(super) const CATALOG: &str = "lake";

/// All databases of the lake. The tables that a query names are there already open, so that all of one query reads the
/// same versions; others (the information schema asks for them) are opened when they are looked at.
#[derive(Debug)]
pub(super) struct LakeCatalog {
    schemas: HashMap<String, Arc<LakeSchema>>,
}

#[derive(Debug)]
struct LakeSchema {
    reader: LakeReader,
    /// The tables that are listed.
    names: HashMap<String, TableAt>,
    /// The tables that this query reads.
    open: HashMap<String, Arc<dyn TableProvider>>,
}

/// An open table under its database and its name.
pub(super) type Registered = ([String; 2], Arc<dyn TableProvider>);

impl LakeCatalog {
    pub fn new(reader: &LakeReader, names: &LakeNames, open: impl IntoIterator<Item = Registered>) -> Self {
        let mut schemas: HashMap<String, LakeSchema> = HashMap::new();
        let new = || LakeSchema { reader: reader.clone(), names: HashMap::new(), open: HashMap::new() };
        for table in names.tables() {
            let schema = schemas.entry(table.database.clone()).or_insert_with(new);
            schema.names.insert(table.table.clone(), TableAt { table: table.clone(), as_of: None });
        }
        for ([database, name], provider) in open {
            schemas.entry(database).or_insert_with(new).open.insert(name, provider);
        }
        Self { schemas: schemas.into_iter().map(|(name, schema)| (name, Arc::new(schema))).collect() }
    }
}

impl CatalogProvider for LakeCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.schemas.iter().filter(|(_, schema)| !schema.names.is_empty()).map(|(name, _)| name.clone()).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.schemas.get(name).map(|schema| Arc::clone(schema) as Arc<dyn SchemaProvider>)
    }
}

#[async_trait]
impl SchemaProvider for LakeSchema {
    fn table_names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(open) = self.open.get(name) {
            return Ok(Some(Arc::clone(open)));
        }
        let Some(table) = self.names.get(name) else { return Ok(None) };
        match self.reader.open(table).await {
            Ok(table) => Ok(Some(table.provider)),
            Err(super::QueryError::NotLoaded { .. }) => Ok(None),
            Err(error) => Err(DataFusionError::External(Box::new(error))),
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.open.contains_key(name) || self.names.contains_key(name)
    }
}
