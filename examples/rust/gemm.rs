//! FP8 GEMM from Rust over the C ABI: quantise activations and weights, multiply, compare with sums in f64.
use std::ffi::{c_char, c_void, CStr};
use std::ptr::{null, null_mut};

// What is used of finegemm/c_api.h.
const E4M3: i32 = 1;
const BF16: i32 = 2;
const F32: i32 = 4;
const CPU: i32 = 1;

#[repr(C)]
struct Matrix {
    data: *mut c_void,
    dtype: i32,
    device_type: i32,
    device_index: i32,
    reserved: i32,
    rows: i64,
    cols: i64,
    row_stride: i64,
    col_stride: i64,
}

#[repr(C)]
struct GemmArgs {
    a: Matrix,
    sfa: Matrix,
    b: Matrix,
    sfb: Matrix,
    d: Matrix,
}

#[repr(C)]
struct Error {
    code: i32,
    message: [c_char; 2044],
}

#[link(name = "finegemm")]
extern "C" {
    fn finegemm_version() -> *const c_char;
    fn finegemm_context_create(options: *const c_void, context: *mut *mut c_void, error: *mut Error) -> i32;
    fn finegemm_context_destroy(context: *mut c_void);
    fn finegemm_quantize_rows(
        context: *mut c_void,
        x: *const Matrix,
        q: *const Matrix,
        scales: *const Matrix,
        options: *const c_void,
        error: *mut Error,
    ) -> i32;
    fn finegemm_quantize_blocks(
        context: *mut c_void,
        x: *const Matrix,
        q: *const Matrix,
        scales: *const Matrix,
        options: *const c_void,
        error: *mut Error,
    ) -> i32;
    fn finegemm_gemm(context: *mut c_void, args: *const GemmArgs, options: *const c_void, error: *mut Error) -> i32;
}

/// A matrix without gaps over memory of `element` bytes each.
fn matrix<T>(data: &mut [T], dtype: i32, rows: usize, cols: usize) -> Matrix {
    assert_eq!(data.len(), rows * cols);
    Matrix {
        data: data.as_mut_ptr().cast(),
        dtype,
        device_type: CPU,
        device_index: 0,
        reserved: 0,
        rows: rows as i64,
        cols: cols as i64,
        row_stride: cols as i64,
        col_stride: 1,
    }
}

/// A context, destroyed with its owner.
struct Context(*mut c_void);

impl Context {
    fn new() -> Result<Self, String> {
        let mut context = null_mut();
        checked(|error| unsafe { finegemm_context_create(null(), &mut context, error) })?;
        Ok(Context(context))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        unsafe { finegemm_context_destroy(self.0) }
    }
}

/// The library's sentence where a call fails.
fn checked(call: impl FnOnce(*mut Error) -> i32) -> Result<(), String> {
    let mut error = Error { code: 0, message: [0; 2044] };
    match call(&mut error) {
        0 => Ok(()),
        code => {
            let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
            Err(format!("error {code}: {}", message.to_string_lossy()))
        }
    }
}

/// From -1 to 1.
fn random(count: usize, mut seed: u32) -> Vec<f32> {
    let next = || {
        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        (seed >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// |d - x * w^T| / |x * w^T|
fn relative_error(x: &[f32], w: &[f32], d: &[u16], n: usize, k: usize) -> f64 {
    let (mut errors, mut values) = (0.0, 0.0);
    for (i, bits) in d.iter().enumerate() {
        let (row, col) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
        let exact: f64 = row.iter().zip(col).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        errors += (f64::from(f32::from_bits(u32::from(*bits) << 16)) - exact).powi(2);
        values += exact * exact;
    }
    (errors / values).sqrt()
}

fn main() -> Result<(), String> {
    const M: usize = 48;
    const N: usize = 256;
    const K: usize = 512;
    let (mut x, mut w) = (random(M * K, 1), random(N * K, 2));
    let (mut a, mut sfa) = (vec![0u8; M * K], vec![0f32; M * (K / 128)]);
    let (mut b, mut sfb) = (vec![0u8; N * K], vec![0f32; (N / 128) * (K / 128)]);
    let mut d = vec![0u16; M * N];
    let values = [matrix(&mut x, F32, M, K), matrix(&mut w, F32, N, K)];
    let args = GemmArgs {
        a: matrix(&mut a, E4M3, M, K),
        sfa: matrix(&mut sfa, F32, M, K / 128),
        b: matrix(&mut b, E4M3, N, K),
        sfb: matrix(&mut sfb, F32, N / 128, K / 128),
        d: matrix(&mut d, BF16, M, N),
    };

    let context = Context::new()?;
    let c = context.0;
    checked(|e| unsafe { finegemm_quantize_rows(c, &values[0], &args.a, &args.sfa, null(), e) })?;
    checked(|e| unsafe { finegemm_quantize_blocks(c, &values[1], &args.b, &args.sfb, null(), e) })?;
    checked(|e| unsafe { finegemm_gemm(c, &args, null(), e) })?;

    let off = relative_error(&x, &w, &d, N, K);
    let version = unsafe { CStr::from_ptr(finegemm_version()) };
    println!("FineGEMM {}: {M} x {N} x {K}, relative error {off:.4}", version.to_string_lossy());
    if off < 0.06 { Ok(()) } else { Err("more than two roundings to e4m3 are off".into()) }
}
