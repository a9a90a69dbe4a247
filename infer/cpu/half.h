// Conversions between F16 and floats, for processors without instructions for them.

// Shifts exponent and mantissa to their positions in a float; the multiplication by 2^112 corrects
// the bias and turns denormal halves into normal floats.
INLINE float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t rest = (uint32_t)(h & 0x7fff) << 13;
	if (rest >= 0x0f800000) // infinity, NaN
		return float_of(sign | rest | 0x70000000);
	return float_of(sign | bits_of(float_of(rest) * 0x1p112f));
}

// Rounds to the nearest half, ties to even.
INLINE uint16_t float_to_half(float x)
{
	uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x1ff)); // NaN
	if (rest >= 0x477ff000)
		return (uint16_t)(sign | 0x7c00); // rounds to 2^16 or more
	if (rest < 0x38800000) // denormal half: adding 1/2 leaves x in units of 2^-24
		return (uint16_t)(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));
	return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}
