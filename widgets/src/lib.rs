//! Reusable iced widgets; they know no chat and no MCP.
