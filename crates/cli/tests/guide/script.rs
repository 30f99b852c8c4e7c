//! The commands of a page: its `sh` blocks, each under its heading.

use std::fs;

use crate::root;

#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) heading: String,
    pub(crate) code: String,
}

/// The blocks of a file of the repository.
pub(crate) fn read(path: &str) -> Vec<Block> {
    let text =
        fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let blocks = parse(&text);
    assert!(!blocks.is_empty(), "{path} has no commands");
    blocks
}

fn parse(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut heading = String::new();
    let mut fence: Option<bool> = None;
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            let is_sh = language == "sh";
            if fence.is_none() && is_sh {
                blocks.push(Block { heading: heading.clone(), code: String::new() });
            }
            fence = if fence.is_none() { Some(is_sh) } else { None };
        } else if fence == Some(true) {
            if let Some(block) = blocks.last_mut() {
                block.code.push_str(line);
                block.code.push('\n');
            }
        } else if fence.is_none()
            && let Some(title) = line.strip_prefix('#')
        {
            title.trim_start_matches('#').trim().clone_into(&mut heading);
        }
    }
    blocks
}

#[test]
fn only_commands_are_taken_and_headings_within_code_are_none() {
    let blocks = parse("# A\n```json\n{}\n```\n```sh\n# b\nls\n```\n## C\n```sh\npwd\n```\n");
    let found: Vec<(&str, &str)> =
        blocks.iter().map(|block| (block.heading.as_str(), block.code.as_str())).collect();
    assert_eq!(found, [("A", "# b\nls\n"), ("C", "pwd\n")]);
}
