//! How large a product may be on a device, and how large it should be.

use super::format::Format;
use super::operands::INT8_EXACT;
use crate::dtype::DType;
use crate::error::{Error, usage};
use crate::exec::bytes;

/// Sizes that `--n auto` chooses from.
const LADDER: [usize; 12] = [
    128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192,
];
/// Most milliseconds that all products of a run should take with `--n auto`.
const BUDGET_MS: f64 = 30e3;
/// Most milliseconds that one product should take: drivers reset a device that is silent for 2 s.
const LAUNCH_MS: f64 = 500.0;
/// Most copies of the operands that take turns.
const MOST_COPIES: usize = 32;
/// The largest extent whose elements a shader's 32-bit indices reach.
const INDEXED: usize = 65535;

/// Memory and limits that a product meets.
#[derive(Clone, PartialEq, Debug)]
pub struct Room {
    /// The device, for messages.
    pub device: String,
    /// Bytes of the largest buffer that a kernel sees, where there is a limit.
    pub buffer: Option<u64>,
    /// Bytes free on the device, where it tells; none where the host's memory is its own.
    pub memory: Option<u64>,
    /// Bytes free on the host.
    pub host: u64,
    /// Whether the device computes in the host's memory.
    pub shared: bool,
    /// Bytes of operands that no cache of the device holds.
    pub rotation: u64,
    /// Whether int8 is emulated in f32 sums.
    pub int8_in_f32: bool,
    /// Extents must be multiples of this.
    pub granule: usize,
    /// Whether fp16 is multiplied as f16 too, beside its emulation.
    pub halves: bool,
}

impl Room {
    /// Copies of operands of extent `n` and `element` bytes each that take turns, so that a product does not find its own in a
    /// cache.
    pub fn copies(&self, n: usize, element: usize) -> usize {
        let pair = 2 * element as u64 * square(n);
        (self.rotation.div_ceil(pair.max(1)) as usize).clamp(1, MOST_COPIES)
    }

    /// Bytes on the device and on the host of a run over these formats.
    fn need(&self, n: usize, formats: &[Format]) -> (u64, u64) {
        let kinds = [DType::F32, DType::Bf16];
        let used = kinds
            .iter()
            .filter(|k| formats.iter().any(|f| f.storage() == **k));
        let operands =
            |k: &DType| 2 * (self.copies(n, element(*k)) * element(*k)) as u64 * square(n);
        let device = used.map(operands).sum::<u64>() + 4 * square(n);
        let halves = match self.halves {
            true => operands(&DType::F16) + 4 * square(n),
            false => 0,
        };
        let device = device + halves;
        // Both operands in f32 and rounded, and one of them packed.
        (device, 18 * square(n))
    }

    /// Whether a run at extent `n` fits.
    ///
    /// # Errors
    /// What does not, with sizes.
    pub fn fits(&self, n: usize, formats: &[Format]) -> Result<(), String> {
        if !n.is_multiple_of(self.granule) {
            return Err(format!(
                "the kernels there take multiples of {}",
                self.granule
            ));
        }
        if n > INDEXED {
            return Err(format!(
                "the kernels' indices reach {INDEXED} rows and columns"
            ));
        }
        if self.int8_in_f32 && n > INT8_EXACT && formats.contains(&Format::Int8) {
            return Err(format!(
                "int8 is emulated here in f32, whose sums are exact up to {INT8_EXACT}"
            ));
        }
        let matrix = 4 * square(n);
        if let Some(most) = self.buffer.filter(|m| matrix > *m) {
            return Err(format!(
                "an f32 matrix is {}, a kernel on {} sees at most {} of a buffer",
                bytes(matrix),
                self.device,
                bytes(most)
            ));
        }
        let (device, host) = self.need(n, formats);
        let host = if self.shared { host + device } else { host };
        if let Some(have) = self.memory.filter(|m| device > *m) {
            let need = bytes(device);
            return Err(format!(
                "operands and product need {need} there, {} has {} free",
                self.device,
                bytes(have)
            ));
        }
        if host > self.host {
            return Err(format!(
                "the run needs {} of memory, this machine has {} free",
                bytes(host),
                bytes(self.host)
            ));
        }
        Ok(())
    }

    /// The largest extent that fits; 0 if none does.
    pub fn largest(&self, formats: &[Format]) -> usize {
        let (mut fits, mut not) = (0, INDEXED / self.granule + 1);
        while not - fits > 1 {
            let middle = fits.midpoint(not);
            match self.fits(middle * self.granule, formats) {
                Ok(()) => fits = middle,
                Err(_) => not = middle,
            }
        }
        fits * self.granule
    }

