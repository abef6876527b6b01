//! One session of queries over the tables of a lake.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, TableProvider,
};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, TableReference};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::Statement;
use deltalake::delta_datafusion::DeltaSessionContext;
use futures::{StreamExt, TryStreamExt};

use super::QueryError;
use super::catalog::{CATALOG, LakeCatalog, Registered};
use super::gone::Gone;
use super::moment::{JobPoints, MomentAsOf, PointRead};
use super::names::{LakeNames, TableAt};
use super::relations::{INFORMATION_SCHEMA, JobNotes, Relations, registered_name};
use super::schema_log;
use super::show;
use super::spelling::Spelling;
use super::statement::{Tokens, check_reads_only};
use super::tables::{LakeReader, OpenTable};
use crate::change::TableId;
use crate::config::LakeConfig;
use crate::lake::{Lake, batches_schema};

/// What queries may use of the machine.
#[derive(Debug, Clone)]
pub struct QueryLimits {
    /// The memory of all operators of all running queries together, in bytes. Sorts, groups and repartitions that need
    /// more go to disk; a join whose smaller side does not fit ends with [`QueryError::OutOfMemory`].
    pub memory_bytes: usize,
    /// Where they go to; made when missing.
    pub spill_dir: PathBuf,
}

/// Columns of a result, and its rows as they come.
pub type QueryResult = (SchemaRef, SendableRecordBatchStream);

/// Answers queries over the tables of a lake. Every query sees the newest version of each table, once.
pub struct Session {
    reader: LakeReader,
    names: LakeNames,
    state: SessionState,
    points: Option<JobPoints>,
}

/// A statement that was understood, at the newest versions of its tables.
enum Planned {
    Answer(QueryResult),
    Query(Box<PlannedQuery>),
}

struct PlannedQuery {
    plan: LogicalPlan,
    state: SessionState,
    gone: Arc<Gone>,
}

impl PlannedQuery {
    async fn run(self, parameters: Vec<ScalarValue>) -> Result<QueryResult, QueryError> {
        let gone = Arc::clone(&self.gone);
        match self.stream(parameters).await {
            Ok(stream) => Ok((stream.schema(), gone.watch(stream))),
            Err(error) => Err(gone.explain(error.into()).await),
        }
    }

    async fn stream(self, parameters: Vec<ScalarValue>) -> DataFusionResult<SendableRecordBatchStream> {
        // A second look at what is planned: a statement that writes must not get here by a form not thought of.
        SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false)
            .verify_plan(&self.plan)?;
        let plan = match parameters.is_empty() {
            true => self.plan,
            false => self.plan.with_param_values(parameters)?,
        };
        let frame = SessionContext::new_with_state(self.state).execute_logical_plan(plan).await?;
        frame.execute_stream().await
    }
}

/// What a statement gives, and what it has to be given.
#[derive(Debug, Clone)]
pub struct Description {
    pub schema: SchemaRef,
    /// The types of the placeholders `$1`, `$2`, ..., as far as the statement tells them.
    pub parameters: Vec<Option<DataType>>,
}

