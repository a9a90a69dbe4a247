"""Writes unigram.json: a unigram vocabulary and the ids of some texts, both made by SentencePiece (0.1.97).

    python3 unigram.py >unigram.json
"""
import io, json, random, sys
import sentencepiece as spm

CORPUS = """
The lamp keeper climbs the stairs before the sun goes down and lights the lamp for the ships.
Every evening she writes in the log how the wind blew, how high the waves were, and which ships went by.
A model reads the text in pieces; the pieces are words, parts of words, or single characters.
Temperature divides the logits, and top-p keeps the likeliest tokens until their mass is large enough.
Numbers such as 12, 345 and 2026 are written in digits: 1 + 1 = 2, and 3 * 7 = 21.
Der Leuchtturmwärter steigt vor Sonnenuntergang die Treppe hinauf und zündet die Lampe für die Schiffe an.
Größere Wellen bedeuten stärkeren Wind; über dem Meer kreisen Möwen, und es riecht nach Salz.
Le gardien du phare monte l'escalier avant le coucher du soleil et allume la lampe pour les bateaux.
Смотритель маяка поднимается по лестнице до захода солнца и зажигает лампу для кораблей.
灯台守は日が沈む前に階段を上り、船のために灯をともす。風が強いと波が高い。
守灯塔的人在日落前爬上楼梯，为船只点亮灯。风大的时候浪也高。
등대지기는 해가 지기 전에 계단을 올라 배들을 위해 등을 켠다.
"""
# Sequences of code points, and what they become.
RULES = {"\t": " ", "\n": " ", "\r": "", "\u3000": " ", "\u00a0": " ", "ﬁ": "fi", "ﬂ": "fl", "①": "1", "Ａ": "A", "ｂ": "b", "a\u0308": "ä", "e\u0301": "é", "①②": "12", "…": "..."}

TEXTS = [
    "", " ", "lamp", "the lamp keeper", "  the   lamp  ", "The ships went by.", "lamplight", "Leuchtturmwärter", "größere Schiffe und Möwen",
    "les bateaux du phare", "Смотритель зажигает лампу", "灯台守は船を見る。", "风大，浪高", "등대지기는", "tokens\tand\nlines\r\n", "ideographic\u3000space",
    "ﬁnal ﬂight …", "① ①② ①①②", "Ａｂ", "a\u0308 e\u0301 ä é", "x\u0308y", "snow ☃ and ☃☃☃ more", "☃", "☃lamp☃", "a☃b☃☃c", "emoji 🙂🙃 here", "<s> </s> <unk>", "1234567890",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "the▁lamp", "▁", "▁▁the", "café naïve coöperate", "\u200b", "ZWJ\u200djoined", "É́", "  ☃  ", "Wind;Wind;Wind", "3 * 7 = 21", "qqqqxzj",
]

def model(**options):
    out = io.BytesIO()
    rules = "/tmp/unigram-rules.tsv"
    with open(rules, "w") as f:
        for sequence, becomes in RULES.items():
            f.write(" ".join("%X" % ord(c) for c in sequence) + "\t" + " ".join("%X" % ord(c) for c in becomes) + "\n")
    lines = [l for l in CORPUS.strip().split("\n")]
    rng = random.Random(7)
    words = " ".join(lines).split()
    lines += [" ".join(rng.sample(words, 12)) for _ in range(400)]
    spm.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, model_type="unigram", vocab_size=420, hard_vocab_limit=False, character_coverage=0.98,
        normalization_rule_tsv=rules, num_threads=1, minloglevel=2, **options)
    return spm.SentencePieceProcessor(model_proto=out.getvalue()), out.getvalue()

def fields(data):
    """The fields of a protocol buffer: number, value."""
    at = 0
    def varint():
        nonlocal at
        shift = value = 0
        while True:
            b = data[at]; at += 1
            value |= (b & 127) << shift; shift += 7
            if b < 128: return value
    while at < len(data):
        key = varint()
        if key & 7 == 0: yield key >> 3, varint()
        elif key & 7 == 1: yield key >> 3, data[at:at + 8]; at += 8
        elif key & 7 == 5: yield key >> 3, data[at:at + 4]; at += 4
        else:
            n = varint(); yield key >> 3, data[at:at + n]; at += n

def charsmap(proto):
    normalizer = dict(fields(proto))[3]
    return list(dict(fields(normalizer))[2])

all = []
for name, options in {
    "spaces are collapsed": {},
    "spaces are kept": dict(remove_extra_whitespaces=False),
    "no space before the first word": dict(add_dummy_prefix=False, remove_extra_whitespaces=False),
    "no space before the first word, and spaces are collapsed": dict(add_dummy_prefix=False),
    "tokens cross words": dict(split_by_whitespace=False),
}.items():
    p, proto = model(**options)
    kind = lambda i: 2 if p.is_unknown(i) else 3 if p.is_control(i) else 5 if p.is_unused(i) else 1
    n = p.get_piece_size()
    all.append({
        "name": name, "prefix": options.get("add_dummy_prefix", True), "collapse": options.get("remove_extra_whitespaces", True), "charsmap": charsmap(proto),
        "tokens": [p.id_to_piece(i) for i in range(n)], "scores": [float("%.9g" % p.get_score(i)) for i in range(n)],
        "types": [kind(i) for i in range(n)],
        "cases": [{"text": t, "ids": p.encode(t)} for t in TEXTS],
    })
json.dump(all, sys.stdout, ensure_ascii=True, separators=(",", ":"))
