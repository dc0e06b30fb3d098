import '../page'
import { equal } from 'node:assert/strict'
import { test } from 'node:test'
import { goes } from '../../src/audience/acts'

type Happened = Parameters<typeof goes>[0][number]
const run = (finishedAt: string | null) => ({ type: 'run', run: { finishedAt } }) as Happened
const event: Happened = { type: 'event' }, message: Happened = { type: 'message' }, consent: Happened = { type: 'consent' }

test('what goes with a contact is counted, and what ends', () => {
  const happened = [event, message, run('2026-03-02T10:00:00Z'), message, run(null), consent]
  equal(goes(happened, true), 'This also deletes 1 event, and the contact’s data in 2 runs and 2 messages. 1 run in progress ends.')
  equal(goes([], true), 'This also deletes 0 events, and the contact’s data in 0 runs and 0 messages.')
})

test('of a long past it says that the newest alone is counted', () => {
  equal(goes([event, event], false), 'This also deletes 2 events, and the contact’s data in 0 runs and 0 messages, counting only the newest 2 activities.')
})
