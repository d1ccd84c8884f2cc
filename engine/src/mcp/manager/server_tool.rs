//! A server's tool as the tool loop sees it: it runs only what its permit holds.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::super::connection::Connection;
use crate::approval::Permit;
use crate::tool::{CallResult, Control, Definition, Error, Tool};

/// One tool of one server, bound to the command or address that listed it.
#[derive(Debug)]
pub(super) struct ServerTool {
    pub(super) definition: Arc<Definition>,
    pub(super) transport: String,
    pub(super) connection: Connection,
}

impl Tool<Permit> for ServerTool {
    fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn call(&self, permit: Permit, control: Control) -> BoxFuture<'static, Result<CallResult, Error>> {
        let (id, transport, connection) = (self.definition.id.clone(), self.transport.clone(), self.connection.clone());
        async move {
            if permit.transport() != transport {
                return Err(Error::Permit(format!("the command or address of server '{}' changed since the tool was shown", id.server)));
            }
            let call = permit.call().id.clone();
            // From here on the permit is spent: these arguments run, once, or nothing does.
            let Value::Object(arguments) = permit.spend_for(&id)? else {
                return Err(Error::Permit("its arguments are no JSON object".to_owned()));
            };
            connection.call(&id, &call, &transport, arguments, &control).await
        }
        .boxed()
    }
}
