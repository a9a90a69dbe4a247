// Tiles of 32 outputs in shared memory, as products of few rows by matrix units read them (mma_few.cu and mma_row.cuh): a thread block
// of 8 warps copies the tiles of 8 bands together, each warp one.
#pragma once

#include "mma.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

enum {
	FEW_OUTPUTS = 32, FEW_BANDS = FEW_OUTPUTS / BAND_OUTPUTS, FEW_LANES = TILE_BLOCKS / WARPS,
	TILE_HIGH = high_at(TILE_BLOCKS, 0, 0), TILE_SCALES = scales_at(TILE_BLOCKS, 0), TILE_SUPER = super_at(TILE_BLOCKS, 0),
	// Of a band in shared memory: a multiple of all banks. What is behind SHIFTED is 16 bytes further in each band than in the one before, so that
	// lanes that read it from all bands use different banks.
	SHIFTED = HIGH_BYTES == 4 ? TILE_HIGH : TILE_SCALES, SHIFT = 16,
	FEW_BAND = (TILE_BYTES + (FEW_BANDS - 1) * SHIFT + 127) / 128 * 128,
	FEW_STAGE = FEW_BANDS * FEW_BAND,
};

static_assert(int(FEW_BANDS) == int(WARPS) && WARPS == 8, "a warp copies a band, and its blocks have the same number in eight");

// Returns where the 16 bytes of quants of an output's chunk and block are in a band in shared memory. Blocks are exchanged so
// that lanes that read the same block of eight outputs use all banks. Output counts from 0 to 7 in an even band and the next.
DEVICE int few_quants_at(int output, int chunk, int block)
{
	return ((output % BAND_OUTPUTS * CHUNKS + chunk) * TILE_BLOCKS + (block ^ output)) * 16;
}

// The same for the 8 bytes of upper bits.
DEVICE int few_high_at(int output, int block)
{
	return TILE_HIGH + (output % BAND_OUTPUTS * TILE_BLOCKS + (block ^ output * 2)) * 8;
}

// Copies a full tile of a band. Eight warps copy FEW_BANDS bands together: unit counts the 16 bytes of a tile.
DEVICE void copy_unit(Address band_shared, const uint8_t *tile, int band, int unit)
{
	int to = unit * 16 + (unit < SHIFTED / 16 ? 0 : band * SHIFT);
	const int first = band % 2 * BAND_OUTPUTS; // output of the band among eight
	if (unit < TILE_HIGH / 16)
		to = few_quants_at(unit / TILE_BLOCKS / CHUNKS + first, unit / TILE_BLOCKS % CHUNKS, unit % TILE_BLOCKS);
	else if (HIGH_BYTES == 8 && unit < TILE_SCALES / 16) {
		const int pair = unit - TILE_HIGH / 16;
		to = few_high_at(pair / (TILE_BLOCKS / 2) + first, pair % (TILE_BLOCKS / 2) * 2);
	}
	copy_async<16>(band_shared + to, tile + unit * 16);
}

// Copies the last tile of a band, which has fewer blocks, to where they are in a full one.
DEVICE void copy_rest(Address band_shared, const uint8_t *tile, int band, int blocks, int lane)
{
	const int first = band % 2 * BAND_OUTPUTS, shift = band * SHIFT;
	const auto word = [&](int to, int from) { store_shared(band_shared + to, ldg32(tile + from)); };
	for (int i = lane; i < BAND_OUTPUTS * CHUNKS * blocks; i += WARP) {
		const int output = i / blocks / CHUNKS, chunk = i / blocks % CHUNKS, block = i % blocks;
		copy_async<16>(band_shared + few_quants_at(output + first, chunk, block), tile + quants_at(blocks, output, chunk, block));
	}
#if HIGH_BYTES == 4
	for (int i = lane; i < BAND_OUTPUTS * blocks; i += WARP)
		word(TILE_HIGH + shift + i * 4, high_at(blocks, 0, 0) + i * 4);
#elif HIGH_BYTES == 8
	for (int i = lane; i < BAND_OUTPUTS * blocks * 2; i += WARP)
		word(few_high_at(i / 2 / blocks + first, i / 2 % blocks) + i % 2 * 4, high_at(blocks, i / 2 / blocks, i / 2 % blocks) + i % 2 * 4);
#endif
	for (int i = lane; i < SCALE_BYTES * blocks; i += WARP)
		word(TILE_SCALES + shift + i * 4, scales_at(blocks, 0) + i * 4);
#if SUPER_BYTES > 0
	for (int i = lane; i < SUPER_BYTES * (blocks / 8); i += WARP)
		word(TILE_SUPER + shift + i * 4, super_at(blocks, 0) + i * 4);
#endif
}

