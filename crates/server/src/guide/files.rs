//! The files that the guide is made of, by their paths within docs/.

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        /// Each path with the text of its file.
        pub(super) const FILES: &[(&str, &str)] =
            &[$(($path, include_str!(concat!("../../../../docs/", $path)))),*];
    };
}

files![
    "guide/SUMMARY.md",
    "guide/quick-start.md",
    "guide/concepts.md",
    "guide/recipe-inbox.md",
    "guide/recipe-dispatch.md",
    "guide/recipe-runs.md",
    "guide/recipe-edge.md",
    "guide/recipe-router.md",
    "guide/policies.md",
    "guide/ordering.md",
    "guide/signatures.md",
    "guide/securing.md",
    "guide/operating.md",
    "guide/scaling.md",
    "guide/benchmarks.md",
    "guide/configuration.md",
    "guide/command-line.md",
    "guide/metrics.md",
    "guide/embedding.md",
    "guide/hub-protocol.md",
    "guide/comparison.md",
    "guide/verify/verify.py",
    "guide/verify/verify.mjs",
    "guide/verify/verify.go",
    "guide/verify/verify.rb",
    "guide/verify/Verify.java",
    "guide/verify/verify.php",
    "guide/verify/verify.rs",
    "benchmarks.md",
    "cli.md",
    "configuration.md",
    "hub-protocol.md",
    "metrics.md",
    "scaling.md",
    "state-machine.md",
];

/// The text of a file, by its path within docs/.
pub(super) fn text(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}
