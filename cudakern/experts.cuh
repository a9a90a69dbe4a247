// Products of many rows with the weights of experts: a pair is a row and one of its experts, with the number
// row · used + the expert's place among those of the row. Pairs are sorted by expert in groups of up to a fixed number of
// pairs with the same expert, so that a product reads the weights of an expert once for a group. The list of
// groups, as int32:
//
//	count                   number of groups
//	expert  [most]          of each group
//	pair    [group][slot]   -1: an empty slot, only at the end of an expert's last group
//
// most is the number of groups that a launch has places for.
#pragma once

#include "kernel.cuh"

// Returns the expert's index. Invalid numbers, which NaN logits cause, become 0 to avoid reads out of
// bounds.
DEVICE int expert_of(float number, int experts) { return number >= 0 && number < experts ? int(number) : 0; }

// Returns the expert of a pair; if routes is null, every row uses all experts.
DEVICE int expert_of_pair(const float *routes, int experts, int used, int pair)
{
	return routes ? expert_of(routes[size_t(pair / used) * 2 * used + pair % used], experts) : pair % used;
}

DEVICE int *experts_of(int *groups) { return groups + 1; }
DEVICE int *pairs_of(int *groups, int most) { return groups + 1 + most; }
DEVICE const int *experts_of(const int *groups) { return groups + 1; }
DEVICE const int *pairs_of(const int *groups, int most) { return groups + 1 + most; }
