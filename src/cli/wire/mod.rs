//! `alluvium sql --serve`: the queries of a session over the PostgreSQL protocol (its documentation, "Frontend/Backend
//! Protocol"), so that psql and BI tools can ask. Reading only, without a password: so on this machine only.
//!
//! Settings and transactions, which drivers send unasked, are answered and do nothing: each query sees the newest versions.
//! What psql and BI tools ask of `pg_catalog` is answered by [`catalogue`], values of prepared statements are read by [`parameter`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use async_trait::async_trait;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::scalar::ScalarValue;
use futures::{Stream, StreamExt, stream};
use pgwire::api::auth::StartupHandler;
use pgwire::api::auth::noop::NoopStartupHandler;
use pgwire::api::cancel::{CancelHandler, DefaultCancelHandler};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{
    DataRowEncoder, DescribePortalResponse, DescribeStatementResponse, FieldFormat, FieldInfo, QueryResponse, Response,
    Tag,
};
use pgwire::api::stmt::{NoopQueryParser, StoredStatement};
use pgwire::api::{ClientInfo, ConnectionManager, PgWireServerHandlers, Type};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;
use pgwire::tokio::process_socket;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::catalogue::Catalogue;
use crate::query::script::Script;
use crate::query::{Description, QueryError, Session};

mod catalogue;
mod parameter;
mod value;

/// Clients that are answered at the same time; more wait. Their queries share one limit of memory.
const CLIENTS_MAX: usize = 32;
/// When a client cannot be accepted (no file handle is free), the next try may fare better after this.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);
/// The protocol's code for an error in the query ("PostgreSQL Error Codes").
const SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION: &str = "42000";
/// The same for a fault of the server.
const INTERNAL_ERROR: &str = "XX000";
/// The same for a value of a parameter.
const INVALID_PARAMETER: &str = "22023";
/// The release of PostgreSQL whose catalogue is shown; some drivers ask before they trust a server.
const SERVER_VERSION: &str = "16.6";

/// Answers clients at `address` until the process is ended.
///
/// # Errors
/// An address that cannot be listened at; a lake whose tables cannot be listed.
pub async fn serve(session: Session, address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let catalogue = Catalogue::of(&session).map_err(io::Error::other)?;
    let listener = TcpListener::bind(address).await?;
    ready(listener.local_addr()?);
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    let handlers = Arc::new(Handlers(Arc::new(Answers {
        session: Arc::new(session),
        catalogue: Arc::new(catalogue),
        parser: Arc::new(NoopQueryParser::new()),
        connections: Arc::new(ConnectionManager::new()),
    })));
    loop {
        let Ok(place) = Arc::clone(&clients).acquire_owned().await else { return Ok(()) };
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                tokio::time::sleep(AFTER_A_FAILURE).await;
                continue;
            }
        };
        let handlers = Arc::clone(&handlers);
        tokio::spawn(async move {
            // A connection whose other end is gone without a word must not hold its place for ever.
            if let Err(error) = socket2::SockRef::from(&socket).set_keepalive(true) {
                tracing::debug!(%peer, %error, "no keep-alive");
            }
            if let Err(error) = process_socket(socket, None, handlers).await {
                tracing::debug!(%peer, %error, "a client has gone");
            }
            drop(place);
        });
    }
}

struct Handlers(Arc<Answers>);

impl PgWireServerHandlers for Handlers {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        Arc::clone(&self.0)
    }

    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        Arc::clone(&self.0)
    }

    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        Arc::clone(&self.0)
    }

    fn cancel_handler(&self) -> Arc<impl CancelHandler> {
        Arc::new(DefaultCancelHandler::new(Arc::clone(&self.0.connections)))
    }
}

struct Answers {
    session: Arc<Session>,
    catalogue: Arc<Catalogue>,
    parser: Arc<NoopQueryParser>,
    /// Those whose queries can be cancelled.
    connections: Arc<ConnectionManager>,
}

