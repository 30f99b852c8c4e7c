//! What a disk may hold after the power went: everything that was synced, and of the rest whatever
//! chance left.
//!
//! A sector of a file goes to disk at some moment and is then as it was at that moment: with all
//! that was written to it before, and nothing after. So for each sector that was written to since
//! its file was synced, some number of those writes is on disk, from none to all of them, whatever
//! the other sectors hold. That is also every order in which they can have been written. The length
//! of a file is on disk as of a moment of its own. The names in a folder reach the disk in the order
//! in which they changed, as they do with a journal.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Result;

use super::super::random::Random;
use super::history::{Change, Deed, FileId, History, Moment, Subject};

/// Whether a sync means anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    Honest,
    /// It forgets what it said it had, from this moment on. A check that passes here is none.
    LiesFrom(Moment),
}

/// What is left of that which was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Survival {
    Nothing,
    Everything,
    /// All of it in order up to some write, and of that one the first sectors.
    Torn,
    /// Of each sector what it held at some moment.
    Scattered {
        sector: Sector,
        odds: Odds,
    },
    /// Every file has a fate of its own.
    Mixed,
}

/// What a disk writes as a whole or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sector {
    Small,
    Large,
}

/// How much of what was not synced had its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Odds {
    Few,
    Half,
    Most,
}

/// The files by their names.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

impl Survival {
    pub(super) fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 | 3 => Self::Torn,
            4 | 5 => Self::Mixed,
            _ => Self::scattered(random),
        }
    }

    fn of_one_file(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 => Self::Torn,
            _ => Self::scattered(random),
        }
    }

    fn scattered(random: &mut Random) -> Self {
        let sector = Sector::draw(random);
        let odds = [Odds::Few, Odds::Half, Odds::Most][random.index(3)];
        Self::Scattered { sector, odds }
    }
}

impl Sector {
    fn draw(random: &mut Random) -> Self {
        if random.one_in(2) { Self::Small } else { Self::Large }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Small => 512,
            Self::Large => 4_096,
        }
    }
}

impl Odds {
    /// Out of ten.
    const fn in_ten(self) -> u64 {
        match self {
            Self::Few => 1,
            Self::Half => 5,
            Self::Most => 9,
        }
    }
}

/// The files as they are found when the power has gone at `cut`: before the call that begins there.
pub(super) fn after_power_loss(
    history: &History,
    cut: Moment,
    disk: Disk,
    survival: Survival,
    random: &mut Random,
) -> Files {
    let mut subjects: BTreeMap<Option<FileId>, Fates<'_>> = BTreeMap::new();
    let synced = last_syncs(history, cut, disk);
    for change in history.changes.iter().take_while(|change| change.begun < cut) {
        let key = match change.subject {
            Subject::Names => None,
            Subject::File(file) => Some(file),
        };
        let fates = subjects.entry(key).or_default();
        // A sync means what was back before it began.
        let is_kept = synced
            .get(&change.subject)
            .is_some_and(|begun| change.ended.is_some_and(|ended| ended < *begun));
        if is_kept { fates.kept.push(change) } else { fates.loose.push(change) }
    }
    let names = subjects.remove(&None).unwrap_or_default();
    let names = names.names(survival, random);
    let contents: HashMap<FileId, Vec<u8>> = subjects
        .into_iter()
        .filter_map(|(file, fates)| Some((file?, fates.content(survival, random))))
        .collect();
    names
        .into_iter()
        .map(|(name, file)| (name, contents.get(&file).cloned().unwrap_or_default()))
        .collect()
}

/// When the last sync of each began that was back before `cut`.
fn last_syncs(history: &History, cut: Moment, disk: Disk) -> HashMap<Subject, Moment> {
    let mut last = HashMap::new();
    for sync in history.syncs.iter().filter(|sync| sync.ended < cut) {
        let counts = match disk {
            Disk::Honest => true,
            Disk::LiesFrom(moment) => sync.ended < moment,
        };
        if counts {
            let begun = last.entry(sync.subject).or_insert(sync.begun);
            *begun = (*begun).max(sync.begun);
        }
    }
    last
}

/// What happened to one file, or to the names: what is on disk, and what may be.
#[derive(Default)]
struct Fates<'a> {
    kept: Vec<&'a Change>,
    loose: Vec<&'a Change>,
}

