import '../page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { decided, nameless, omitted, waiting } from '../../src/screens/runs'

test('a run says what is not shown of it: its first steps, what others left, or both', () => {
  equal(omitted({ stepsOmitted: 0, outputsOmitted: 0 }), '')
  equal(omitted({ stepsOmitted: 1, outputsOmitted: 0 }), 'Its first step is not shown. ')
  equal(
    omitted({ stepsOmitted: 0, outputsOmitted: 3 }),
    'The output of 3 steps is not shown: that of later ones has 2 MiB already.',
  )
  equal(
    omitted({ stepsOmitted: 2, outputsOmitted: 1 }),
    'Its first 2 steps are not shown. The output of 1 step is not shown: that of later ones has 2 MiB already.',
  )
})

const isPro = { path: 'contact.metadata.plan', op: 'eq', value: 'pro', found: 'pro', holds: true }

test('what decided is known of a branch and of a wait for something that is true', () => {
  const cases = [
    { port: 'a', holds: false, operands: [] },
    { port: 'b', holds: true, operands: [isPro] },
  ]
  equal(decided({ cases }), cases)
  deepEqual(decided({ port: 'condition1', operands: [isPro] }), [
    { port: 'condition1', holds: true, operands: [isPro] },
  ])
})

test('what another step left is no decision', () => {
  for (const output of [
    null,
    { port: 'condition1', operands: [] },
    { status: 200, body: { operands: 1 } },
    { cases: 'none' },
  ])
    deepEqual(decided(output), [])
})

const UNTIL = '2026-03-02T10:00:00.000Z'
const WAITS: [Record<string, unknown> | null, string][] = [
  [null, ''],
  [{ kind: 'time', until: UNTIL }, `Waiting until ${UNTIL}`],
  [{ kind: 'http', callId: 'cal_1' }, 'Waiting for an HTTP answer'],
  [{ kind: 'delivery', messageId: 'msg_1' }, 'Waiting for the outcome of its message'],
  [
    { kind: 'event', events: ['paid', 'left'], contact: false, until: null },
    'Waiting for the event paid, or for the event left',
  ],
  [
    { kind: 'event', events: ['paid'], contact: true, until: UNTIL },
    `Waiting for the event paid, or for a change of the contact, until ${UNTIL} at the latest`,
  ],
  [
    { kind: 'event', events: [], contact: false, segments: ['entered seg_1', 'left seg_2'], until: null },
    'Waiting for the contact to enter the segment seg_1, or for the contact to leave the segment seg_2',
  ],
]

for (const [what, sentence] of WAITS)
  test(`a run says what it waits for: ${sentence || 'nothing'}`, () => equal(waiting(what, true), sentence))

test('in a list a segment has neither its name nor its id', () =>
  equal(waiting({ kind: 'event', segments: ['left seg_2'] }), 'Waiting for the contact to leave a segment'))

test('a segment without a name, or with none yet, is not called by its id', () => {
  const names = new Map([
    ['seg_1', 'VIP'],
    ['seg_2', 'seg_2'], // it is gone
  ])
  equal(nameless('It waits to enter the segment seg_1.', names), 'It waits to enter the segment seg_1.')
  for (const id of ['seg_2', 'seg_3'])
    equal(nameless(`The contact is in the segment ${id}.`, names), 'The contact is in a segment.')
  equal(nameless('an exit from seg_3', names), 'an exit from a segment')
})
