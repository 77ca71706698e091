//! A model's file or files: mapped, header read, tensors found by name and checked for shape and type.

use std::path::{Path, PathBuf};

use ounce_gguf::{Header, TensorInfo, TensorType};
use ounce_kernels::Mat;

use crate::EngineError;
use crate::memory::Mapping;
use crate::memory::smaps::Area;

/// Mapped file(s) with the header of all. Tensors are views into the mappings.
pub struct ModelFile {
    mappings: Vec<Mapping>,
    /// Bytes before the tensors of each part.
    header_bytes: Vec<usize>,
    header: Header,
}

/// Where a matrix lies; [`ModelFile::mat`] gives the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatRef {
    /// Block type.
    pub ty: TensorType,
    /// Output width.
    pub rows: usize,
    /// Input width.
    pub cols: usize,
    file: u16,
    offset: usize,
    n_bytes: usize,
}

impl MatRef {
    /// Matrix `e` of a stack of `n` equal ones that lie one after another (the experts of a layer).
    pub fn expert(&self, e: usize, n: usize) -> MatRef {
        let (rows, n_bytes) = (self.rows / n, self.n_bytes / n);
        MatRef {
            rows,
            n_bytes,
            offset: self.offset + e * n_bytes,
            ..*self
        }
    }

    /// Bytes the matrix takes in the file.
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }
}

/// Where an F32 vector lies; [`ModelFile::vec`] gives the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VecRef {
    file: u16,
    offset: usize,
    /// Elements.
    pub len: usize,
}

impl ModelFile {
    /// Maps `path`, and the other parts when it is the first of a split model, and reads the header(s).
    ///
    /// # Errors
    /// A file is missing, unreadable or not a sound GGUF.
    pub fn open(path: &Path) -> Result<ModelFile, EngineError> {
        let (first, first_header) = open_one(path)?;
        let names = ounce_gguf::split::part_names(&file_name(path), &first_header.metadata)
            .map_err(|source| EngineError::Gguf {
                path: path.to_owned(),
                source,
            })?;
        if names.len() <= 1 {
            return Ok(ModelFile {
                mappings: vec![first],
                header_bytes: vec![first_header.data_offset as usize],
                header: first_header,
            });
        }
        let mut mappings = Vec::with_capacity(names.len());
        let mut headers = Vec::with_capacity(names.len());
        for name in names {
            let (mapping, header) = open_one(&path.with_file_name(name))?;
            mappings.push(mapping);
            headers.push(header);
        }
        let header_bytes = headers.iter().map(|h| h.data_offset as usize).collect();
        let header = ounce_gguf::split::merge(headers).map_err(|source| EngineError::Gguf {
            path: path.to_owned(),
            source,
        })?;
        Ok(ModelFile {
            mappings,
            header_bytes,
            header,
        })
    }

    /// The header; of a split model, the first part's metadata and every part's tensors.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes of the (first) file, from which the metadata's arrays are decoded.
    pub fn bytes(&self) -> &[u8] {
        self.mappings[0].bytes()
    }

    /// The bytes of each file before its tensor data.
    pub fn header_parts(&self) -> impl Iterator<Item = &[u8]> {
        let files = self.mappings.iter().zip(&self.header_bytes);
        // A file without tensors may end before data would start.
        files.map(|(m, &end)| &m.bytes()[..end.min(m.bytes().len())])
    }

    /// Path of the (first) file.
    pub fn path(&self) -> &Path {
        self.mappings[0].path()
    }

