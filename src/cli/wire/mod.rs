//! `alluvium sql --serve`: the queries of a session over the PostgreSQL protocol (its documentation, "Frontend/Backend
//! Protocol"), so that psql and BI tools can ask. Reading only, without a password: so on this machine only.
//!
//! Settings and transactions, which drivers send unasked, are answered and do nothing: each query sees the newest versions.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use arrow::datatypes::Schema;
use async_trait::async_trait;
use futures::{Stream, StreamExt, stream};
use pgwire::api::auth::StartupHandler;
use pgwire::api::auth::noop::NoopStartupHandler;
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{
    DescribePortalResponse, DescribeStatementResponse, FieldInfo, QueryResponse, Response, Tag,
};
use pgwire::api::stmt::{NoopQueryParser, StoredStatement};
use pgwire::api::{ClientInfo, PgWireServerHandlers};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;
use pgwire::tokio::process_socket;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::query::{QueryError, QueryResult, Session};

mod value;

/// Clients that are answered at the same time; more wait. Their queries share one limit of memory.
const CLIENTS_MAX: usize = 32;
/// The protocol's code for an error in the query ("PostgreSQL Error Codes").
const SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION: &str = "42000";
/// The same for a fault of the server.
const INTERNAL_ERROR: &str = "XX000";
/// The same for what is not there.
const FEATURE_NOT_SUPPORTED: &str = "0A000";

/// Answers clients at `address` until the process is ended.
///
/// # Errors
/// An address that cannot be listened at.
pub async fn serve(session: Session, address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    ready(listener.local_addr()?);
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    let handlers =
        Arc::new(Handlers(Arc::new(Answers { session: Arc::new(session), parser: Arc::new(NoopQueryParser::new()) })));
    loop {
        let Ok(place) = Arc::clone(&clients).acquire_owned().await else { return Ok(()) };
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                continue;
            }
        };
        let handlers = Arc::clone(&handlers);
        tokio::spawn(async move {
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
}

struct Answers {
    session: Arc<Session>,
    parser: Arc<NoopQueryParser>,
}

impl NoopStartupHandler for Answers {}

impl Answers {
    async fn ask(&self, sql: &str) -> PgWireResult<QueryResult> {
        let (session, sql) = (Arc::clone(&self.session), sql.to_string());
        let runtime = tokio::runtime::Handle::current();
        // On a thread of its own: planning reads logs and footers, and holds borrows that may not move between threads.
        let asked = tokio::task::spawn_blocking(move || runtime.block_on(session.sql(&sql))).await;
        let asked = asked.map_err(|cause| error(INTERNAL_ERROR, format!("the query's task ended: {cause}")))?;
        asked.map_err(|error| failed(&error))
    }

    async fn answer(&self, sql: &str, format: &Format) -> PgWireResult<Response> {
        if let Some(answer) = ceremony(sql) {
            return Ok(answer);
        }
        let (schema, rows) = self.ask(sql).await?;
        let fields = Arc::new(fields(&schema, format));
        Ok(Response::Query(QueryResponse::new(Arc::clone(&fields), encoded(rows, fields))))
    }

    async fn columns(&self, sql: &str, format: &Format) -> PgWireResult<Vec<FieldInfo>> {
        if ceremony(sql).is_some() {
            return Ok(Vec::new());
        }
        Ok(fields(&self.ask(sql).await?.0, format))
    }
}

#[async_trait]
impl SimpleQueryHandler for Answers {
    async fn do_query<C>(&self, _client: &mut C, sql: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        Ok(vec![self.answer(sql, &Format::UnifiedText).await?])
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
        if portal.parameter_len() > 0 {
            let what = "parameters are not supported; put the values into the query";
            return Err(error(FEATURE_NOT_SUPPORTED, what.to_string()));
        }
        self.answer(&portal.statement.statement, &portal.result_column_format).await
    }

    async fn do_describe_statement<C>(
        &self,
        _client: &mut C,
        statement: &StoredStatement<Self::Statement>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let columns = self.columns(&statement.statement, &Format::UnifiedText).await?;
        Ok(DescribeStatementResponse::new(Vec::new(), columns))
    }

    async fn do_describe_portal<C>(
        &self,
        _client: &mut C,
        portal: &Portal<Self::Statement>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let columns = self.columns(&portal.statement.statement, &portal.result_column_format).await?;
        Ok(DescribePortalResponse::new(columns))
    }
}

/// What drivers send around their queries.
fn ceremony(sql: &str) -> Option<Response> {
    let word = sql.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default().to_uppercase();
    match word.as_str() {
        "BEGIN" | "START" => Some(Response::TransactionStart(Tag::new("BEGIN"))),
        "COMMIT" | "END" => Some(Response::TransactionEnd(Tag::new("COMMIT"))),
        "ROLLBACK" | "ABORT" => Some(Response::TransactionEnd(Tag::new("ROLLBACK"))),
        "SET" | "RESET" | "DISCARD" | "DEALLOCATE" | "CLOSE" => Some(Response::Execution(Tag::new(&word))),
        _ => None,
    }
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
    rows: datafusion::execution::SendableRecordBatchStream,
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
