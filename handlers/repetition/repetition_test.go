package repetition

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// words are the tokens of a text: its words, marks and line breaks, numbered.
func wordTokens(known map[string]int32, text string) (ids []int32) {
	for _, word := range strings.FieldsFunc(strings.NewReplacer("\n", " \n ", ",", " , ", "|", " | ", "[", " [ ", "]", " ] ", "(", " ( ", ".", " . ").Replace(text), func(r rune) bool { return r == ' ' }) {
		if known[word] == 0 {
			known[word] = int32(len(known) + 1)
		}
		ids = append(ids, known[word])
	}
	return ids
}

func repeatedAtLast(ids []int32) (most, last int) {
	r := New(nil)
	for _, id := range ids {
		r.Add(id)
		most, last = max(most, r.Repeated()), r.Repeated()
	}
	return most, last
}

func TestLoopsAreNoticedAndLegitimateRepetitionIsNot(t *testing.T) {
	line := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	paragraphs := func(format string, words ...string) string {
		var b strings.Builder
		for _, word := range words {
			fmt.Fprintf(&b, format, word)
		}
		return b.String()
	}
	const sentence = "The keeper climbed the stairs again and lit the lamp, and the sea was still. "
	for name, c := range map[string]struct {
		text string
		loop bool
	}{
		"a sentence again and again":                {"It was night. " + strings.Repeat(sentence, 12), true},
		"a paragraph of many sentences":             {strings.Repeat(sentence+"Nobody came that evening, nor the next, and he read the same letter by the window.\n\n", 6), true},
		"a word without an end":                     {strings.Repeat("very ", 500), true},
		"a row of a table without an end":           {"| a | b |\n" + strings.Repeat("| yes | no |\n", 80), true},
		"paragraphs that differ in one word":        {paragraphs("the keeper of house %s climbed the stairs again, lit the lamp, and read the old letter by the window until the sea was still. Nobody came that evening, nor the next, and the light went round and round over the rocks below the house where he had been born.\n\n", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), true},
		"paragraphs that differ in a few words":     {paragraphs("In %s the keeper climbed the stairs again, lit the lamp, and read the old letter by the window until the sea was still. Nobody came that evening, nor the next, and the light went round and round over the rocks below.\n\n", "spring", "early summer", "autumn", "a cold winter", "spring", "summer", "late autumn", "winter", "spring"), true},
		"paragraphs with their number at both ends": {line("In house %[1]d the keeper climbed the stairs again, lit the lamp, and read the old letter by the window until the sea was still. Nobody came that evening, nor the next, and the light went round and round over the rocks below. That was house %[1]d of them.\n\n", 10), true},
		"paragraphs that say their word twice":      {paragraphs("In %[1]s the keeper of %[1]s climbed the stairs again, lit the lamp, and read the old letter by the window until the sea was still. Nobody came that evening, nor the next, and the light went round and round over the rocks below the house.\n\n", "Rome", "Oslo", "Bergen", "Genoa", "Lagos", "Malmo", "Turku", "Gdansk", "Odessa"), true},
		"four paragraphs that differ in one word":   {paragraphs("the keeper of house %s climbed the stairs again, lit the lamp, and read the old letter by the window until the sea was still. Nobody came that evening, nor the next, and the light went round and round over the rocks below.\n\n", "one", "two", "three", "four"), false},
		"paragraphs that begin alike":               {paragraphs("Chapter %[1]s begins with the keeper, who climbed the stairs again and lit the lamp. Then %[1]s things happened, and %[1]s boats came by, with %[1]s people on each, who wanted %[1]s lamps. In the end %[1]s of them stayed.\n\n", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"), false},
		"objects of JSON with other values":         {line("{ \"id\" : %[1]d , \"name\" : \"keeper %[1]d\" , \"age\" : %[1]d , \"house\" : \"by the sea\" , \"lamp\" : true , \"letters\" : %[1]d , \"boats\" : [ %[1]d , 2 ] } ,\n", 30), false},
		"a numbered list":                           {line("%d. Item with the same words in every line, and a number.\n", 60), false},
		"a list of lines that begin alike":          {line("- The keeper of house %d climbed the stairs.\n", 60), false},
		"code with a case for each value":           {line("\tcase %d :\n\t\treturn names [ i ] , nil\n", 60), false},
		"a table of measurements":                   {line("| run | %d | yes | no | yes | no |\n", 80), false},
		"a matrix of zeros":                         {"[ " + strings.Repeat("[ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 ],\n", 12) + "]", false},
		"a rule of a table":                         {"| a | b | c |\n|" + strings.Repeat("---|", 40) + "\n| 1 | 2 | 3 |", false},
		"a refrain, sung three times":               {strings.Repeat("We all live by the sea, by the sea, by the sea, and nobody asks why.\n", 3) + "Then came the morning.", false},
		"an empty row of a form, thirty times":      {strings.Repeat("<td> </td>\n", 30), false},
		"a sentence said four times":                {strings.Repeat(sentence, 4), false},
	} {
		most, last := repeatedAtLast(wordTokens(map[string]int32{}, c.text))
		if (most > 0) != c.loop || (last > 0) != c.loop {
			t.Errorf("%s: %d tokens repeat others, %d at the end", name, most, last)
		}
	}
}

func TestAnAnswerThatLeavesALoopRepeatsItselfNoMore(t *testing.T) {
	unit := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	r := New(nil)
	for range 20 {
		for _, id := range unit {
			r.Add(id)
		}
	}
	if r.unit != 10 || r.Repeated() != 190 {
		t.Fatalf("a unit of 10 tokens, 20 times, is a unit of %d with %d tokens repeated", r.unit, r.Repeated())
	}
	if r.Add(99); r.Repeated() != 0 {
		t.Errorf("after another token %d are repeated", r.Repeated())
	}
}

// The window that a continued answer begins with, and the one that is moved, find what a look at all
// tokens finds.
func TestRepetitionIsFoundInAWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var ids []int32
	for len(ids) < 3000 {
		unit := make([]int32, 1+random.IntN(maxUnit))
		for i := range unit {
			unit[i] = random.Int32N(50)
		}
		for range 1 + random.IntN(6) {
			ids = append(ids, unit...)
		}
	}
	r, found := New(nil), 0
	for i, id := range ids {
		r.Add(id)
		unit := 0
		for u := 1; u <= maxUnit && unit == 0; u++ {
			run := 0
			for run < i+1-u && ids[i-run] == ids[i-run-u] {
				run++
			}
			if run >= minFew && run >= (minCopies-1)*u || run >= minRepeated && run >= (minCopies-1)*u && u >= 40 {
				unit = u
			}
		}
		if unit >= 40 && r.unit == 0 || unit != 0 && r.unit > unit {
			t.Fatalf("after %d tokens the unit is %d, want %d", i+1, r.unit, unit)
		}
		if r.unit > 0 {
			found++
			if i%50 == 0 {
				if again := New(ids[:i+1]); again.unit != r.unit {
					t.Fatalf("after %d tokens the unit is %d, in a window %d", i+1, r.unit, again.unit)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no repetition was found")
	}
}
