//! The 6-bit scales and minima that Q4_K and Q5_K share.

use super::half::u32_at;
use super::lanes::Lanes;
use super::span::Span;

/// Scales and minima of a super-block's 8 groups, from its first 16 bytes: f16 `d`, f16 `dmin`, and
/// twelve bytes of 6-bit numbers (`get_scale_min_k4` of ggml, eight at once).
#[inline(always)]
pub(crate) fn unpack_scales<L: Lanes>(l: L, block: &[u8], out: &mut Span<L>) {
    let (d, dmin) = l.half_pair(u32_at(block, 0));
    let (a, b, c) = (u32_at(block, 4), u32_at(block, 8), u32_at(block, 12));
    // Groups 0..4 lie whole in the low six bits of a and b; groups 4..8 have their low nibble in c
    // and their two high bits on top of a and b.
    let scales = [a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | a >> 2 & 0x3030_3030];
    let mins = [b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | b >> 2 & 0x3030_3030];
    for i in 0..8 {
        out.scale[i] = d * f32::from(scales[i / 4].to_le_bytes()[i % 4]);
        out.min[i] = dmin * f32::from(mins[i / 4].to_le_bytes()[i % 4]);
    }
}
