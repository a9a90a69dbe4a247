// What the kernels of products are launched with: up to three products with the same
// activations, as a model's queries, keys and values are.
#pragma once

#include "kernel.cuh"

enum { WARPS = 8 }; // of a block of threads

struct Product {
	float *dst;
	const uint8_t *weights;
	int outputs; // 0: there is none
};

// The product that a block of threads works on, and its first output: the products follow
// each other in blockIdx.y, EACH outputs a block.
template <int EACH> DEVICE Product product_of(const Product &a, const Product &b, const Product &c, int *output)
{
	int block = blockIdx.y;
	const int blocks_a = (a.outputs + EACH - 1) / EACH, blocks_b = (b.outputs + EACH - 1) / EACH;
	Product p = a;
	if (block >= blocks_a + blocks_b)
		p = c, block -= blocks_a + blocks_b;
	else if (block >= blocks_a)
		p = b, block -= blocks_a;
	*output = block * EACH;
	return p;
}

// KERNEL(name)(products, x, inputs, add, rows): with add the product is added to dst. A
// block computes each outputs of rows by multiply.
#define PRODUCT_KERNEL(name, blocks, each, multiply) \
	KERNEL(name, 32 * WARPS, blocks)(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		int output; \
		const Product p = product_of<each>({dst0, weights0, outputs0}, {dst1, weights1, outputs1}, {dst2, weights2, outputs2}, &output); \
		multiply(p, output, x, inputs, add, rows); \
	}