impl NoopStartupHandler for Answers {
    fn connection_manager(&self) -> Option<Arc<ConnectionManager>> {
        Some(Arc::clone(&self.connections))
    }
}

impl Answers {
    /// Rows come only when they are asked for, but the first are made here: a query is cancelled while this is at work.
    async fn ask(&self, sql: &str, parameters: Vec<ScalarValue>) -> PgWireResult<SendableRecordBatchStream> {
        let (session, catalogue, sql) = (Arc::clone(&self.session), Arc::clone(&self.catalogue), sql.to_string());
        planned(move || async move {
            match catalogue.is_asked(&sql) {
                true => Ok(catalogue.ask(&sql, parameters).await?),
                false => Ok(session.sql_with(&sql, parameters).await?.1),
            }
        })
        .await
    }

    async fn describe(&self, sql: &str) -> PgWireResult<Description> {
        let (session, catalogue, sql) = (Arc::clone(&self.session), Arc::clone(&self.catalogue), sql.to_string());
        planned(move || async move {
            match catalogue.is_asked(&sql) {
                true => Description::of(&catalogue.plan(&sql).await?),
                false => session.describe(&sql).await,
            }
        })
        .await
    }

    async fn answer(&self, sql: &str, parameters: Vec<ScalarValue>, format: &Format) -> PgWireResult<Response> {
        if let Some(answer) = ceremony(sql) {
            return answer;
        }
        let mut rows = self.ask(sql, parameters).await?;
        let fields = Arc::new(fields(&rows.schema(), format));
        // In a task of its own: who cancels is heard though the query computes without a pause.
        let mut reading = JoinSet::new();
        reading.spawn(async move { (rows.next().await, rows) });
        let read = reading.join_next().await.transpose();
        let Some((first, rest)) =
            read.map_err(|cause| error(INTERNAL_ERROR, format!("the query's task ended: {cause}")))?
        else {
            return Ok(Response::EmptyQuery);
        };
        let rows = stream::iter(first).chain(rest);
        Ok(Response::Query(QueryResponse::new(Arc::clone(&fields), encoded(rows, fields))))
    }

    /// The columns of a statement, and the types of its parameters.
    async fn shape(
        &self,
        statement: &StoredStatement<String>,
        format: &Format,
    ) -> PgWireResult<(Vec<FieldInfo>, Vec<Type>)> {
        match ceremony(&statement.statement) {
            Some(Ok(Response::Query(answer))) => Ok((answer.row_schema().as_ref().clone(), Vec::new())),
            Some(_) => Ok((Vec::new(), Vec::new())),
            None => {
                let Description { schema, parameters } = self.describe(&statement.statement).await?;
                Ok((fields(&schema, format), parameter::types(&statement.parameter_types, &parameters)))
            }
        }
    }
}

/// On a thread of its own: planning reads logs and footers, and holds borrows that may not move between threads.
async fn planned<T, W>(work: impl FnOnce() -> W + Send + 'static) -> PgWireResult<T>
where
    T: Send + 'static,
    W: Future<Output = Result<T, QueryError>>,
{
    let runtime = tokio::runtime::Handle::current();
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work())).await;
    let done = done.map_err(|cause| error(INTERNAL_ERROR, format!("the query's task ended: {cause}")))?;
    done.map_err(|error| failed(&error))
}

#[async_trait]
impl SimpleQueryHandler for Answers {
    async fn do_query<C>(&self, _client: &mut C, sql: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let mut answers = Vec::new();
        for sql in Script::read(sql).into_statements() {
            answers.push(self.answer(&sql, Vec::new(), &Format::UnifiedText).await?);
        }
        Ok(answers)
    }
}

#[async_trait]
impl ExtendedQueryHandler for Answers {
    type Statement = String;
    type QueryParser = NoopQueryParser;

    fn query_parser(&self) -> Arc<Self::QueryParser> {
        Arc::clone(&self.parser)
    }

