//! The headless face of Handrail.

fn main() {}
