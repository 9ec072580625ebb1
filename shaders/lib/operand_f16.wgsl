// Operands of product-sums in f16: see operand_f32.wgsl. No f16 is below the floor.

const OPERAND_FLOOR: u32 = FLOOR_BF16_OPERAND;

// A computed value as an operand: rounded to nearest even (as round_f16), widened, -0 as +0.
fn operand_w(x: Wide) -> Wide {
    let u = bitcast<Index>(fence_w(x));
    let a = u & Index(FENCE_ABS);
    let odd = (a >> Index(13u)) & Index(1u);
    let normal = (a + Index(0xfffu) + odd) & Index(0xffffe000u);
    // Subnormal in binary16: the significand in units of 2^-24, then back to its own exponent.
    let down = min(Index(126u) - min(a >> Index(23u), Index(125u)), Index(25u));
    let m = (a & Index(0x007fffffu)) | Index(0x00800000u);
    let units = (m + (Index(1u) << (down - Index(1u))) - Index(1u) + ((m >> down) & Index(1u))) >> down;
    let up = countLeadingZeros(units | Index(1u)) - Index(8u);
    let placed = ((units << up) & Index(0x007fffffu)) | ((Index(126u) - up) << Index(23u));
    let subnormal = select(placed, Index(0u), units == Index(0u));
    let finite = select(normal, subnormal, a < Index(0x38800000u));
    let bounded = select(finite, Index(0x7f800000u), a >= Index(0x477ff000u));
    let narrow = select(bounded, Index(0x7fc00000u), a > Index(0x7f800000u)) | (u & Index(0x80000000u));
    return rn_floor_w(bitcast<Wide>(narrow), OPERAND_FLOOR);
}
