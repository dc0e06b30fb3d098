import './page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { moved, sentencesAt, unplaced } from '../src/errors'
import { Refusal } from '../src/session'

const wrong = (...pointers: string[]) => pointers.map(pointer => ({ pointer, message: 'Wrong.' }))

test('an error stands at the innermost field that it is in, and nowhere else', () => {
  const errors = wrong('/filter/all/0/value'),
    fields = ['/filter', '/filter/all/0', '/filter/all/0/value']
  deepEqual(
    fields.map(field => sentencesAt(field, errors, fields).length),
    [0, 0, 1],
  )
  deepEqual(unplaced(errors, fields), [])
})

test('what no field shows is left, such as an error of the whole or of what is hidden', () => {
  const errors = wrong('', '/state', '/nameless', '/name')
  deepEqual(
    unplaced(errors, ['/name']).map(each => each.pointer),
    ['', '/state', '/nameless'],
  )
})

test('an error within a field says where in it: a line by its number, a member by its name', () => {
  const errors = wrong('/tags/2', '/metadata/plan', '/data/order/items/0', '/name')
  const fields = ['/tags', '/metadata', '/data', '/name']
  deepEqual(
    fields.map(field => sentencesAt(field, errors, fields)),
    [['3. Wrong.'], ['plan: Wrong.'], ['order/items/0: Wrong.'], ['Wrong.']],
  )
})

test('a field that comes later takes what an outer one showed', () => {
  const errors = wrong('/quietHours/from')
  deepEqual(sentencesAt('/quietHours', errors, ['/quietHours']), ['from: Wrong.'])
  deepEqual(sentencesAt('/quietHours', errors, ['/quietHours', '/quietHours/from']), [])
})

test('errors are shown where a form has them, with all else that the refusal says', () => {
  const refusal = new Refusal(422, 'invalid', 'Correct it.', wrong('/events/0', '/trigger'), 'req_1')
  const { status, code, message, errors, requestId } = moved(refusal, at => (at === '/trigger' ? at : `/more${at}`))
  deepEqual([status, code, message, requestId], [422, 'invalid', 'Correct it.', 'req_1'])
  equal(sentencesAt('/more', errors, ['/more', '/trigger'])[0], 'events/0: Wrong.')
})