    async fn do_query<C>(
        &self,
        _client: &mut C,
        portal: &Portal<Self::Statement>,
        _max_rows: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let sql = &portal.statement.statement;
        let values = match portal.parameter_len() {
            0 => Vec::new(),
            _ => parameter::values(portal, &self.shape(&portal.statement, &Format::UnifiedText).await?.1)?,
        };
        self.answer(sql, values, &portal.result_column_format).await
    }

    async fn do_describe_statement<C>(
        &self,
        _client: &mut C,
        statement: &StoredStatement<Self::Statement>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let (columns, parameters) = self.shape(statement, &Format::UnifiedText).await?;
        Ok(DescribeStatementResponse::new(parameters, columns))
    }

    async fn do_describe_portal<C>(
        &self,
        _client: &mut C,
        portal: &Portal<Self::Statement>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let (columns, _) = self.shape(&portal.statement, &portal.result_column_format).await?;
        Ok(DescribePortalResponse::new(columns))
    }
}

/// What drivers send around their queries.
fn ceremony(sql: &str) -> Option<PgWireResult<Response>> {
    let mut words =
        sql.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').filter(|word| !word.is_empty());
    let word = words.next().unwrap_or_default().to_uppercase();
    Some(Ok(match word.as_str() {
        "BEGIN" | "START" => Response::TransactionStart(Tag::new("BEGIN")),
        "COMMIT" | "END" => Response::TransactionEnd(Tag::new("COMMIT")),
        "ROLLBACK" | "ABORT" => Response::TransactionEnd(Tag::new("ROLLBACK")),
        "SET" | "RESET" | "DISCARD" | "DEALLOCATE" | "CLOSE" => Response::Execution(Tag::new(&word)),
        "SHOW" => return setting(&words.collect::<Vec<_>>().join(" ").to_lowercase()),
        _ => return None,
    }))
}

/// What SHOW tells of a setting that drivers ask for; `None` for all else.
fn setting(name: &str) -> Option<PgWireResult<Response>> {
    let value = match name {
        // Each query reads one version of each table, whatever is written meanwhile.
        "transaction isolation level" | "transaction_isolation" => "read committed",
        "standard_conforming_strings" | "integer_datetimes" => "on",
        "server_version" => SERVER_VERSION,
        "server_encoding" | "client_encoding" => "UTF8",
        "datestyle" => "ISO, MDY",
        "timezone" | "time zone" => "UTC",
        "max_identifier_length" => "63",
        _ => return None,
    };
    let field = FieldInfo::new(name.replace(' ', "_"), None, None, Type::TEXT, FieldFormat::Text);
    let fields = Arc::new(vec![field]);
    let mut encoder = DataRowEncoder::new(Arc::clone(&fields));
    let row = encoder.encode_field(&value).map(|()| encoder.take_row());
    Some(Ok(Response::Query(QueryResponse::new(fields, stream::iter([row])))))
}

fn fields(schema: &Schema, format: &Format) -> Vec<FieldInfo> {
    let field = |(index, field): (usize, &Arc<arrow::datatypes::Field>)| {
        let name = field.name().clone();
        FieldInfo::new(name, None, None, value::type_of(field.data_type()), format.format_for(index))
    };
    schema.fields().iter().enumerate().map(field).collect()
}

/// Rows of the protocol, batch by batch as they come.
fn encoded(
    rows: impl Stream<Item = DataFusionResult<RecordBatch>> + Send + 'static,
    fields: Arc<Vec<FieldInfo>>,
) -> impl Stream<Item = PgWireResult<DataRow>> + Send + 'static {
    rows.flat_map(move |batch| {
        let encoded = match batch {
            Ok(batch) => value::encode(&batch, &fields),
            Err(error) => Err(failed(&error.into())),
        };
        let rows = match encoded {
            Ok(rows) => rows.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(rows)
    })
}

fn failed(cause: &QueryError) -> PgWireError {
    error(SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION, cause.to_string())
}

fn error(code: &str, message: String) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new("ERROR".to_string(), code.to_string(), message)))
}
