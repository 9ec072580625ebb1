// Four neighbouring elements of a row of c, as far as they exist.
fn store4(z: u32, row: u32, col: u32, v: vec4<f32>) {
    if row >= P.m {
        return;
    }
    let at = (z * P.m + row) * P.n + col;
    if col < P.n {
        st_c(at, v.x);
    }
    if col + 1u < P.n {
        st_c(at + 1u, v.y);
    }
    if col + 2u < P.n {
        st_c(at + 2u, v.z);
    }
    if col + 3u < P.n {
        st_c(at + 3u, v.w);
    }
}