    /// Paths of all parts.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.mappings.iter().map(Mapping::path)
    }

    /// Bytes of all parts together.
    pub fn n_bytes(&self) -> u64 {
        self.mappings.iter().map(|m| m.bytes().len() as u64).sum()
    }

    /// Has the kernel read the tensors ahead of their first use, all but those of `table`.
    pub fn will_need(&self, table: Option<MatRef>) {
        for (i, m) in self.mappings.iter().enumerate() {
            let (start, end) = (self.header_bytes[i], m.bytes().len());
            match table.filter(|t| usize::from(t.file) == i) {
                Some(t) => {
                    m.will_need(start..t.offset);
                    m.will_need(t.offset + t.n_bytes..end);
                }
                None => m.will_need(start..end),
            }
        }
    }

    /// Whether everything read so far came from the files that were opened; see [`Mapping::check`].
    ///
    /// # Errors
    /// Names the part that changed.
    pub fn check(&self) -> Result<(), EngineError> {
        self.mappings.iter().try_for_each(Mapping::check)
    }

    /// Keeps the files in memory; see [`Mapping::lock`].
    ///
    /// # Errors
    /// As [`Mapping::lock`]; the limit must hold all files together.
    pub fn lock(&self) -> Result<(), EngineError> {
        self.mappings.iter().try_for_each(Mapping::lock)
    }

    /// Reads the files into memory; see [`Mapping::prefetch`]. `progress` gets the bytes done and those of all files.
    ///
    /// # Errors
    /// As [`Mapping::prefetch`].
    pub fn prefetch(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<(), EngineError> {
        let total = self.n_bytes();
        let mut before = 0;
        for m in &self.mappings {
            m.prefetch(&mut |done, _| progress(before + done, total))?;
            before += m.bytes().len() as u64;
        }
        Ok(())
    }

    /// Copies the files into memory of our own; see [`Mapping::make_direct`]. `progress` as in [`ModelFile::prefetch`].
    ///
    /// # Errors
    /// As [`Mapping::make_direct`].
    pub fn make_direct(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<(), EngineError> {
        let total = self.n_bytes();
        let mut before = 0;
        for m in &mut self.mappings {
            m.make_direct(&mut |done, _| progress(before + done, total))?;
            before += m.bytes().len() as u64;
        }
        Ok(())
    }

    /// Takes the headers, which have been read, out of this process's memory; they are read again if asked for.
    pub fn release_headers(&self) {
        for (m, &n) in self.mappings.iter().zip(&self.header_bytes) {
            m.release(n);
        }
    }

    /// Tells the kernel that `table` is read a row here and a row there, so that it reads ahead nothing.
    pub fn read_by_row(&self, table: &MatRef) {
        self.mappings[table.file as usize].read_by_row(table.offset..table.offset + table.n_bytes);
    }

    /// Resident bytes of the mapped files among `areas`, those of `table` apart.
    pub fn resident(&self, areas: &[Area], table: Option<MatRef>) -> (u64, u64) {
        let all: u64 = self.mappings.iter().map(|m| m.resident(areas)).sum();
        let rows = table.map_or(0, |t| {
            self.mappings[t.file as usize].resident_rows(areas, t.offset..t.offset + t.n_bytes)
        });
        (all - rows, rows)
    }

    /// Whether the files were copied by [`ModelFile::make_direct`].
    pub fn is_copied(&self) -> bool {
        self.mappings.iter().all(Mapping::is_copied)
    }

    /// Whether the file holds a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.header.tensor(name).is_some()
    }

    fn tensor(&self, name: &str) -> Result<&TensorInfo, EngineError> {
        self.header
            .tensor(name)
            .ok_or_else(|| EngineError::MissingTensor {
                name: name.to_owned(),
            })
    }

    fn shaped(&self, name: &str, wanted: &[usize]) -> Result<&TensorInfo, EngineError> {
        let t = self.tensor(name)?;
        let mut dims = t.dims.as_slice();
        while dims.len() > wanted.len() && dims.last() == Some(&1) {
            dims = &dims[..dims.len() - 1];
        }
        if dims.iter().copied().ne(wanted.iter().map(|&d| d as u64)) {
            let wanted = wanted.iter().map(|&d| d as u64).collect();
            return Err(EngineError::TensorShape {
                name: name.to_owned(),
                found: t.dims.clone(),
                wanted,
            });
        }
        Ok(t)
    }

    fn mat_ref(t: &TensorInfo, rows: usize, cols: usize) -> MatRef {
        MatRef {
            ty: t.ty,
            rows,
            cols,
            file: t.file,
            offset: t.offset as usize,
            n_bytes: t.n_bytes as usize,
        }
    }

    /// The tensor that a matrix of this file is, or is a part of.
    ///
    /// # Panics
    /// When the matrix is not of this file.
    pub fn tensor_of(&self, m: &MatRef) -> &TensorInfo {
        let holds = |t: &&TensorInfo| {
            t.file == m.file && (t.offset..t.offset + t.n_bytes.max(1)).contains(&(m.offset as u64))
        };
        let found = self.header.tensors.iter().find(holds);
        found.expect("a matrix is made from a tensor")
    }

    /// The matrix `name` that maps `cols` inputs to `rows` outputs (ggml dims `{cols, rows}`).
    ///
    /// # Errors
    /// Missing, or another shape. A type without a kernel is refused at load: see `ModelSpec::without_kernel`.
    pub fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<MatRef, EngineError> {
        let t = self.shaped(name, &[cols, rows])?;
        Ok(Self::mat_ref(t, rows, cols))
    }

    /// A stack of `n` matrices (ggml dims `{cols, rows, n}`) as one of `n * rows` rows; see [`MatRef::expert`].
    ///
    /// # Errors
    /// As [`ModelFile::matrix`].
    pub fn matrices(
        &self,
        name: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<MatRef, EngineError> {
        let t = self.shaped(name, &[cols, rows, n])?;
        Ok(Self::mat_ref(t, n * rows, cols))
    }

    /// The F32 vector `name` of `len` elements.
    ///
    /// # Errors
    /// Missing, another shape or type.
    pub fn vector(&self, name: &str, len: usize) -> Result<VecRef, EngineError> {
        Self::vec_ref(self.shaped(name, &[len])?, len)
    }

    /// The F32 tensor `name` of ggml dims `{cols, rows}`, as one vector.
    ///
    /// # Errors
    /// Missing, another shape or type.
    pub fn f32_matrix(&self, name: &str, rows: usize, cols: usize) -> Result<VecRef, EngineError> {
        Self::vec_ref(self.shaped(name, &[cols, rows])?, rows * cols)
    }

    fn vec_ref(t: &TensorInfo, len: usize) -> Result<VecRef, EngineError> {
        if t.ty != TensorType::F32 {
            return Err(EngineError::VectorType {
                name: t.name.clone(),
                ty: t.ty,
            });
        }
        Ok(VecRef {
            file: t.file,
            offset: t.offset as usize,
            len,
        })
    }

    /// The vector `name` if the file holds it.
    ///
    /// # Errors
    /// Present but of another shape or type.
    pub fn optional_vector(&self, name: &str, len: usize) -> Result<Option<VecRef>, EngineError> {
        if self.has(name) {
            self.vector(name, len).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The view of a matrix.
    pub fn mat(&self, m: &MatRef) -> Mat<'_> {
        let data = &self.mappings[m.file as usize].bytes()[m.offset..m.offset + m.n_bytes];
        Mat {
            ty: m.ty,
            rows: m.rows,
            cols: m.cols,
            data,
        }
    }

    /// The view of a vector. The header guarantees an alignment of 8 or more within the page-aligned mapping.
    pub fn vec(&self, v: &VecRef) -> &[f32] {
        bytemuck::cast_slice(
            &self.mappings[v.file as usize].bytes()[v.offset..v.offset + 4 * v.len],
        )
    }
}

fn open_one(path: &Path) -> Result<(Mapping, Header), EngineError> {
    let mapping = Mapping::open(path)?;
    let header = ounce_gguf::parse(mapping.bytes());
    // Before what the parser says: it may have read zeros.
    mapping.check()?;
    let header = header.map_err(|source| EngineError::Gguf {
        path: path.to_owned(),
        source,
    })?;
    Ok((mapping, header))
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(PathBuf::from)
        .unwrap_or_default()
        .display()
        .to_string()
}
