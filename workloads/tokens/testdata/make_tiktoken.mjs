// Makes tiktoken.json, the golden vectors of OpenAI's vocabularies, with
// OpenAI's own library: of each text of corpus.json the number of tokens, and
// the CRC-32 of their ids as little-endian 32-bit integers.
//
//     npm install tiktoken@1.0.22
//     node make_tiktoken.mjs
import { readFileSync, writeFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { get_encoding } from 'tiktoken'

const here = new URL('.', import.meta.url)
const texts = JSON.parse(readFileSync(new URL('corpus.json', here), 'utf8'))
const vectors = (name) => {
  const encoding = get_encoding(name)
  return texts.map((t) => {
    const ids = encoding.encode(t, [], [])
    return [ids.length, crc32(Buffer.from(Int32Array.from(ids).buffer))]
  })
}
writeFileSync(new URL('tiktoken.json', here), JSON.stringify({ cl100k_base: vectors('cl100k_base'), o200k_base: vectors('o200k_base') }) + '\n')
