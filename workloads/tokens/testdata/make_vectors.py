#!/usr/bin/env python3
"""Makes the golden vectors of this folder with the official library.

    pip install tokenizers==0.23.3
    python3 make_vectors.py [CACHE]

It writes corpus.json (the texts), tiny/NAME.json (small tokenizers of every
kind, trained here) with tiny/NAME.vectors.json ([[text number, [ids], decoded], …]),
and, for each NAME with a CACHE/NAME/tokenizer.json, big/NAME.json: the SHA-256
of that file, and of each text the number of tokens and the CRC-32 of its ids
(as little-endian 32-bit integers) and of what they decode to.
"""

import hashlib
import json
import os
import random
import struct
import sys
import zlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))

ENGLISH = [
    "The server answered after forty milliseconds, which nobody had expected; the client, alas, was the slow one.",
    "It's what they'd said: we're late, I've no idea why, and you'll see it's DON'T, CAN'T, WE'LL, I'M.",
    "In 1984, 3.14159 was 22/7 (roughly), and 1,234,567.89 was still a lot of money: $1,234,567.89!",
    "Tokens per second per user - not per system - is the number that a reader feels.",
    "A  text   with    runs     of      blanks, and a tail of them.    ",
    "\tTabs\there\t\tand\t\t\tthere\n\n\nand blank lines\r\n\r\nof both kinds \n \n  \n x",
]
SCRIPTS = [
    "Der Schnellzug fährt über die große Brücke; Öl, Äpfel und Übermut. Straßenbahnhaltestelle.",
    "L'été dernier, à Besançon, j'ai mangé une crêpe où le cœur n'y était pas : « voilà » !",
    "El niño pequeño comió piñas. ¿Dónde está el pingüino? ¡Ahí está!",
    "Быстрая коричневая лиса прыгает через ленивую собаку. Съешь ещё этих мягких булок.",
    "Η γρήγορη αλεπού πηδά πάνω από το τεμπέλικο σκυλί· τι ωραία ΗΜΕΡΑ ς.",
    "今天天气很好,我们去公园散步吧。服务器的延迟是四十毫秒。",
    "昨日は雨でしたが、今日はいい天気です。サーバーの応答が遅い。カタカナとひらがな。",
    "오늘은 날씨가 정말 좋습니다. 서버의 응답 시간이 길어요.",
    "الجو جميل اليوم، والخادم بطيء جدًا. ١٢٣٤٥ رقم.",
    "היום מזג האוויר יפה מאוד, והשרת איטי. שָׁלוֹם.",
    "आज मौसम बहुत अच्छा है। सर्वर धीमा है। १२३४",
    "วันนี้อากาศดีมาก เซิร์ฟเวอร์ช้ามาก ๑๒๓",
    "আজ আবহাওয়া খুব ভালো। সার্ভার ধীর।",
    "இன்று வானிலை நன்றாக உள்ளது.",
    "Hôm nay trời đẹp quá, máy chủ chậm. Nguyễn Văn Ửng.",
    "დღეს კარგი ამინდია. ՀԱՅԵՐԵՆ այբուբեն. አማርኛ ፊደል።",
]
CODE = [
    "func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Printf(\"%d: %s\\n\", i, name[i])\n\t}\n}\n",
    "def f(x):\n    return [y**2 for y in range(x) if y % 3 != 0]  # squares\n\n\nclass A(B):\n    pass\n",
    "<div class=\"row\"><p>Hello &amp; goodbye</p><br/></div>\n<!-- <table><tr><td>1</td></tr></table> -->",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 AND a.y <> 'it''s' GROUP BY 1;",
    "{\"key\": [1, 2.5, -3e10, null, true], \"nested\": {\"a\": \"\\u00e9\"}}",
    "#include <stdio.h>\nint main(void){return printf(\"%p\\n\",(void*)0)!=0?1:0;}//end",
    "# Title\n\n* one\n* two\n  1. three\n\n```sh\n$ make -j2 && ./run --flag=value | tee out.log\n```\n\n> **bold** _it_ [a](http://example.com/x?y=1&z=%20#top)",
    "camelCaseName snake_case_name SCREAMING_CASE kebab-case-name v1.2.3-rc.1+build5 0xDEADBEEF 1e-9",
]
ODD = [
    "", " ", "  ", "\n", "\r\n", "\n\n\n", "a", " a", "a ", "\t", "\u00a0", "\u3000x\u2003y\u2028z\u2029", "\ufeffBOM",
    "\u200b\u200c\u200d\u2060", "\x00\x01\x02\x7f\x80\x85\x9f", "\x0b\x0c\x1c\x1d", "e\u0301 n\u0303 \u0041\u030a \u1e9b\u0323",
    "\u212b \u2126 \ufb01 \u00bd \u2460 \u33a5 \uff21\uff22", "\uac01 \u1100\u1161\u11a8", "'S 'T 'RE 'Ve 'lL 'd 's's 'x ' ''", "x'\u017f y'\u212a '\u017fa",
    "İstanbul ISPARTA ıgdır ẞ ß ŒUVRE Ǆ ǅ", "👍🏽 👨‍👩‍👧‍👦 🇩🇪 ☃️ ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "😀😀😀 text😀text", "\U0001d400\U0001d7d8 \U00020000\U0002f800", "1234567890", "1 22 333 4444 55555",
    "x1y22z333", "²³¹ ⅣⅫ ½¾ ٣٤٥ १२३", "....!!!???---===", "!a #b $c %d &e (f) [g] {h} ~i `j` \\k ^l _m", "a!b?c", "▁▁ ▁a b▁c", ">▁ > x",
    "<0x41><0x0A>", "\ue000\uf8ff\U000f0000", "<s>x</s>", "<unk>", "<|endoftext|>", "<|begin_of_text|>hi<|eot_id|>", "<|im_start|>user\nhi<|im_end|>\n",
    "<start_of_turn>user\nhi<end_of_turn>\n", "<｜User｜>hi<｜Assistant｜><think>\n", "x <mask> y", "word<mask>word", "[MASK] a[MASK]b [mask]",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "special Special SPECIAL unspecial special.", "Ġhello Ċ", "a" * 130, "ab" * 60, " " * 90 + "x", "\n" * 40,
    "\u0915\u094d\u0937 \u0e01\u0e33 \u0bb8\u0bcd\u0bb0\u0bc0", "a\u0300\u0301\u0302b", "don\u2019t \u201cquote\u201d \u2014 \u2026", "x\u00ady", "ﷺ ﷽", "a.b,c;d:e", "  lead", "trail  ", "mid  dle", "a\n b\n  c\n", "a \nb  \n c", "\r\r\n\n\r",
]


