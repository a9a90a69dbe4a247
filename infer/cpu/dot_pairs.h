// In each lane, start + Σ w[j] · x[first + j] over quads j = 0 … quads-1, w unsigned and below 2^bits, x
// the four bytes of a quad, above -128. The sum is exact.
//
// PMADDUBSW multiplies unsigned by signed bytes and adds pairs with saturation at 2^15. For weights
// below 2^bits, 2^(7-bits) of its results can be added before they are widened. Eight-bit weights
// would saturate: they are replaced by |w - 128| and x gets the sign of w - 128, since
// 2 · 128 · 127 < 2^15. start must then be -128 · Σ x, which this computation already includes.
INLINE vf vb_dot(const int bits, const int first, const int quads, const vb *w, const struct quant_block *x, vi start)
{
	vi sum = bits == 8 ? vi_set(0) : start;
	const int most = bits == 8 ? 1 : 1 << (7 - bits), together = most < quads ? most : quads;
	UNROLL for (int j = 0; j < quads; j += together) {
		vi pairs = vi_set(0);
		UNROLL for (int k = j; k < j + together; k++) {
			const vi a = vi_quad(x, first + k), products = bits == 8 ? vi_multiply_signed(w[k], a) : vi_multiply(w[k], a);
			pairs = k == j ? products : vi_add_pairs(pairs, products);
			__asm__ volatile("" : "+x"(pairs)); // in this order: GCC would load all of x first, and unpack weights again for want of registers
		}
		sum = vi_add(sum, vi_widen(pairs));
	}
	return vf_of(sum);
}
