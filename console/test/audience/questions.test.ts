import '../page'
import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { answered, comparedAs, ownName, refitted } from '../../src/audience/questions'
import { step } from '../../src/ui'

test('a custom field is called by its name, however odd', () => {
  for (const name of ['plan', 'my plan', 'a.b', 'a"b]', '7']) equal(ownName(step('contact.metadata', name)), name)
  equal(ownName('contact.metadata.'), '')
})

test('the path of something else is called by itself', () => {
  for (const path of [
    '',
    'contact.tags',
    'contact.metadata',
    'contact.metadata.a.b',
    'contact.metadata["a"b"]',
    'event.properties.total',
  ])
    equal(ownName(path), null, path)
})

test('each channel of a topic has its answers', () => {
  const topic = { id: 'top_1', name: 'News', channels: ['email', 'sms'] } as Parameters<typeof answered>[0][number]
  deepEqual(
    Object.entries(answered([topic])).map(([path, { name }]) => [path, name]),
    [
      ['contact.topics.top_1.email', 'Topic News: Email'],
      ['contact.topics.top_1.sms', 'Topic News: SMS'],
    ],
  )
})

test('a custom field is compared as what its values are, if they are of one type', () => {
  equal(comparedAs(['string']).isText, true)
  equal(comparedAs(['number']).operators?.includes('gt'), true)
  equal(comparedAs(['number']).operators?.includes('contains'), false)
  deepEqual(
    comparedAs(['boolean']).values?.map(([value]) => value),
    ['true', 'false'],
  )
  for (const types of [undefined, [], ['string', 'number']]) deepEqual(comparedAs(types), {})
})

test('a comparison of another field has an operator and a value that this one has', () => {
  const seats = { path: 'contact.metadata.seats', op: 'gt', value: 2 }
  deepEqual(refitted(seats, 'plan', comparedAs(['string']), true), { path: 'plan', op: 'gt', value: '2' })
  deepEqual(refitted(seats, 'beta', comparedAs(['boolean']), false), { path: 'beta', op: 'eq', value: '' })
  deepEqual(refitted(seats, 'new', {}, true), { ...seats, path: 'new' })
  const plan = { path: 'contact.metadata.plan', op: 'contains', value: 'pro' }
  deepEqual(refitted(plan, 'seats', comparedAs(['number']), true), { path: 'seats', op: 'eq', value: 'pro' })
})