impl Description {
    /// # Errors
    /// A placeholder with two types.
    pub fn of(plan: &LogicalPlan) -> Result<Self, QueryError> {
        let mut types = plan.get_parameter_types()?;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Limit(limit) = node {
                let rows = [&limit.skip, &limit.fetch].into_iter().flatten();
                rows.for_each(|rows| note_type(&mut types, rows, &DataType::Int64));
            }
            node.apply_expressions(|expression| {
                expression.apply(|part| {
                    if let Expr::Cast(cast) = part {
                        note_type(&mut types, &cast.expr, cast.field.data_type());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        let number = |name: &String| name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        let count = types.keys().filter_map(number).max().unwrap_or(0).min(PARAMETERS_MAX);
        let parameters = (1..=count).map(|number| types.remove(&format!("${number}")).flatten()).collect();
        Ok(Self { schema: Arc::new(plan.schema().as_arrow().clone()), parameters })
    }
}

/// The type of a placeholder that the planner does not tell, by where it stands.
fn note_type(types: &mut HashMap<String, Option<DataType>>, place: &Expr, data_type: &DataType) {
    if let Expr::Placeholder(placeholder) = place {
        let known = types.entry(placeholder.id.clone()).or_default();
        known.get_or_insert_with(|| data_type.clone());
    }
}

/// As many as the PostgreSQL protocol can count.
const PARAMETERS_MAX: usize = 65_535;

/// The logs of this many tables are read at a time.
const TABLES_OPENED_AT_ONCE: usize = 8;

impl Session {
    /// A session over these tables of the lake. Nothing is read yet: a table is opened when a query names it.
    ///
    /// # Errors
    /// When the lake's place or the folder for spilled data can't be used.
    pub fn open(lake: &LakeConfig, tables: Vec<TableId>, limits: &QueryLimits) -> Result<Self, QueryError> {
        let lake = Lake::open(lake).map_err(|error| QueryError::lake("opening it", error))?;
        Self::over(lake, tables, limits)
    }

    /// The same over a lake that is open.
    ///
    /// # Errors
    /// When the folder for spilled data can't be used.
    pub fn over(lake: Lake, tables: Vec<TableId>, limits: &QueryLimits) -> Result<Self, QueryError> {
        let spill = DiskManagerMode::Directories(vec![limits.spill_dir.clone()]);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(limits.memory_bytes)))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(spill))
            .build_arc()?;
        let state = DeltaSessionContext::with_runtime_env(runtime).state();
        let config = configured(state.config().clone(), limits.memory_bytes);
        let state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
        Ok(Self { reader: LakeReader::new(lake), names: LakeNames::new(tables), state, points: None })
    }

    /// The same with what the job notes of itself: the table `alluvium.batches`, and consistent points.
    #[must_use]
    pub fn of_job(mut self, job: &str) -> Self {
        self.points = Some(JobPoints::new(self.reader.lake(), job));
        self
    }

    /// From now on tables without a version of their own are read at the last consistent point that is not after `as_of`.
    ///
    /// # Errors
    /// When there is no such point. The session must be [`Self::of_job`].
    pub async fn read_at(&mut self, as_of: &MomentAsOf) -> Result<PointRead, QueryError> {
        let Some(points) = &self.points else { return Err(QueryError::NoPoints { job: String::new() }) };
        let moment = points.moment(&self.state, as_of).await?;
        let point = moment.point.clone();
        self.reader = self.reader.clone().at(Arc::new(moment));
        Ok(point)
    }

    /// Runs one statement that reads: SELECT, WITH, EXPLAIN, SHOW TABLES, SHOW DATABASES, SHOW COLUMNS, DESCRIBE.
    ///
    /// A table is named `orders` (when only one database has it), `shop.orders`, and at an older version
    /// `orders VERSION AS OF 12`, `orders TIMESTAMP AS OF '2026-01-31 10:00:00'` (each with or without FOR), `FOR
    /// SYSTEM_TIME AS OF ...`, or `orders@v12`. The case of names does not matter where it tells nothing apart.
    /// Names are quoted by `"` or `` ` ``, text by `'`. NULL sorts first, as in MySQL.
    ///
    /// # Errors
    /// Of the query's text, its tables and columns: here. Of its run: in the stream; [`QueryError`] can be made of those.
    pub async fn sql(&self, sql: &str) -> Result<QueryResult, QueryError> {
        self.sql_with(sql, Vec::new()).await
    }

    /// The same with values for the placeholders `$1`, `$2`, ... of the statement, in this order.
    ///
    /// # Errors
    /// As [`Self::sql`], and for placeholders without a value.
    pub async fn sql_with(&self, sql: &str, parameters: Vec<ScalarValue>) -> Result<QueryResult, QueryError> {
        match self.plan(sql).await? {
            Planned::Answer(answer) => Ok(answer),
            Planned::Query(query) => query.run(parameters).await,
        }
    }

    /// What a statement would give, without running it.
    ///
    /// # Errors
    /// As [`Self::sql`].
    pub async fn describe(&self, sql: &str) -> Result<Description, QueryError> {
        match self.plan(sql).await? {
            Planned::Answer((schema, _)) => Ok(Description { schema, parameters: Vec::new() }),
            Planned::Query(query) => Description::of(&query.plan),
        }
    }

    /// A context in which all tables are listed at their newest versions, for those who ask what there is. It takes more schemas.
    ///
    /// # Errors
    /// None that is known.
    pub fn catalogue(&self) -> Result<SessionContext, QueryError> {
        let lake = LakeCatalog::new(&self.reader, &self.names, []);
        let catalog = MemoryCatalogProvider::new();
        for name in lake.schema_names() {
            if let Some(schema) = lake.schema(&name) {
                catalog.register_schema(&name, schema)?;
            }
        }
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_string(), Arc::new(catalog));
        let state = SessionStateBuilder::new_from_existing(self.state.clone()).with_catalog_list(Arc::new(catalogs));
        Ok(SessionContext::new_with_state(state.build()))
    }

    /// The table of a name as queries have it, without a version.
    ///
    /// # Errors
    /// When no table has the name, or several have.
    pub fn table(&self, name: &str) -> Result<TableId, QueryError> {
        let parts: Vec<String> = name.split('.').map(str::to_string).collect();
        Ok(self.names.resolve(&parts)?.table)
    }

    /// The version of a table that a person means: its number, a position of the source, or a commit time of it; without a text
    /// the newest.
    ///
    /// # Errors
    /// A text that is none of them; a moment at which the table has no version.
    pub async fn version_of(&self, table: &TableId, text: Option<&str>) -> Result<u64, QueryError> {
        let Some(text) = text.map(str::trim) else { return self.reader.newest(table).await };
        if let Ok(version) = text.strip_prefix(['v', 'V']).unwrap_or(text).parse() {
            return self.reader.check_version(table, version).await;
        }
        let as_of = MomentAsOf::position(text).or_else(|_| MomentAsOf::time(text))?;
        let Some(points) = &self.points else { return Err(QueryError::NoPoints { job: String::new() }) };
        points.moment(&self.state, &as_of).await?.version_of(self.lake(), table).await
    }

    pub(super) fn lake(&self) -> &Lake {
        self.reader.lake()
    }

    pub(super) fn state(&self) -> &SessionState {
        &self.state
    }

    async fn plan(&self, sql: &str) -> Result<Planned, QueryError> {
        let tokens = Tokens::read(sql)?;
        let statement = tokens.parse()?;
        if let Some(answer) = show::answer(&statement, &self.names, &self.reader).await? {
            return Ok(Planned::Answer(answer));
        }
        check_reads_only(&statement)?;
        Ok(Planned::Query(Box::new(self.plan_query(tokens, statement).await?)))
    }

    async fn plan_query(&self, tokens: Tokens, mut statement: Statement) -> Result<PlannedQuery, QueryError> {
        let relations = Relations::resolve(&mut statement, &self.names, &Spelling::default(), &tokens.travelled)?;
        let tables = self.open_tables(&relations).await?;
        let schemas = self.schemas(&relations, &tables).await?;
        let spelling = Spelling::choose(&statement, &tokens, schemas.iter(), self.names.case_counts());

        let tokens = spelling.apply(&tokens);
        let mut statement = tokens.parse()?;
        Relations::resolve(&mut statement, &self.names, &spelling, &tokens.travelled)?;
        let mut registered = tables
            .iter()
            .map(|(table, open)| {
                let provider = spelling.apply_to_table(Arc::clone(&open.provider))?;
                Ok((registered_name(table, &spelling), provider))
            })
            .collect::<Result<Vec<Registered>, QueryError>>()?;
        for (notes, points) in relations.notes.iter().zip(self.points.iter().cycle()) {
            let provider = match notes {
                JobNotes::Batches => Box::pin(points.provider()).await?,
                JobNotes::SchemaHistory => Box::pin(points.schema_history(&self.state)).await?,
                JobNotes::DdlLog => Box::pin(points.ddl_log(&self.state)).await?,
            };
            registered.push((notes.name(&spelling), spelling.apply_to_table(provider)?));
        }
        let gone = Arc::new(Gone::new(self.reader.lake(), &tables));
        let state = self.state_with(registered);
        match state.statement_to_plan(PlannerStatement::Statement(Box::new(statement))).await {
            Ok(plan) => Ok(PlannedQuery { plan, state, gone }),
            Err(error) => Err(gone.explain(error.into()).await),
        }
    }

    async fn open_tables(&self, relations: &Relations) -> Result<BTreeMap<TableAt, OpenTable>, QueryError> {
        futures::stream::iter(relations.tables.clone())
            .map(|table| async move {
                let open = self.reader.open(&table).await?;
                Ok((table, open))
            })
            .buffered(TABLES_OPENED_AT_ONCE)
            .try_collect()
            .await
    }

    async fn schemas(
        &self,
        relations: &Relations,
        tables: &BTreeMap<TableAt, OpenTable>,
    ) -> Result<Vec<SchemaRef>, QueryError> {
        let mut schemas: Vec<SchemaRef> = tables.values().map(|table| table.provider.schema()).collect();
        let context = SessionContext::new_with_state(self.state_with(Vec::new()));
        schemas.extend(relations.notes.iter().map(|notes| match notes {
            JobNotes::Batches => batches_schema(),
            JobNotes::SchemaHistory => schema_log::history_schema(),
            JobNotes::DdlLog => schema_log::ddl_schema(),
        }));
        for view in &relations.information {
            let view = TableReference::partial(INFORMATION_SCHEMA, view.as_str());
            schemas.push(TableProvider::schema(context.table_provider(view).await?.as_ref()));
        }
        Ok(schemas)
    }

    fn state_with(&self, tables: Vec<Registered>) -> SessionState {
        let catalogs = MemoryCatalogProviderList::new();
        let catalog = LakeCatalog::new(&self.reader, &self.names, tables);
        catalogs.register_catalog(CATALOG.to_string(), Arc::new(catalog));
        SessionStateBuilder::new_from_existing(self.state.clone()).with_catalog_list(Arc::new(catalogs)).build()
    }
}

/// A sort sets this part of the memory aside for merging what it spilled: one for each of its parallel parts must fit,
/// and the rows themselves.
const MERGE_PART_OF_MEMORY: usize = 32;

/// And at most this much, which is DataFusion's own measure.
const MERGE_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Names as typed (`spelling` makes their case right), `1.10` a decimal and NULL below every value as in MySQL.
fn configured(config: SessionConfig, memory_bytes: usize) -> SessionConfig {
    config
        .with_sort_spill_reservation_bytes((memory_bytes / MERGE_PART_OF_MEMORY).min(MERGE_BYTES_MAX))
        .with_information_schema(true)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, "none")
        .set_bool("datafusion.sql_parser.enable_ident_normalization", false)
        .set_bool("datafusion.sql_parser.parse_float_as_decimal", true)
        .set_str("datafusion.sql_parser.default_null_ordering", "nulls_min")
}
