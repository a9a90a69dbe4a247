// Super-blocks: what the kernels of every instruction set unpack alike.

// The scales of a super-block: of Q4_K and Q5_K one for a block in d, and its offset in
// m; of Q6_K one for each half of a block in d.
struct super_scales {
	float d[2 * SUPER];
	float m[SUPER];
};

INLINE void unpack_scales(const int type, const uint8_t *w, struct super_scales *s)
{
	if (type == TYPE_Q6_K) {
		float unit = load_half(w + Q6K_UNIT);
		for (int i = 0; i < 2 * SUPER; i++)
			s->d[i] = unit * (float)(int8_t)w[Q6K_SCALES + i];
		return;
	}
	// Scale, then offset, of blocks 0-3 lie in the low six bits of bytes 0-7; of blocks
	// 4-7 in the halves of bytes 8-11, with their upper bits on top of bytes 0-7.
	uint32_t scale, offset, rest;
	memcpy(&scale, w + 4, 4);
	memcpy(&offset, w + 8, 4);
	memcpy(&rest, w + 12, 4);
	uint32_t parts[4] = {
		scale & 0x3f3f3f3f,
		(rest & 0x0f0f0f0f) | (scale >> 2 & 0x30303030),
		offset & 0x3f3f3f3f,
		(rest >> 4 & 0x0f0f0f0f) | (offset >> 2 & 0x30303030),
	};
	uint8_t bytes[2 * SUPER];
	memcpy(bytes, parts, sizeof bytes);
	float d = load_half(w), m = load_half(w + 2);
	for (int i = 0; i < SUPER; i++) {
		s->d[i] = d * (float)bytes[i];
		s->m[i] = m * (float)bytes[SUPER + i];
	}
}
