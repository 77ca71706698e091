//! Reads little-endian values from the header, never past its end.

use crate::Error;

pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    /// Position in the file.
    pub fn at(&self) -> u64 {
        self.at as u64
    }

    /// Bytes left of the file.
    pub fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `n` bytes; `what` goes into the error.
    pub fn take(&mut self, n: u64, what: &dyn Fn() -> String) -> Result<&'a [u8], Error> {
        if n > self.left() {
            return Err(Error::TruncatedHeader {
                at: self.bytes.len() as u64,
                what: what(),
            });
        }
        let start = self.at;
        self.at += n as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn array<const N: usize>(&mut self, what: &dyn Fn() -> String) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub fn u8(&mut self, what: &dyn Fn() -> String) -> Result<u8, Error> {
        Ok(self.array::<1>(what)?[0])
    }

    pub fn u16(&mut self, what: &dyn Fn() -> String) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub fn u32(&mut self, what: &dyn Fn() -> String) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &dyn Fn() -> String) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A count of things that take at least `min_bytes` each: refused when the rest of the file cannot hold them.
    pub fn count(&mut self, min_bytes: u64, what: &dyn Fn() -> String) -> Result<u64, Error> {
        let count = self.u64(what)?;
        if count > self.left() / min_bytes {
            return Err(Error::Count {
                what: what(),
                count,
                left: self.left(),
            });
        }
        Ok(count)
    }

    /// A length-prefixed string, as bytes.
    pub fn string(&mut self, what: &dyn Fn() -> String) -> Result<&'a [u8], Error> {
        let n = self.count(1, what)?;
        self.take(n, what)
    }
}
