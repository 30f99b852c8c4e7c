//! The known word that is nearest to one that is not known, to be suggested.

/// Words that are longer are nobody's slip of the pen.
const MAX_WORD_CHARS: usize = 64;

/// None if nothing is near enough to have been meant.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    let chars = word.chars().count();
    if chars > MAX_WORD_CHARS {
        return None;
    }
    let allowed = (chars / 3).max(1);
    let distances = known.into_iter().map(|known| (distance(&word, &plain(known)), known));
    let nearest = distances.filter(|(distance, _)| *distance <= allowed);
    nearest.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// What is unknown about a key, and what may have been meant.
pub(super) fn unknown<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(key, known) {
        Some(near) => format!("is not known here; did you mean {near}?"),
        None => "is not known here; `postrider config reference` lists what is".to_owned(),
    }
}

/// Flags have dashes where keys have underscores.
fn plain(word: &str) -> String {
    word.trim_start_matches('-').replace('-', "_").to_lowercase()
}

/// How many characters have to be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, char) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, known) in other.iter().enumerate() {
            let changed = diagonal + usize::from(char != *known);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_probably_meant_is_found_and_nothing_else() {
        let known = ["listen", "allow_destination", "drain", "endpoints"];
        for (word, meant) in [
            ("lisen", Some("listen")),
            ("--listen", Some("listen")),
            ("Listen", Some("listen")),
            ("allow-destination", Some("allow_destination")),
            ("allow_destinations", Some("allow_destination")),
            ("endpoint", Some("endpoints")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"listen".repeat(20), known), None);
    }
}