def corpus():
    rnd = random.Random(20240607)
    texts = list(ODD) + ENGLISH + SCRIPTS + CODE
    base = ENGLISH + SCRIPTS + CODE
    words = [w for t in base for w in t.split(" ")] + ["<s>", "'s", "\n", "\n\n", "  ", "1", "42", "007"]
    for _ in range(60):
        texts.append(rnd.choice([" ", "", "  ", "\n"]).join(rnd.choice(words) for _ in range(rnd.randint(3, 25))))
    letters = list("aAbB'sStTdDlLrR  \n\r\t.,!1234é̈ßж中か한أ▁_-<>")
    for _ in range(80):
        texts.append("".join(rnd.choice(letters) for _ in range(rnd.randint(1, 40))))
    for _ in range(60):
        texts.append("".join(chr(code(rnd, 0x2FFF)) for _ in range(rnd.randint(1, 20))))
    for _ in range(40):
        texts.append("".join(chr(code(rnd, 0x10FFFF)) for _ in range(rnd.randint(1, 20))))
    for _ in range(14):
        t = list(base)
        rnd.shuffle(t)
        texts.append(rnd.choice(["\n", " ", "\n\n"]).join(t[:6]))
    return texts


def code(rnd, top):
    while True:
        c = rnd.randint(1, top)
        if not 0xD800 <= c < 0xE000:
            return c


GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = GPT4.replace("{1,3}", "")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]

N, P, D = normalizers, pre_tokenizers, decoders


def seq(*steps):
    return P.Sequence(list(steps))


def split(expr, behavior="isolated", invert=False):
    return P.Split(Regex(expr), behavior, invert)


