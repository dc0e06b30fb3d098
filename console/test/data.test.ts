import './page'
import { deepEqual, equal, rejects } from 'node:assert/strict'
import { test } from 'node:test'
import { joined, once, type Page } from '../src/data'

const PAGES: Record<string, Page<number>> = {
  '': { data: [9, 8], nextCursor: 'b' },
  b: { data: [7, 6], nextCursor: 'c' },
  c: { data: [5], nextCursor: null },
}

/** The pages that are read for so many, one after the other. */
async function reading(count: number): Promise<[Page<number>, string[]]> {
  const asked: string[] = []
  const page = await joined(async cursor => {
    asked.push(cursor ?? '')
    return PAGES[cursor ?? '']!
  }, count)
  return [page, asked]
}

test('a list is read as far as it was shown', async () => {
  deepEqual(await reading(0), [PAGES[''], ['']])
  deepEqual(await reading(1), [PAGES[''], ['']])
  deepEqual(await reading(2), [{ data: [9, 8, 7, 6], nextCursor: 'c' }, ['', 'b']])
})

test('a list that has become shorter is read to its end', async () => {
  deepEqual(await reading(9), [{ data: [9, 8, 7, 6, 5], nextCursor: null }, ['', 'b', 'c']])
})

test('what is read once is shared by all who ask for it, also at the same time, and read again where it was refused', async () => {
  const read = once()
  let count = 0
  const tags = () => read('tags', async () => ++count)
  deepEqual(await Promise.all([tags(), tags()]), [1, 1])
  equal(await tags(), 1)
  await rejects(
    read('schema', () => Promise.reject(new Error('Later.'))),
    /Later/,
  )
  equal(await read('schema', async () => 'there'), 'there')
  equal(await once()('tags', async () => 'anew'), 'anew')
})
