// Counting the words of a text while it grows: each piece is looked at once.

// word matches what the server counts as a word; each Chinese or Japanese character is one.
const word = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[^\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]+/gu
const inWord = /^[^\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u
const endsInWord = /[^\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]$/u

export class WordCounter {
  count = 0
  #open = false // the text ends within a word

  add(piece) {
    if (piece === '') return
    this.count += piece.match(word)?.length ?? 0
    if (this.#open && inWord.test(piece)) this.count--
    this.#open = endsInWord.test(piece)
  }
}