def tiny():
    """Yields (name, model, trainer, normalizer, pre-tokenizer, decoder, added tokens)."""
    byte = dict(vocab_size=420, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False, special_tokens=["<|endoftext|>"])
    bl = P.ByteLevel(add_prefix_space=False, use_regex=False)

    def byte_level(name, pre, norm=None, added=(), **model):
        return name, models.BPE(**model), trainers.BpeTrainer(**byte), norm, pre, D.ByteLevel(), added

    yield byte_level("gpt2", P.ByteLevel(add_prefix_space=True))
    yield byte_level("llama3", seq(split(GPT4), bl), ignore_merges=True, added=[AddedToken("<|begin_of_text|>", special=True)])
    yield byte_level("qwen", seq(split(QWEN), bl), N.NFC(), added=[AddedToken("<tool_call>", normalized=False), AddedToken("<|im_start|>", special=True)])
    yield byte_level("deepseek", seq(*[split(e) for e in DEEPSEEK], bl), N.Sequence([]))
    yield byte_level("o200k", seq(split(O200K), bl))
    yield byte_level("digits", seq(P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)))
    yield byte_level("normbyte", split(r"[^ -~]", "merged_with_next"), N.Sequence([N.NFKD(), N.ByteLevel()]))
    for b in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        yield byte_level("split_" + b, seq(split(r"\s|[.'\-]", b), bl))
        yield byte_level("invert_" + b, seq(split(r"[a-z]+", b, True), P.CharDelimiterSplit("x"), bl))
    yield byte_level(
        "added", seq(P.WhitespaceSplit(), bl), N.Sequence([N.Lowercase(), N.Strip(left=True, right=False), N.NFKC()]),
        added=[AddedToken("<mask>", lstrip=True, special=True, normalized=False), AddedToken("special", single_word=True),
               AddedToken("[MASK]", rstrip=True, normalized=True), AddedToken("</s>", lstrip=True, rstrip=True, normalized=False),
               AddedToken("\n\n", normalized=False), AddedToken("\n\n\n", normalized=False), AddedToken("Ab", normalized=True)])

    sp = dict(vocab_size=700, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)])
    fallback = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    yield ("llama2", models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainers.BpeTrainer(limit_alphabet=60, **sp),
           N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None, fallback, [])
    yield ("gemma", models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainers.BpeTrainer(limit_alphabet=60, **sp),
           N.Replace(" ", "▁"), P.Split(" ", "merged_with_previous"), D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()]), [])
    yield ("metabpe", models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=300, limit_alphabet=60, show_progress=False, special_tokens=["<unk>", "<mask>"]),
           None, P.Metaspace(prepend_scheme="first"), D.Metaspace(prepend_scheme="first"), [])
    yield ("fuse", models.BPE(unk_token="<unk>", fuse_unk=True), trainers.BpeTrainer(vocab_size=300, limit_alphabet=40, show_progress=False, special_tokens=["<unk>"]),
           N.NFKC(), P.Metaspace(prepend_scheme="never", split=False), D.Metaspace(prepend_scheme="never"), [])
    yield ("suffix", models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
           trainers.BpeTrainer(vocab_size=350, limit_alphabet=60, end_of_word_suffix="</w>", show_progress=False, special_tokens=["<unk>"]),
           N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents()]), P.Whitespace(), D.BPEDecoder(), [])
    yield ("prefix", models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
           trainers.BpeTrainer(vocab_size=350, limit_alphabet=60, continuing_subword_prefix="##", show_progress=False, special_tokens=["<unk>"]),
           N.Replace(Regex("[0-9]{2,}"), "#"), seq(P.WhitespaceSplit(), P.Punctuation("merged_with_previous"), P.Digits(False)), D.WordPiece(cleanup=False), [])

    wp = dict(vocab_size=500, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[MASK]"])
    yield ("bert", models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100), trainers.WordPieceTrainer(**wp), N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece(), [])
    yield ("bertcased", models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20), trainers.WordPieceTrainer(**wp),
           N.BertNormalizer(lowercase=False, handle_chinese_chars=False), seq(P.Whitespace(), P.Punctuation("contiguous")), D.WordPiece(cleanup=False), [])

    yield ("unigram", models.Unigram(), trainers.UnigramTrainer(vocab_size=400, unk_token="<unk>", special_tokens=["<unk>", "<s>"], show_progress=False),
           N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), D.Metaspace(), [])
    yield ("unigrambyte", models.Unigram(), trainers.UnigramTrainer(
        vocab_size=600, unk_token="<unk>", special_tokens=sp["special_tokens"], show_progress=False),
        None, P.Metaspace(prepend_scheme="never"), D.Sequence([D.ByteFallback(), D.Metaspace(prepend_scheme="never")]), [])


def main():
    texts = corpus()
    with open(os.path.join(HERE, "corpus.json"), "w") as f:
        json.dump(texts, f, indent=0)
    training = ENGLISH * 3 + SCRIPTS[:3] + CODE + SCRIPTS[5:7]
    short = [i for i, t in enumerate(texts) if len(t) <= 60 or i % 9 == 0 and len(t) < 400]
    short = [i for i in short if i < 115 or i % 4 == 0]
    for name, model, trainer, norm, pre, dec, added in tiny():
        t = Tokenizer(model)
        if norm:
            t.normalizer = norm
        if pre:
            t.pre_tokenizer = pre
        t.decoder = dec
        t.train_from_iterator(training, trainer)
        t.add_tokens(list(added))
        spec = json.loads(t.to_str())
        if name == "unigrambyte":
            spec["model"]["byte_fallback"] = True
        if name == "gpt2":  # older files: merges as text
            spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
        path = os.path.join(HERE, "tiny", name)
        with open(path + ".json", "w") as f:
            json.dump(spec, f, ensure_ascii=False, separators=(",", ":"))
        t = Tokenizer.from_file(path + ".json")
        rows = []
        for i in short:
            ids = t.encode(texts[i], add_special_tokens=False).ids
            # (The library's BPEDecoder cannot decode no tokens at all.)
            rows.append([i, ids, t.decode(ids, skip_special_tokens=False) if ids else ""])
        with open(path + ".vectors.json", "w") as f:
            f.write("[" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "]\n")
    for cache in sys.argv[1:]:
        for name in sorted(os.listdir(cache)):
            path = os.path.join(cache, name, "tokenizer.json")
            if not os.path.exists(path):
                continue
            with open(path, "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            t = Tokenizer.from_file(path)
            rows = []
            for text in texts:
                ids = t.encode(text, add_special_tokens=False).ids
                back = t.decode(ids, skip_special_tokens=False)
                rows.append([len(ids), zlib.crc32(struct.pack("<%di" % len(ids), *ids)), zlib.crc32(back.encode())])
            os.makedirs(os.path.join(HERE, "big"), exist_ok=True)
            with open(os.path.join(HERE, "big", name + ".json"), "w") as f:
                json.dump({"sha256": digest, "texts": rows}, f, separators=(",", ":"))


main()
