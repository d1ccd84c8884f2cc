//! Where the tests find the default chat model. The project's test runner fetches it beforehand.

use std::path::PathBuf;

/// Path of the GGUF; panics with what to do when it is not there.
pub fn path() -> PathBuf {
    let path = match std::env::var_os("HANDRAIL_TEST_GGUF") {
        Some(path) => PathBuf::from(path),
        None => directories::BaseDirs::new()
            .expect("there is no home folder")
            .cache_dir()
            .join("handrail/test-models/smollm2-135m-instruct-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf"),
    };
    assert!(path.is_file(), "{} is missing: run the project's test runner, or set HANDRAIL_TEST_GGUF", path.display());
    path
}