impl Fates<'_> {
    fn names(&self, survival: Survival, random: &mut Random) -> BTreeMap<String, FileId> {
        let loose = match survival {
            Survival::Nothing => 0,
            Survival::Everything => self.loose.len(),
            Survival::Torn | Survival::Scattered { .. } | Survival::Mixed => {
                random.index(self.loose.len() + 1)
            }
        };
        let mut names = BTreeMap::new();
        for change in self.kept.iter().chain(&self.loose[..loose]) {
            match &change.deed {
                Deed::Name { name, file } => {
                    names.insert(name.clone(), *file);
                }
                Deed::Unname(name) => {
                    names.remove(name);
                }
                Deed::Rename { from, to } => {
                    if let Some(file) = names.remove(from) {
                        names.insert(to.clone(), file);
                    }
                }
                Deed::Write { .. } | Deed::Resize(_) => {}
            }
        }
        names
    }

    fn content(&self, survival: Survival, random: &mut Random) -> Vec<u8> {
        let mut image = Image::default();
        for change in &self.kept {
            image.apply(&change.deed);
        }
        let survival = match survival {
            Survival::Mixed => Survival::of_one_file(random),
            one @ (Survival::Nothing
            | Survival::Everything
            | Survival::Torn
            | Survival::Scattered { .. }) => one,
        };
        match survival {
            Survival::Nothing => {}
            Survival::Everything | Survival::Mixed => {
                for change in &self.loose {
                    image.apply(&change.deed);
                }
            }
            Survival::Torn => self.tear(&mut image, random),
            Survival::Scattered { sector, odds } => {
                self.scatter(&mut image, sector.bytes(), odds, random);
            }
        }
        image.finish()
    }

    fn tear(&self, image: &mut Image, random: &mut Random) {
        let whole = random.index(self.loose.len() + 1);
        for change in &self.loose[..whole] {
            image.apply(&change.deed);
        }
        if let Some(Deed::Write { at, bytes }) = self.loose.get(whole).map(|change| &change.deed) {
            let pieces: Vec<Piece<'_>> = pieces(*at, bytes, Sector::draw(random).bytes()).collect();
            let written = random.index(pieces.len() + 1);
            for piece in &pieces[..written] {
                image.write(piece.at, piece.bytes);
                image.length = image.length.max(piece.at + piece.bytes.len());
            }
        }
    }

    fn scatter(&self, image: &mut Image, sector: usize, odds: Odds, random: &mut Random) {
        let lengths = self.lengths(image.length);
        let longest = lengths.iter().copied().max().unwrap_or(image.length);
        let deeds: Vec<(usize, Vec<u8>)> = self.deeds(image.length, longest);
        let mut touched: BTreeMap<usize, usize> = BTreeMap::new();
        for (at, bytes) in &deeds {
            for piece in pieces(*at, bytes, sector) {
                *touched.entry(piece.sector).or_default() += 1;
            }
        }
        // How many of the writes to each sector are on disk.
        let mut left: BTreeMap<usize, usize> = touched
            .into_iter()
            .map(|(sector, writes)| {
                let had_its_turn = random.below(10) < odds.in_ten();
                (sector, if had_its_turn { 1 + random.index(writes) } else { 0 })
            })
            .collect();
        for (at, bytes) in &deeds {
            for piece in pieces(*at, bytes, sector) {
                if let Some(writes) = left.get_mut(&piece.sector)
                    && *writes > 0
                {
                    *writes -= 1;
                    image.write(piece.at, piece.bytes);
                }
            }
        }
        image.length = lengths[random.index(lengths.len())];
    }

    /// The lengths that the file had from the last sync on.
    fn lengths(&self, synced: usize) -> Vec<usize> {
        let mut length = synced;
        let mut lengths = vec![length];
        for change in &self.loose {
            match &change.deed {
                Deed::Write { at, bytes } => length = length.max(at + bytes.len()),
                Deed::Resize(to) => length = *to,
                Deed::Name { .. } | Deed::Unname(_) | Deed::Rename { .. } => {}
            }
            lengths.push(length);
        }
        lengths
    }

    /// What was not synced as plain writes: a file that is shortened loses what is behind its end.
    fn deeds(&self, synced: usize, longest: usize) -> Vec<(usize, Vec<u8>)> {
        let end = synced.max(longest);
        let mut deeds = Vec::with_capacity(self.loose.len());
        for change in &self.loose {
            match &change.deed {
                Deed::Write { at, bytes } => deeds.push((*at, bytes.clone())),
                Deed::Resize(to) if *to < end => deeds.push((*to, vec![0; end - to])),
                Deed::Resize(_) | Deed::Name { .. } | Deed::Unname(_) | Deed::Rename { .. } => {}
            }
        }
        deeds
    }
}

/// The part of a write that falls into one sector.
struct Piece<'a> {
    sector: usize,
    at: usize,
    bytes: &'a [u8],
}

fn pieces(at: usize, bytes: &[u8], sector: usize) -> impl Iterator<Item = Piece<'_>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = at + done;
        let length = (sector - at % sector).min(bytes.len() - done);
        let piece = Piece { sector: at / sector, at, bytes: &bytes[done..done + length] };
        done += length;
        (length > 0).then_some(piece)
    })
}

/// A file as it is being put together.
#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
    length: usize,
}

impl Image {
    fn apply(&mut self, deed: &Deed) {
        match deed {
            Deed::Write { at, bytes } => {
                self.write(*at, bytes);
                self.length = self.length.max(at + bytes.len());
            }
            Deed::Resize(to) => {
                self.bytes.truncate(*to);
                self.length = *to;
            }
            Deed::Name { .. } | Deed::Unname(_) | Deed::Rename { .. } => {}
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.length, 0);
        self.bytes
    }
}

/// Writes the files into `folder`, which is made, each for its owner alone.
pub(super) fn write(files: &Files, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, content) in files {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(folder.join(name))?.write_all(content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
