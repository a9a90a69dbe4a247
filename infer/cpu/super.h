// The six-bit scales of Q4_K and Q5_K. Scale, then offset, of blocks 0-3 lie in the low six
// bits of bytes 0-7; of blocks 4-7 in the halves of bytes 8-11, with their upper bits on
// top of bytes 0-7. scales: (2, SUPER)
INLINE void unpack_scales(const uint8_t *w, uint8_t *scales)
{
	uint32_t scale, offset, rest;
	memcpy(&scale, w, 4);
	memcpy(&offset, w + 4, 4);
	memcpy(&rest, w + 8, 4);
	const uint32_t parts[4] = {
		scale & 0x3f3f3f3f,
		(rest & 0x0f0f0f0f) | (scale >> 2 & 0x30303030),
		offset & 0x3f3f3f3f,
		(rest >> 4 & 0x0f0f0f0f) | (offset >> 2 & 0x30303030),
	};
	memcpy(scales, parts, sizeof parts);
}
