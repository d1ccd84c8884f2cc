//! A server's tool as the tool loop sees it: it runs only what its permit holds.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::super::connection::Connection;
use crate::approval::Permit;
use crate::tool::{CallResult, Control, Definition, Error, Tool};

/// One tool of one server.
#[derive(Debug)]
pub(super) struct ServerTool {
    pub(super) definition: Arc<Definition>,
    pub(super) connection: Connection,
}

impl Tool<Permit> for ServerTool {
    fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    fn call(&self, permit: Permit, control: Control) -> BoxFuture<'static, Result<CallResult, Error>> {
        let (definition, connection) = (self.definition.clone(), self.connection.clone());
        async move {
            // From here on the permit is spent: these arguments run, once, or nothing does.
            let arguments = permit.spend_for(&definition.id)?;
            if connection.dropped(&definition) {
                return Err(Error::Permit(format!("the server changed the tool {} since it was shown", definition.id)));
            }
            let Value::Object(arguments) = arguments else {
                return Err(Error::Permit("its arguments are no JSON object".to_owned()));
            };
            connection.call(&definition.id.name, arguments, &control).await
        }
        .boxed()
    }
}