// Copies the next tile of a band, which has in_tile blocks or more.
DEVICE void copy_tile(Address band_shared, const uint8_t *tile, int band, int in_tile, int lane)
{
	if (in_tile < TILE_BLOCKS) {
		copy_rest(band_shared, tile, band, in_tile, lane);
		return;
	}
	UNROLL for (int i = 0; i < (TILE_BYTES / 16 + WARP - 1) / WARP; i++)
		if (i * WARP + lane < TILE_BYTES / 16)
			copy_unit(band_shared, tile, band, i * WARP + lane);
}

// Where a lane's parts of the blocks of its warp are in a tile, from its first band on: of output lane / 4 of eight, and of the output whose
// formula it computes. Block i · WARPS + warp of the tile is behind that by a constant.
struct InTile {
	int quants, high[2], scale, super; // high: of even and odd i
	uint32_t offset;                   // bits_of_offset
};

DEVICE InTile in_tile(int inputs)
{
	const int lane = lane_id(), warp = warp_id() % WARPS, output = lane / 4, band = output / BAND_OUTPUTS * FEW_BAND;
	const int own = (lane % 4 * 2 + lane / 16) * (FEW_BAND + SHIFT);
	InTile at = {};
	at.quants = again(band + few_quants_at(output, 0, warp));
	UNROLL for (int i = 0; i < (HIGH_BYTES == 8 ? 2 : 1); i++)
		at.high[i] = again(band + (HIGH_BYTES == 8 ? few_high_at(output, i * WARPS + warp) - i * WARPS * 8 : TILE_HIGH + output / BAND_OUTPUTS * SHIFT + (warp * BAND_OUTPUTS + output % BAND_OUTPUTS) * HIGH_BYTES));
	at.scale = again(own + TILE_SCALES + (warp * BAND_OUTPUTS + output % BAND_OUTPUTS) * SCALE_BYTES);
	at.super = again(own + TILE_SUPER + output % BAND_OUTPUTS * SUPER_BYTES);
	at.offset = bits_of_offset(inputs);
	return at;
}

// Returns where the quants of a chunk of output lane / 4 of the eight of a pair of bands are, in block i of the warp.
DEVICE Address quants_of(Address tile, const InTile &at, int pair, int chunk, int i)
{
	return tile + at.quants + (pair * 2 * FEW_BAND + (chunk * TILE_BLOCKS + i * WARPS) * 16);
}

// The same for its upper bits.
DEVICE Address high_of(Address tile, const InTile &at, int pair, int i)
{
	return tile + at.high[HIGH_BYTES == 8 ? i % 2 : 0] + (pair * 2 * (FEW_BAND + (HIGH_BYTES == 8 ? 0 : SHIFT)) + i * WARPS * (HIGH_BYTES == 8 ? 8 : BAND_OUTPUTS * HIGH_BYTES));
}

// Returns v of the lane that has this lane's bits in the mask SAME, and the bits of lane elsewhere. A constant lane takes no register.
template <int SAME> DEVICE float shfl_among(float v, int lane)
{
#ifdef EMU
	return shfl(v, (lane_id() & SAME) | lane);
#else
	float of_lane;
	asm volatile("shfl.sync.idx.b32 %0, %1, %2, %3, 0xffffffff;" : "=f"(of_lane) : "f"(v), "r"(lane), "n"((SAME & 31) << 8 | 31));
	return of_lane;
#endif
}

// The four lanes with the same lane / 4 need the formulas of the same four outputs of 32, those with lane / 4 as their number among eight:
// formula_of_lane returns that of one of them, in block i of the warp, and of_output passes on what belongs to the output of eight number n.
DEVICE Formula formula_of_lane(Address tile, const InTile &at, int i)
{
	Block w;
	w.scales[0] = load_shared<Scale>(tile + at.scale + i * WARPS * BAND_OUTPUTS * SCALE_BYTES);
#if SUPER_BYTES == 4
	w.super[0] = load_shared<uint32_t>(tile + at.super + i * BAND_OUTPUTS * SUPER_BYTES);
#elif SUPER_BYTES == 2
	w.super[0] = load_shared<uint16_t>(tile + at.super + i * BAND_OUTPUTS * SUPER_BYTES);
#endif
	return formula_of(w);
}

DEVICE float of_output(float v, int n) { return shfl_among<~3>(v, n); }

#endif
