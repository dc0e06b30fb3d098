import { answering } from '../page'
import { deepEqual, equal, rejects } from 'node:assert/strict'
import { test } from 'node:test'
import { counted, goes } from '../../src/audience/acts'

type Happened = Parameters<typeof goes>[0][number]
const run = (finishedAt: string | null) => ({ type: 'run', run: { finishedAt } }) as Happened
const event: Happened = { type: 'event' },
  message: Happened = { type: 'message' },
  consent: Happened = { type: 'consent' }

test('what goes with a contact is counted, and what ends', () => {
  const happened = [event, message, run('2026-03-02T10:00:00Z'), message, run(null), consent]
  equal(
    goes(happened, true),
    'This also deletes 1 event, and the contact’s data in 2 runs and 2 messages. 1 run in progress ends.',
  )
  equal(goes([], true), 'This also deletes 0 events, and the contact’s data in 0 runs and 0 messages.')
})

test('of a long past it says that the newest alone is counted', () => {
  equal(
    goes([event, event], false),
    'This also deletes 2 events, and the contact’s data in 0 runs and 0 messages, counting only the newest 2 activities.',
  )
})

/** A page of what happened, and where the next begins. */
const page = (data: Happened[], nextCursor: string | null) => () => Response.json({ data, nextCursor })
const cursors = (asked: readonly Request[]) => asked.map(each => new URL(each.url).searchParams.get('cursor'))
const MANY = Array<Happened>(200).fill(message)

test('what goes with a contact is read page by page, each once and to the last', async () => {
  const asked = answering(page(MANY, 'second'), page([], 'third'), page([event], null))
  equal(await counted('ctc_1'), 'This also deletes 1 event, and the contact’s data in 0 runs and 200 messages.')
  deepEqual(cursors(asked), [null, 'second', 'third'])
})

test('of a long past a thousand are read, and no page more', async () => {
  const pages = [1, 2, 3, 4, 5].map(number => page(MANY, `after ${number}`))
  const asked = answering(...pages, page([event], null))
  equal(
    await counted('ctc_1'),
    'This also deletes 0 events, and the contact’s data in 0 runs and 1,000 messages, counting only the newest 1,000 activities.',
  )
  deepEqual(cursors(asked), [null, 'after 1', 'after 2', 'after 3', 'after 4'])
})

test('a thousand that are all are said to be all', async () => {
  answering(...[1, 2, 3, 4].map(number => page(MANY, `after ${number}`)), page(MANY, null))
  equal(await counted('ctc_1'), 'This also deletes 0 events, and the contact’s data in 0 runs and 1,000 messages.')
})

test('a page that cannot be read leaves nothing counted', async () => {
  answering(page(MANY, 'second'), () => Response.json({ code: 'unavailable', detail: 'Try again.' }, { status: 503 }))
  await rejects(counted('ctc_1'), /Try again/)
})