    /// Refuses an extent that does not fit, before anything is allocated.
    ///
    /// # Errors
    /// What does not fit, and the largest that does.
    pub fn check(&self, n: usize, formats: &[Format]) -> Result<(), Error> {
        let Err(why) = self.fits(n, formats) else {
            return Ok(());
        };
        match self.largest(formats) {
            0 => usage(format!("--n {n}: {why}; no size fits")),
            most => usage(format!(
                "--n {n}: {why}; the largest that fits is --n {most}"
            )),
        }
    }
}

/// Bytes of an element.
pub fn element(storage: DType) -> usize {
    if storage.packed() { 2 } else { 4 }
}

fn square(n: usize) -> u64 {
    (n as u64).saturating_mul(n as u64).min(1 << 50)
}

/// What a run is made of, for its time.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Products at each extent.
    pub products: usize,
    /// Operations a millisecond.
    pub rate: f64,
}

impl Load {
    /// Milliseconds of one product.
    pub fn ms(&self, n: usize) -> f64 {
        2.0 * (n as f64).powi(3) / self.rate
    }

    /// Whether a run at this extent is one to wait for.
    fn bearable(&self, n: usize) -> bool {
        self.ms(n) <= LAUNCH_MS && self.ms(n) * self.products as f64 <= BUDGET_MS
    }
}

/// The largest size of the ladder that fits the device and its speed; the smallest where none does.
pub fn auto(room: &Room, formats: &[Format], load: Load) -> usize {
    let good = |n: &&usize| room.fits(**n, formats).is_ok() && load.bearable(**n);
    *LADDER.iter().rev().find(good).unwrap_or(&LADDER[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Room {
        Room {
            device: "a device".into(),
            buffer: Some(128 << 20),
            memory: None,
            host: 64 << 30,
            shared: false,
            rotation: 64 << 20,
            int8_in_f32: true,
            granule: 1,
            halves: false,
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_largest_that_does() {
        let f = [Format::Fp32];
        let r = room();
        assert_eq!(r.largest(&f), 5792); // 4 * 5793^2 is more than 128 MiB
        assert!(r.fits(5792, &f).is_ok() && r.fits(5793, &f).is_err());
        let e = r.check(8192, &f).expect_err("too large").to_string();
        assert!(e.contains("256.0 MiB") && e.contains("--n 5792"), "{e}");
        let wide = Room {
            buffer: None,
            ..room()
        };
        assert!(wide.check(8192, &Format::ALL).is_ok());
        let e = wide
            .check(20000, &Format::ALL)
            .expect_err("int8")
            .to_string();
        assert!(e.contains("int8") && e.contains("--n 16384"), "{e}");
        let tiled = Room {
            granule: 128,
            ..wide.clone()
        };
        let e = tiled.check(1000, &f).expect_err("odd").to_string();
        assert!(e.contains("multiples of 128"), "{e}");
        assert!(tiled.largest(&f).is_multiple_of(128) && tiled.fits(1024, &f).is_ok());
        let e = wide.check(usize::MAX, &f).expect_err("huge").to_string();
        assert!(e.contains("65535"), "{e}");
        let small = Room {
            shared: true,
            host: 1 << 30,
            ..wide
        };
        let most = small.largest(&f);
        let (device, host) = small.need(most, &f);
        assert!(device + host <= 1 << 30 && most > 4000, "{most}");
        let none = Room { host: 10, ..small };
        assert!(
            none.check(8, &f)
                .expect_err("none")
                .to_string()
                .contains("no size")
        );
    }

    #[test]
    fn copies_outgrow_the_cache() {
        let r = room();
        assert_eq!(r.copies(1024, 4), 8);
        assert_eq!(r.copies(1024, 2), 16);
        assert_eq!(r.copies(4096, 4), 1);
        assert_eq!(r.copies(1, 4), MOST_COPIES);
    }

    #[test]
    fn auto_follows_speed_and_limits() {
        let at = |rate, r: &Room| {
            auto(
                r,
                &Format::ALL,
                Load {
                    products: 420,
                    rate,
                },
            )
        };
        // 110 GFLOP a second: 420 products of 1536^3 take 28 s, of 2048^3 66 s.
        assert_eq!(at(1.1e8, &room()), 1536);
        assert_eq!(at(1e5, &room()), 128);
        // 60 TFLOP a second: the buffer decides.
        assert_eq!(at(6e10, &room()), 4096);
        assert_eq!(
            at(
                6e10,
                &Room {
                    buffer: None,
                    ..room()
                }
            ),
            8192
        );
    }
}
