//! What the executor asks of CUDA, and nothing more: the seam at which tests stand in for a GPU.

/// A place in a device's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Address(pub u64);

/// A kernel on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function(pub usize);

/// A recorded list of launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording(pub usize);

/// A point in the stream's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(pub usize);

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// The driver's version and the architecture.
    pub driver: String,
    /// `discrete gpu`, or what stands in for one.
    pub kind: String,
}

/// Why a call did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// There is not that much memory.
    Memory,
    /// Anything else, in the driver's words.
    Failed(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Trouble::Memory => f.write_str("out of memory"),
            Trouble::Failed(why) => f.write_str(why),
        }
    }
}

/// The type of a product's operands; the product itself is f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Element {
    /// f32.
    F32,
    /// bfloat16.
    Bf16,
    /// binary16.
    F16,
}

/// How a matrix of a product lies in memory, column by column.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lay {
    /// It is stored transposed.
    pub transposed: bool,
    /// Elements from one column to the next, as stored.
    pub pitch: u64,
    /// Elements from one matrix of the batch to the next.
    pub stride: u64,
}

/// `c[z] = a[z] b[z]` for all `z` of a batch, `c` of `m` rows and `n` columns, sums of `k` products. All
/// column by column, as BLAS has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extents {
    /// Rows of the product.
    pub m: u64,
    /// Its columns.
    pub n: u64,
    /// Terms of a sum.
    pub k: u64,
    /// Products of the batch.
    pub batch: u64,
    /// The left operand, of `m` rows and `k` columns when it is not transposed.
    pub a: Lay,
    /// The right operand, of `k` rows and `n` columns.
    pub b: Lay,
    /// The product.
    pub c: Lay,
    /// All three addresses are multiples of so many bytes.
    pub alignment: u32,
}

/// A product with f32 sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Product {
    /// Type of the operands.
    pub element: Element,
    /// Extents and layouts.
    pub extents: Extents,
}

/// The result of a call.
pub type Done<T = ()> = Result<T, Trouble>;

/// A CUDA device with one stream: calls that need no answer are enqueued, in order.
pub trait Driver {
    /// What it is.
    fn facts(&self) -> &Facts;
    /// Bytes that can still be allocated.
    ///
    /// # Errors
    /// The driver failed, as in all that follows.
    fn free_bytes(&mut self) -> Done<u64>;
    /// Allocates bytes, a multiple of 16, from the stream's pool; they are zero.
    ///
    /// # Errors
    /// There are not so many.
    fn allocate(&mut self, bytes: u64) -> Done<Address>;
    /// Gives an allocation back.
    fn release(&mut self, at: Address);
    /// Copies words to the device.
    ///
    /// # Errors
    /// The driver failed.
    fn write(&mut self, at: Address, words: &[u32]) -> Done;
    /// Copies words from the device, once everything before is done.
    ///
    /// # Errors
    /// The driver, or what was enqueued before, failed.
    fn read(&mut self, at: Address, words: &mut [u32]) -> Done;
    /// Compiles kernels in CUDA C++ and loads them; which of them were at fault comes with an error.
    ///
    /// # Errors
    /// The number of the first that does not compile, and the compiler's words.
    fn build(&mut self, kernels: &[super::emit::Kernel])
    -> Result<Vec<Function>, (usize, Trouble)>;
    /// Enqueues a launch with its one argument.
    ///
    /// # Errors
    /// The driver refused.
    fn launch(&mut self, f: Function, grid: [u32; 3], threads: u32, argument: &[u8]) -> Done;
    /// Finds out how to multiply, before the first [`Driver::multiply`] of the kind.
    ///
    /// # Errors
    /// The library offers no such product.
    fn prepare(&mut self, product: &Product) -> Done;
    /// Enqueues a product of the operands at `a` and `b` to `c`.
    ///
    /// # Errors
    /// The library refused.
    fn multiply(&mut self, product: &Product, a: Address, b: Address, c: Address) -> Done;
    /// Waits for all that was enqueued.
    ///
    /// # Errors
    /// Something of it failed.
    fn wait(&mut self) -> Done;
    /// From here on launches and products are recorded and not run.
    ///
    /// # Errors
    /// The driver cannot record.
    fn begin_recording(&mut self) -> Done;
    /// Ends a recording, and makes of it what can be run as one (a CUDA graph).
    ///
    /// # Errors
    /// Something could not be recorded; the driver is then as before the recording.
    fn end_recording(&mut self) -> Done<Recording>;
    /// Enqueues a recording.
    ///
    /// # Errors
    /// The driver refused.
    fn run_recording(&mut self, r: Recording) -> Done;
    /// Enqueues a mark; the number is which of a fixed set of clocks is taken.
    ///
    /// # Errors
    /// The driver refused.
    fn mark(&mut self, number: usize) -> Done<Mark>;
    /// Milliseconds between two marks, once both are passed.
    ///
    /// # Errors
    /// Something before them failed.
    fn between(&mut self, first: Mark, second: Mark) -> Done<f64>;
}
