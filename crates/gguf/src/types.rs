//! The tensor types a GGUF may hold: name, elements in a block, bytes in a block.
//!
//! Source: `ggml.h` (`enum ggml_type`) and `ggml-common.h` (block structs). A new type is one line here
//! plus its kernel file in `ounce-kernels`.

macro_rules! tensor_types {
    ($($name:ident = $id:literal, $block:literal, $bytes:literal;)*) => {
        /// Element type of a tensor as stored in a GGUF file. The discriminant is the id in the file.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum TensorType { $($name = $id,)* }

        impl TensorType {
            /// Every type this build knows the layout of.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$name,)*];

            /// The type with this id in the file format; `None` for ids this build does not know.
            pub fn from_id(id: u32) -> Option<TensorType> {
                match id { $($id => Some(TensorType::$name),)* _ => None }
            }

            /// The field's name for it, as llama.cpp prints it (upper case).
            pub fn name(self) -> &'static str {
                match self { $(TensorType::$name => stringify!($name),)* }
            }

            /// Elements in one block: a row's length must be a multiple of it.
            pub const fn block_len(self) -> usize {
                match self { $(TensorType::$name => $block,)* }
            }

            /// Bytes one block takes.
            pub const fn block_bytes(self) -> usize {
                match self { $(TensorType::$name => $bytes,)* }
            }
        }
    };
}

tensor_types! {
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q4_0 = 2, 32, 18;
    Q4_1 = 3, 32, 20;
    Q5_0 = 6, 32, 22;
    Q5_1 = 7, 32, 24;
    Q8_0 = 8, 32, 34;
    Q8_1 = 9, 32, 36;
    Q2_K = 10, 256, 84;
    Q3_K = 11, 256, 110;
    Q4_K = 12, 256, 144;
    Q5_K = 13, 256, 176;
    Q6_K = 14, 256, 210;
    Q8_K = 15, 256, 292;
    IQ2_XXS = 16, 256, 66;
    IQ2_XS = 17, 256, 74;
    IQ3_XXS = 18, 256, 98;
    IQ1_S = 19, 256, 50;
    IQ4_NL = 20, 32, 18;
    IQ3_S = 21, 256, 110;
    IQ2_S = 22, 256, 82;
    IQ4_XS = 23, 256, 136;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    IQ1_M = 29, 256, 56;
    BF16 = 30, 1, 2;
    TQ1_0 = 34, 256, 54;
    TQ2_0 = 35, 256, 66;
    MXFP4 = 39, 32, 17;
}

impl TensorType {
    /// Bytes of a row of `n` elements, or `None` when `n` is not a whole number of blocks or overflows.
    pub fn row_bytes(self, n: u64) -> Option<u64> {
        let block = self.block_len() as u64;
        if !n.is_multiple_of(block) {
            return None;
        }
        (n / block).checked_mul(self.block_bytes() as u64)
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
