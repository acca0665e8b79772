"""The shapes of the dense table: layers of DeepSeek-V3 by rows."""

DENSE_ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DENSE_NK = ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
DENSE_SHAPES = tuple((m, n, k) for m in DENSE_ROWS for n, k in DENSE_NK)
